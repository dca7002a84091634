"""What the tasks of a node hold stays there until they have used it, whatever the client drops."""

import pytest

from skyward.wire.protocol.flow import cost
from skyward.wire.protocol.messages import Blob, Feed, Need, Payload
from skyward.worker.blobs.references import BlobReferences
from skyward.worker.blobs.store import BlobStore

pytestmark = pytest.mark.unit

CODE, CALL, FIRST, SECOND, FAILURE = (Payload(Blob(name, 100_000)) for name in (b"f", b"c", b"1", b"2", b"e"))
SMALL = Payload(b"small")


class Node:
    """A store, and what the tasks hold of it."""

    def __init__(self) -> None:
        self.store = BlobStore()
        self.holds = BlobReferences(self.store)
        for payload in (CODE, CALL, FIRST, SECOND, FAILURE):
            assert isinstance(payload.data, Blob)
            self.store.publish(payload.data.key, self.store.reserve(10))

    def drop_all(self) -> None:
        self.store.drop(set(self.store._blobs))

    @property
    def there(self) -> set[bytes]:
        return set(self.store._blobs)


@pytest.fixture
def node() -> Node:
    return Node()


def test_code_and_call_are_there_until_the_last_of_their_tasks_ends(node: Node) -> None:
    node.holds.submitted(1, (CODE, CALL))
    node.holds.submitted(2, (CODE, SMALL))
    node.drop_all()
    assert node.there == {b"f", b"c"}
    node.holds.ended(1)
    assert node.there == {b"f"}
    node.holds.ended(2)
    node.holds.ended(2)
    assert node.there == set()


def test_an_element_is_there_until_it_is_consumed(node: Node) -> None:
    node.holds.submitted(1, ())
    node.holds.fed(Feed(1, 0, (FIRST, SMALL, SECOND)))
    node.drop_all()
    assert node.there == {b"1", b"2"}
    node.holds.consumed(Need(1, 0, cost(FIRST)))
    assert node.there == {b"2"}
    node.holds.consumed(Need(1, 1, 1000))  # another stream
    assert node.there == {b"2"}
    node.holds.consumed(Need(1, 0, cost(SMALL) + cost(SECOND)))
    assert node.there == set()


def test_what_a_task_did_not_consume_goes_when_it_ends(node: Node) -> None:
    node.holds.submitted(1, ())
    node.holds.fed(Feed(1, 0, (FIRST, SECOND), True, FAILURE))
    node.drop_all()
    node.holds.consumed(Need(1, 0, cost(FIRST)))
    assert node.there == {b"2", b"e"}
    node.holds.ended(1)
    assert node.there == set()


def test_what_comes_for_a_task_that_is_over_is_not_held(node: Node) -> None:
    node.holds.submitted(1, (CALL,))
    node.holds.ended(1)
    node.holds.fed(Feed(1, 0, (FIRST,)))
    node.holds.consumed(Need(1, 0, 100))
    node.drop_all()
    assert node.there == set()
