"""Strong collections that lost their content, and the error for it."""

from dataclasses import dataclass

from skyward.errors import CollectionLostError
from skyward.wire.collections.requests import CollectionRequest

__all__ = ["Loss", "Name", "name_of", "reads", "writes"]

type Name = tuple[str, str]
"""Kind and name of a collection."""

_CONTENT = frozenset({"dict", "set", "counter", "queue"})
_READS = frozenset({("dict", "get"), *((kind, verb) for kind in _CONTENT for verb in ("has", "size", "value"))})
_WRITES = frozenset({"put", "update", "add", "reset"})


@dataclass(frozen=True, slots=True)
class Loss:
    """A strong collection that lost all copies of its values.

    Attributes:
        kind, name: the collection.
        whole: True if all of its content is lost, False if part of it may be.
    """

    kind: str
    name: str
    whole: bool

    def error(self) -> CollectionLostError:
        """Return the error for the first operation after the loss."""
        if self.whole:
            return CollectionLostError(
                f"{self.kind.capitalize()} {self.name!r} has lost its content: all nodes with a copy were lost, or too "
                "many of them. It is empty now. This error is raised once; the next operation works on an empty one."
            )
        return CollectionLostError(
            f"{self.kind.capitalize()} {self.name!r} may have lost part of its content: nodes were lost before the "
            "others had copies of what they stored. Check its content. This error is raised once; the next operation "
            "works on what is left."
        )


def name_of(request: CollectionRequest) -> Name:
    """Return the collection that an operation is for."""
    return request.kind, request.name


def reads(request: CollectionRequest) -> bool:
    """Return whether an operation is read-only, so that it can be repeated after an error."""
    return (request.kind, request.verb) in _READS


def writes(request: CollectionRequest) -> bool:
    """Return whether an operation adds content, which can then be lost."""
    return request.kind in _CONTENT and request.verb in _WRITES
