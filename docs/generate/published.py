"""Names of the published Skyward and their replacements, from the table of the errors about them."""

from docs.generate.markdown import table
from skyward.published_names import OF_A_POOL, OF_THE_MODULE

__all__ = ["published_names"]


def published_names() -> str:
    """Return a table of the names that differ."""
    rows = [(f"`sky.{name}`", text) for name, text in sorted(OF_THE_MODULE.items())]
    rows += [(f"`pool.{name}`", text) for name, text in sorted(OF_A_POOL.items())]
    return table(("published", "here"), rows)
