"""Text that leaves a node can be encoded, for any output of a task."""

import json
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.events.metrics import NodeMetrics
from skyward.wire.protocol.messages import (
    Clustered,
    Fetched,
    KnownTask,
    Metrics,
    NodeReport,
    Output,
    Payload,
    Peered,
    Yielded,
)
from skyward.wire.protocol.text import encodable, plain_json, with_encodable_text

pytestmark = pytest.mark.unit

TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("\udc80\ud800\udfff\x00\x1b\r\n")))
"""Arbitrary strings, including lone surrogates."""

KNOWN = st.builds(KnownTask, st.integers(), TEXTS, st.booleans(), st.tuples(), TEXTS)
EVENTS = st.one_of(
    st.builds(Output, st.integers(), st.sampled_from(["stdout", "stderr"]), TEXTS),
    st.builds(Clustered, TEXTS, TEXTS),
    st.builds(Peered, TEXTS, TEXTS),
    st.builds(Fetched, st.binary(), st.integers(), TEXTS),
    st.builds(NodeReport, st.lists(KNOWN).map(tuple), st.just(()), st.integers()),
)


class Name(str):
    """A user's subclass of `str` with overridden methods."""

    def encode(self, *_: object) -> bytes:
        raise RuntimeError

    def isascii(self) -> bool:
        raise RuntimeError


@given(TEXTS)
def test_only_unencodable_characters_are_escaped(text: str) -> None:
    changed = encodable(text)
    assert changed.encode().decode() == changed
    assert changed == "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)


@given(TEXTS)
def test_str_subclasses_become_str(text: str) -> None:
    changed = encodable(Name(text))
    assert type(changed) is str
    assert changed == encodable(text)


@given(EVENTS)
def test_all_text_of_an_event_is_encodable(event: Any) -> None:
    for text in _texts(with_encodable_text(event)):
        text.encode()


def test_event_without_changes_stays_the_same_object() -> None:
    for event in (
        Output(1, "stdout", "é"),
        Metrics(NodeMetrics(scope="machine", cpu=1.0, cpus=2.0)),
        Yielded(1, (Payload(b"x"),)),
    ):
        assert with_encodable_text(event) is event


def _nested(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(parts), st.tuples(parts), st.dictionaries(st.one_of(TEXTS, st.integers()), parts))


@given(st.recursive(st.one_of(TEXTS, st.floats(), st.binary(), st.complex_numbers(), st.sets(st.integers())), _nested))
def test_display_data_becomes_json(value: Any) -> None:
    found = plain_json(value)
    assert json.loads(json.dumps(found, ensure_ascii=False, allow_nan=False).encode()) == found


def test_recursive_display_data_becomes_json() -> None:
    value: list[Any] = []
    value += [value, {"a": value}]
    json.dumps(plain_json(value))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, tuple):
        return [text for part in value for text in _texts(part)]
    if is_dataclass(value):
        return [text for each in fields(value) for text in _texts(getattr(value, each.name))]
    return []
