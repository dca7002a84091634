"""The arguments of `Compute`: which specs and options they mean."""

import re
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from skyward import Nodes, Options, Spec, SpecError, Worker
from skyward.specs import ComputeFields, OptionFields, SpecFields, resolve

pytestmark = pytest.mark.unit


def test_nothing_is_one_default_spec() -> None:
    assert resolve((), None, {}) == ((Spec(),), Options())


def test_flat_fields_of_both() -> None:
    specs, options = resolve((), None, {"nodes": (2, 16), "autoscale_cooldown": 5.0, "worker": Worker(2)})
    assert specs == (Spec(nodes=Nodes(2, 16)),)
    assert options == Options(autoscale_cooldown=5.0, worker=Worker(2))


def test_specs_by_position_and_knobs_beside() -> None:
    first, second = Spec(nodes=1), Spec(nodes=2)
    assert resolve((first, second), None, {"selection": "first"}) == ((first, second), Options(selection="first"))


def test_options_and_other_knobs_are_joined() -> None:
    _, options = resolve((), Options(cluster=False), {"worker": Worker(2)}, name="training")
    assert options == Options(cluster=False, worker=Worker(2))


def test_a_knob_given_twice_even_equal_to_the_default() -> None:
    expected = "autoscale_cooldown is given twice, on Compute and in options: keep one of them."
    with pytest.raises(SpecError, match=re.escape(expected)):
        resolve((), Options(autoscale_cooldown=30.0), {"autoscale_cooldown": 30.0})


@pytest.mark.parametrize(
    ("specs", "options", "given", "name", "expected"),
    [
        ((), None, {"acelerator": 1}, None, "Compute has no argument 'acelerator'; did you mean 'accelerator'?"),
        ((), None, {"gpu": "T4"}, None, "Compute has no argument 'gpu'; write `accelerator='A100'`."),
        (
            (),
            None,
            {"concurrency": 2},
            None,
            "Compute has no argument 'concurrency'; write `worker=sky.Worker(concurrency=2)`.",
        ),
        (
            (Spec(),),
            None,
            {"nodes": 2, "region": "x"},
            None,
            "Compute got specs and also nodes, region: put nodes, region inside each `sky.Spec(...)`.",
        ),
        ((3,), None, {}, None, "Compute takes only `sky.Spec(...)` by position, but got 3; write `provider=...`."),
        ((), 3, {}, None, "options must be `sky.Options(...)`, but got 3."),
        (
            (),
            None,
            {},
            "my pool",
            "name must be letters, digits, '-', '_' and '.', at most 63 of them, such as 'training', "
            "but got 'my pool'.",
        ),
    ],
)
def test_refused(specs: Any, options: Any, given: dict[str, Any], name: str | None, expected: str) -> None:
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        resolve(specs, options, given, name)


def test_options_by_position() -> None:
    with pytest.raises(SpecError, match=r"write `options=\.\.\.`"):
        resolve((Options(),), None, {})  # type: ignore[arg-type]


def test_unknown_argument_without_a_close_one() -> None:
    with pytest.raises(SpecError, match=r"^Compute has no argument 'zzzz'; it has accelerator, allocation, "):
        resolve((), None, {"zzzz": 1})


def test_typed_keywords_are_the_fields() -> None:
    assert get_type_hints(SpecFields).keys() == {field.name for field in fields(Spec)}
    assert get_type_hints(OptionFields).keys() == {field.name for field in fields(Options) if field.init}
    assert ComputeFields.__optional_keys__ == SpecFields.__optional_keys__ | OptionFields.__optional_keys__
