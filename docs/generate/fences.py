"""Generated parts of pages."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from docs.generate import commands, configuration, errors, names, options, plugins, policies, providers, published

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["PARTS", "fill"]

PARTS: Mapping[str, Callable[[], str]] = {
    **{f"names {topic}": partial(names.entries, topic) for topic in names.TOPICS},
    "cell-options": options.cell_options,
    "magic-commands": commands.magic_commands,
    "terminal-commands": commands.terminal_commands,
    "cell-keys": configuration.cell_keys,
    "pool-keys": configuration.pool_keys,
    "provider-keys": configuration.provider_keys,
    "storage-keys": configuration.storage_keys,
    "error-table": errors.error_table,
    "plugin-table": plugins.plugin_table,
    "policy-table": policies.policy_table,
    "published-names": published.published_names,
    "provider-table": providers.provider_table,
}
"""Each part by its name, with the function that writes it as Markdown."""

_FENCE = re.compile(r"^```\{generated\} ([\w -]+)\n```$", re.MULTILINE)


def fill(_: "Sphinx", page: str, source: list[str]) -> None:
    """Write the generated parts of a page.

    Raises:
        KeyError: a page names a part that there is not.
    """
    source[0] = _FENCE.sub(lambda found: PARTS[found[1]](), source[0])
