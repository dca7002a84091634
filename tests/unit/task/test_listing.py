"""Dicts and sets of a pool cannot be listed, which their errors say."""

from collections.abc import Callable
from operator import methodcaller
from typing import TYPE_CHECKING, Any, cast

import pytest

from skyward.task.collections import Dict, Set

if TYPE_CHECKING:
    from skyward.wire.collections.requests import Backend

pytestmark = pytest.mark.unit

UNUSED = cast("Backend", None)


@pytest.mark.parametrize(
    "list_it", [len, list, dict, max, methodcaller("keys"), methodcaller("values"), methodcaller("items")]
)
def test_dict_cannot_be_listed(list_it: Callable[[Any], object]) -> None:
    seen = Dict(UNUSED, "seen")
    assert seen
    with pytest.raises(TypeError, match="^<dict 'seen'> has no length and cannot be listed: "):
        list_it(seen)


@pytest.mark.parametrize("list_it", [list, set, sorted])
def test_set_cannot_be_listed(list_it: Callable[[Any], object]) -> None:
    class Counted(Set):
        def __len__(self) -> int:
            return 2

    with pytest.raises(TypeError, match="^<set 'seen'> cannot be listed: "):
        list_it(Counted(UNUSED, "seen"))
