"""The installed providers."""

import inspect

import skyward as sky
from docs.generate.markdown import table
from skyward.providers.protocol import find_provider, provider_names

__all__ = ["our_providers", "provider_table"]


def our_providers() -> list[str]:
    """Return the names of the providers of this distribution."""
    return [name for name in provider_names() if find_provider(name).__module__.startswith("skyward_providers")]


def provider_table() -> str:
    """Return a table of the providers, with the name for `--provider` and the class."""
    rows = []
    for name in our_providers():
        kind = find_provider(name)
        public = next(each for each in sky.__all__ if getattr(sky, each) is kind)
        sentence = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append((f"`{name}`", f"{{py:class}}`~skyward.{public}`", sentence))
    return table(("name", "class", "machines"), rows)
