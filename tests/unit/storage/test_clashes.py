"""Keys that are also the folders of others."""

import pytest

from skyward.storage.clashes import clashes
from skyward.storage.failures import UNREACHABLE, may_pass
from skyward.storage.listing import ObjectEntry


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ((), []),
        (("a", "b/a", "ab/c"), []),
        (("a", "a!b", "a-b", "a/x", "a/y"), [("a", "a/x")]),
        (("a", "a/x", "a/x/y", "b/c", "b/c/d"), [("a", "a/x"), ("a/x", "a/x/y"), ("b/c", "b/c/d")]),
    ],
)
def test_each_is_found_once_in_any_order(keys: tuple[str, ...], found: list[tuple[str, str]]) -> None:
    for order in (keys, tuple(reversed(keys))):
        assert list(clashes(ObjectEntry(key, 1) for key in order)) == found


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        (UNREACHABLE, True),
        ("SlowDown", True),
        ("HTTP503", True),
        ("NoSuchBucket", False),
        ("AccessDenied", False),
        ("InvalidAccessKeyId", False),
        ("DiskFull", False),
        ("", False),
    ],
)
def test_only_what_another_node_may_not_meet_is_tried_again(code: str, passes: bool) -> None:
    assert may_pass(code) is passes
