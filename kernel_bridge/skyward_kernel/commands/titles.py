"""The form of answers that several commands have."""

from collections.abc import Mapping

__all__ = ["titled"]


def titled(what: str, tables: Mapping[str, str], *, are_several: bool) -> str:
    """Return the tables of pools, by their names, with a title for each if there are several pools."""
    return "\n\n".join(f"{what} of {name}:\n{text}" if are_several else text for name, text in tables.items())
