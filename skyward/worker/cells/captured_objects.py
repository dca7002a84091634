"""The notebook's objects on a node, by the captured parts that they came with."""

from collections.abc import Collection
from functools import cached_property
from typing import Any

from skyward.wire.kinds.arrays import arrays_owned_by, extent_of, is_array, is_inside_frame
from skyward.worker.cells.captured import Captured, Part

__all__ = ["CapturedObjects", "PartObjects"]


class CapturedObjects:
    """The notebook's objects on this node, by part; empty if the cell only has copies of them."""

    def __init__(self, captured: Captured | None) -> None:
        self.parts = [] if captured is None else list(map(PartObjects, captured.parts))


class PartObjects:
    """The objects of one part, enumerated lazily: there may be very many."""

    def __init__(self, part: Part) -> None:
        self.part = part

    @cached_property
    def numbered(self) -> dict[int, Any]:
        """The objects by their memo numbers."""
        return self.part.objects()

    @cached_property
    def ids(self) -> set[int]:
        """The ids of the objects."""
        return set(map(id, self.numbered.values()))

    @cached_property
    def classes(self) -> set[int]:
        """The ids of the classes that were captured in this part."""
        return {id(value) for value in self.part.values if isinstance(value, type)}

    @cached_property
    def arrays(self) -> list[tuple[int, Any]]:
        """The arrays with their numbers, without private ones, such as the arrays inside a data frame."""
        kinds = set(map(type, self.numbered.values()))
        if not any(kind.__name__ == "ndarray" for kind in kinds):
            return []
        found = [(number, each) for number, each in self.numbered.items() if is_array(each)]
        private = self.private
        return [(number, each) for number, each in found if id(each) not in private]

    @cached_property
    def private(self) -> set[int]:
        """The ids of arrays that belong to other objects, such as data frames."""
        kinds = {kind for kind in set(map(type, self.numbered.values())) if is_inside_frame(kind)}
        if not kinds:
            return set()
        inside = [each for each in self.numbered.values() if type(each) in kinds]
        owners = {id(extent_of(array).owner) for each in inside for array in arrays_owned_by(each)}
        arrays = [each for each in self.numbered.values() if is_array(each)]
        return {id(each) for each in arrays if id(extent_of(each).owner) in owners}

    def among(self, ids: Collection[int]) -> list[tuple[int, Any]]:
        """Return the objects with these ids, with their numbers."""
        return [(number, each) for number, each in self.numbered.items() if id(each) in ids]
