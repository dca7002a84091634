"""References of tasks keep blobs on the node until they are used, whatever the client drops."""

import pytest

from skyward.wire.protocol.flow import cost
from skyward.wire.protocol.messages import Blob, Feed, Need, Payload
from skyward.worker.blobs.references import BlobReferences
from skyward.worker.blobs.store import BlobStore

pytestmark = pytest.mark.unit

CODE, CALL, FIRST, SECOND, FAILURE = (Payload(Blob(name, 100_000)) for name in (b"f", b"c", b"1", b"2", b"e"))
SMALL = Payload(b"small")


class Node:
    """A store, and the references of tasks to its blobs."""

    def __init__(self) -> None:
        self.store = BlobStore()
        self.references = BlobReferences(self.store)
        for payload in (CODE, CALL, FIRST, SECOND, FAILURE):
            assert isinstance(payload.data, Blob)
            self.store.publish(payload.data.key, self.store.reserve(10))

    def drop_all(self) -> None:
        self.store.drop(set(self.store._blobs))

    @property
    def blobs(self) -> set[bytes]:
        return set(self.store._blobs)


@pytest.fixture
def node() -> Node:
    return Node()


def test_code_and_call_are_kept_until_their_last_task_ends(node: Node) -> None:
    node.references.submitted(1, (CODE, CALL))
    node.references.submitted(2, (CODE, SMALL))
    node.drop_all()
    assert node.blobs == {b"f", b"c"}
    node.references.ended(1)
    assert node.blobs == {b"f"}
    node.references.ended(2)
    node.references.ended(2)
    assert node.blobs == set()


def test_element_is_kept_until_it_is_consumed(node: Node) -> None:
    node.references.submitted(1, ())
    node.references.fed(Feed(1, 0, (FIRST, SMALL, SECOND)))
    node.drop_all()
    assert node.blobs == {b"1", b"2"}
    node.references.consumed(Need(1, 0, cost(FIRST)))
    assert node.blobs == {b"2"}
    node.references.consumed(Need(1, 1, 1000))  # another stream
    assert node.blobs == {b"2"}
    node.references.consumed(Need(1, 0, cost(SMALL) + cost(SECOND)))
    assert node.blobs == set()


def test_unconsumed_elements_are_released_at_the_end_of_the_task(node: Node) -> None:
    node.references.submitted(1, ())
    node.references.fed(Feed(1, 0, (FIRST, SECOND), True, FAILURE))
    node.drop_all()
    node.references.consumed(Need(1, 0, cost(FIRST)))
    assert node.blobs == {b"2", b"e"}
    node.references.ended(1)
    assert node.blobs == set()


def test_elements_for_an_ended_task_are_not_held(node: Node) -> None:
    node.references.submitted(1, (CALL,))
    node.references.ended(1)
    node.references.fed(Feed(1, 0, (FIRST,)))
    node.references.consumed(Need(1, 0, 100))
    node.drop_all()
    assert node.blobs == set()
