"""Objects that would be a file and a folder of the same name: `a` beside `a/b`."""

from collections.abc import Iterable, Iterator

from skyward.storage.listing import ObjectEntry

__all__ = ["clashes"]


def clashes(entries: Iterable[ObjectEntry]) -> Iterator[tuple[str, str]]:
    """Yield each key that is also the folder of another one, with the first such key."""
    keys = sorted(entry.key for entry in entries)
    files, seen = set(keys), set[str]()
    for key in keys:
        for end in (place for place, letter in enumerate(key) if letter == "/"):
            folder = key[:end]
            if folder in files and folder not in seen:
                yield folder, key
            seen.add(folder)
