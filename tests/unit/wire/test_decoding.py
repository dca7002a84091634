"""Decoding of JSON against declared types."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

import pytest

from skyward.providers.protocol import Instance, LocalAccess, SSHAccess
from skyward.values.validation import FrozenMap
from skyward.wire.protocol.decoding import LONGEST, Malformed, amount, host, reader_of, record, sentence, whole

pytestmark = pytest.mark.unit

type Level = Literal["low", "high"]
type Price = Annotated[float, amount]


@dataclass(frozen=True)
class Part:
    name: str
    price: Price = 0.0


@dataclass(frozen=True)
class Whole:
    number: int
    level: Level = "low"
    part: Part | None = None
    names: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict)
    amounts: FrozenMap[str, Price] = field(default_factory=FrozenMap)
    is_on: bool = False


COMPLETE: dict[str, Any] = {
    "number": 3,
    "level": "high",
    "part": {"name": "p", "price": 2},
    "names": ["a", "b"],
    "tags": ["t", "t"],
    "options": {"--nodes": "2"},
    "amounts": {"GPU": 1},
    "is_on": True,
}


def test_object_is_decoded_by_the_declared_types() -> None:
    assert record(Whole)(COMPLETE, "it") == Whole(
        3, "high", Part("p", 2.0), ("a", "b"), frozenset({"t"}), {"--nodes": "2"}, FrozenMap({"GPU": 1.0}), True
    )


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("number", True, "Whole.number is not a whole number from -9007199254740991 to 9007199254740991."),
        ("number", 2**53, "Whole.number is not a whole number from -9007199254740991 to 9007199254740991."),
        ("number", 3.0, "Whole.number is not a whole number from -9007199254740991 to 9007199254740991."),
        ("level", "middle", "Whole.level is not one of low, high."),
        ("level", ["low"], "Whole.level is not one of low, high."),
        ("part", [], "Whole.part is not a JSON object."),
        ("part", {"name": "p", "price": -1}, "Part.price is not a number of at least 0."),
        ("part", {"name": "p"}, "Part lacks field 'price'."),
        ("part", {"name": "p", "price": 1, "more": 2}, "Part has no field 'more'."),
        ("names", "ab", "Whole.names is not a list of at most 1000."),
        ("names", ["a"] * 1001, "Whole.names is not a list of at most 1000."),
        ("names", [1], f"an entry of Whole.names is not a text of at most {LONGEST} characters."),
        ("tags", [[]], f"an entry of Whole.tags is not a text of at most {LONGEST} characters."),
        ("options", {"a": 1}, f"a value in Whole.options is not a text of at most {LONGEST} characters."),
        ("options", {str(n): "" for n in range(1001)}, "Whole.options is not an object of at most 1000 entries."),
        ("amounts", {"GPU": float("nan")}, "a value in Whole.amounts is not a number of at least 0."),
        ("is_on", 1, "Whole.is_on is not true or false."),
    ],
)
def test_error_names_the_field_and_the_limit(field: str, value: object, says: str) -> None:
    with pytest.raises(Malformed) as caught:
        record(Whole)({**COMPLETE, field: value}, "it")
    assert str(caught.value) == says


def test_fields_with_a_default_may_be_missing_unless_the_object_is_exact() -> None:
    assert record(Whole, exact=False)({"number": 1, "unknown": 2}, "it") == Whole(1)
    with pytest.raises(Malformed, match="^Whole lacks field 'number'.$"):
        record(Whole, exact=False)({}, "it")
    with pytest.raises(Malformed, match="^Whole lacks field 'amounts'.$"):
        record(Whole)({"number": 1}, "it")


def test_reader_of_a_field_replaces_that_of_its_type() -> None:
    read = record(Part, exact=False, omit={"price"}, name=host)
    assert read({"name": "h", "price": 3}, "it") == Part("h")
    with pytest.raises(Malformed, match="without spaces that does not start with '-'"):
        read({"name": "-oProxyCommand=x"}, "it")


def test_type_without_a_reader_is_refused_when_it_is_declared() -> None:
    for kind in (float, object, int | str, tuple[int, int], list[int]):
        with pytest.raises(TypeError, match="annotate it with a reader"):
            reader_of(kind)
    assert reader_of(Annotated[int, whole(0, 3)] | None)(None, "it") is None
    assert reader_of(Annotated[str, sentence])("one\ntwo", "it") == "one\ntwo"


def test_fields_of_a_machine_that_an_adapter_sets_are_known() -> None:
    """A new field needs a decision: the reader of its type may allow more than an adapter should set."""
    assert [each.name for each in fields(LocalAccess)] == ["host", "directory", "python"]
    assert [each.name for each in fields(SSHAccess)] == [
        *("host", "port", "user", "client_keys", "known_hosts", "host_key", "config", "directory", "grace", "python"),
        *("answer_within", "retry_every", "lent"),
    ]
    assert [each.name for each in fields(Instance)] == [
        *("id", "status", "access", "address", "public_address", "interface", "spot", "hourly_price"),
        *("detail", "notices"),
    ]
