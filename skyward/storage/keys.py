"""Keys that no object can have, or that could not be transferred."""

__all__ = ["key_problem"]

_LONGEST = 1024
"""Bytes of a key."""


def key_problem(key: str) -> str | None:
    """Return what keeps an object from having a key, as words on the key: "has control characters". None: nothing.

    Args:
        key: the whole key. A slash at its begin counts for nothing.
    """
    if any(letter < " " or letter == "\x7f" for letter in key):
        return "has control characters"
    try:
        length = len(key.encode())
    except UnicodeEncodeError:
        return "is not UTF-8"
    if length > _LONGEST:
        return f"is longer than {_LONGEST:,} bytes"
    if any(part in ("", ".", "..") for part in key.removeprefix("/").split("/")):
        return "has a part that is empty, '.' or '..'"
    return None
