"""Collections of a script: a process asks over the socket of its task."""

import os
import sys
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.task.collections import base
from skyward.task.collections.base import local_backend
from skyward.task.collections.beside_task import ADDRESS, BackendBesideTask
from skyward.wire.collections.requests import CollectionRequest
from skyward.worker.scripts.collections import ScriptCollections
from tests.waiting import wait_for

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="sockets with names are Linux's")
REQUEST = CollectionRequest("queue", "q", "get", (1,))


class Node:
    """Backend that answers when it is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[CollectionRequest, Future[Any]]] = []
        self.came = threading.Event()

    def ask(self, request: CollectionRequest) -> Future[Any]:
        future: Future[Any] = Future()
        self.asked.append((request, future))
        self.came.set()
        return future


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    found = Node()
    monkeypatch.setattr(base, "_backend", found)
    return found


def test_requests_belong_to_the_task_and_answers_come_back(node: Node) -> None:
    with ScriptCollections(7) as door:
        backend = BackendBesideTask(door.address)
        first, second = backend.ask(REQUEST), backend.ask(REQUEST)
        wait_for(lambda: len(node.asked) == 2, "both requests")
        assert [request.owner for request, _ in node.asked] == [7, 7]
        node.asked[1][1].set_exception(sky.CollectionLostError("lost"))
        node.asked[0][1].set_result(b"value")
        assert first.result(30) == b"value"
        with pytest.raises(sky.CollectionLostError, match="lost"):
            second.result(30)


def test_cancelled_request_is_taken_back(node: Node) -> None:
    with ScriptCollections(7) as door:
        waiting = BackendBesideTask(door.address).ask(REQUEST)
        assert node.came.wait(30)
        waiting.cancel()
        wait_for(node.asked[0][1].cancelled, "the end of the operation on the node")


def test_end_of_the_script_revokes_what_waits(node: Node) -> None:
    """A process that outlives its script must not act for a task that has ended."""
    with ScriptCollections(7) as door:
        backend = BackendBesideTask(door.address)
        waiting = backend.ask(REQUEST)
        assert node.came.wait(30)
    with pytest.raises(sky.CollectionUnavailableError, match="has ended"):
        waiting.result(30)
    wait_for(node.asked[0][1].cancelled, "the end of the operation on the node")
    with pytest.raises(sky.CollectionUnavailableError, match="end this process before the script"):
        backend.ask(REQUEST).result(30)


@on_linux
def test_other_users_are_not_answered(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptCollections(7) as door:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(sky.CollectionUnavailableError):
            BackendBesideTask(door.address).ask(REQUEST).result(30)
    assert node.asked == []


@on_linux
def test_socket_needs_no_folder_on_linux(node: Node) -> None:
    """A worker that is killed would leave it."""
    before = set(Path(tempfile.gettempdir()).iterdir())
    with ScriptCollections(7) as door:
        assert door.address.startswith("@skyward-")
        assert set(Path(tempfile.gettempdir()).iterdir()) == before


def test_process_without_a_task_or_a_script_says_where_collections_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_backend", None)
    monkeypatch.delenv(ADDRESS, raising=False)
    with pytest.raises(sky.NotOnNodeError, match="neither one of its tasks nor a script of `skyward run`"):
        local_backend()
