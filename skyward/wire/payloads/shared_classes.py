"""The classes of a node that calls share, because no code of theirs changes them (`skyward.wire.kinds.stateless`).

Other code that was given such a class or an object of it may change it: a class whose attributes differ from those it
arrived with is no longer shared.
"""

import threading
from collections import OrderedDict
from typing import Any

from skyward.wire.kinds.stateless import OF_CLASSES

__all__ = ["SharedClasses"]

_MOST = 256


class SharedClasses:
    """Classes by version; the least recently used are evicted first."""

    def __init__(self) -> None:
        self._classes: OrderedDict[str, type] = OrderedDict()
        self._attributes: dict[type, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def find(self, version: str) -> type | None:
        """Return the class of this version, if there is one and it is unchanged."""
        with self._lock:
            kind = self._classes.get(version)
            if kind is not None and not self.is_intact(kind):
                self._forget(version)
                return None
            if kind is not None:
                self._classes.move_to_end(version)
            return kind

    def add(self, version: str, kind: type) -> bool:
        """Share `kind`, which is complete; return False if another class of this version exists already."""
        with self._lock:
            if version in self._classes:
                return self._classes[version] is kind
            self._classes[version] = kind
            self._attributes[kind] = _attributes(kind)
            if len(self._classes) > _MOST:
                self._forget(next(iter(self._classes)))
            return True

    def is_intact(self, kind: type) -> bool:
        """Return whether `kind` is shared and has the attributes that it arrived with."""
        before = self._attributes.get(kind)
        if before is None:
            return False
        now = _attributes(kind)
        return len(before) == len(now) and all(now.get(name) is value for name, value in before.items())

    def _forget(self, version: str) -> None:
        del self._attributes[self._classes.pop(version)]


def _attributes(kind: type) -> dict[str, Any]:
    """Return the attributes of `kind` except those that Python adds on access."""
    return {name: value for name, value in kind.__dict__.items() if name not in OF_CLASSES}
