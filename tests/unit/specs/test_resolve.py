"""Resolution of the arguments of `Compute` into specs and options."""

import re
from dataclasses import fields
from typing import Any

import pytest

from skyward import Nodes, Options, Spec, SpecError, Worker
from skyward.specs import ComputeFields, OptionFields, Resolved, SpecFields, resolve_groups

pytestmark = pytest.mark.unit

CPU, GPU = Spec(nodes=(0, 4), vcpus=4), Spec(nodes=(1, 2), accelerator="T4")


def resolve(*args: Any) -> tuple[tuple[Spec, ...], Options]:
    """Return the specs of the only group, and the options."""
    resolved = resolve_groups(*args)
    assert list(resolved.groups) == ["default"]
    return resolved.groups["default"], resolved.options


def with_groups(groups: Any, **given: Any) -> Resolved:
    return resolve_groups((), None, {"groups": groups, **given})


def test_no_arguments_mean_one_default_spec() -> None:
    assert resolve((), None, {}) == ((Spec(),), Options())


def test_keywords_are_divided_into_spec_and_options() -> None:
    specs, options = resolve((), None, {"nodes": (2, 16), "autoscale_cooldown": 5.0, "worker": Worker(2)})
    assert specs == (Spec(nodes=Nodes(2, 16)),)
    assert options == Options(autoscale_cooldown=5.0, worker=Worker(2))


def test_positional_specs_with_options_as_keywords() -> None:
    first, second = Spec(region="a"), Spec(region="b")
    assert resolve((first, second), None, {"selection": "first"}) == ((first, second), Options(selection="first"))


def test_options_and_keywords_are_merged() -> None:
    _, options = resolve((), Options(cluster=False), {"worker": Worker(2)}, "training")
    assert options == Options(cluster=False, worker=Worker(2))


def test_option_given_twice_is_refused_even_with_equal_values() -> None:
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
        (
            (Spec(nodes=1), Spec(nodes=(1, 4))),
            None,
            {},
            None,
            "The specs of the pool are alternatives for the same nodes, but have nodes 1 and 1:4: give all of them the "
            "same `nodes=`.",
        ),
        (
            (),
            None,
            {"groups": {"a": CPU, "b": [GPU, CPU]}},
            None,
            "The specs of groups['b'] are alternatives for the same nodes, but have nodes 1:2 and 0:4: give all of "
            "them the same `nodes=`.",
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
def test_conflicting_arguments_are_refused(
    specs: Any, options: Any, given: dict[str, Any], name: str | None, expected: str
) -> None:
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        resolve(specs, options, given, name)


def test_options_by_position_are_refused() -> None:
    with pytest.raises(SpecError, match=r"write `options=\.\.\.`"):
        resolve((Options(),), None, {})


def test_unknown_argument_without_a_close_match_lists_all_arguments() -> None:
    with pytest.raises(SpecError, match=r"^Compute has no argument 'zzzz'; it has accelerator, allocation, "):
        resolve((), None, {"zzzz": 1})


def test_typed_keywords_are_the_fields() -> None:
    assert SpecFields.__optional_keys__ == {field.name for field in fields(Spec)}
    assert OptionFields.__optional_keys__ == {field.name for field in fields(Options) if field.init}
    both = SpecFields.__optional_keys__ | OptionFields.__optional_keys__
    assert ComputeFields.__optional_keys__ == both | {"groups"}


# Groups.


def test_groups_keep_order_and_alternatives() -> None:
    other = Spec(nodes=(1, 2), accelerator="L4")
    resolved = with_groups({"gpu": [GPU, other], "cpu": CPU}, budget=5)
    assert dict(resolved.groups) == {"gpu": (GPU, other), "cpu": (CPU,)}
    assert list(resolved.groups) == ["gpu", "cpu"]
    assert resolved.options == Options(budget=5)


def test_group_with_only_capabilities() -> None:
    spec = Spec(capabilities={"fast"})
    assert with_groups({"fast": spec}).groups["fast"] == (spec,)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (
            {},
            "groups must be specs by name, as in `groups={'cpu': sky.Spec(vcpus=4), "
            "'gpu': sky.Spec(accelerator='T4')}`, but got {}.",
        ),
        (
            3,
            "groups must be specs by name, as in `groups={'cpu': sky.Spec(vcpus=4), "
            "'gpu': sky.Spec(accelerator='T4')}`, but got 3.",
        ),
        (
            {"my gpu": GPU},
            "a name in groups must be letters, digits, '-', '_' and '.', at most 63 of them, such as 'gpu', "
            "but got 'my gpu'.",
        ),
        (
            {3: GPU},
            "a name in groups must be letters, digits, '-', '_' and '.', at most 63 of them, such as 'gpu', but got 3.",
        ),
        ({"gpu": "T4"}, "groups['gpu'] must be `sky.Spec(...)`, or a list of them, but got 'T4'."),
        ({"gpu": [GPU, 3]}, "groups['gpu'] must be `sky.Spec(...)`, or a list of them, but got 3."),
        ({"gpu": []}, "groups['gpu'] must be `sky.Spec(...)`, or a list of them, but got []."),
        (
            {"cpu": CPU, "other": Spec(nodes=2)},
            "groups['other'] has no resources, so no task can request it: give its Spec `vcpus=`, `accelerator=`, or "
            "`resources=` such as {'CPU': 4}.",
        ),
    ],
)
def test_invalid_groups_are_refused(groups: Any, expected: str) -> None:
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        with_groups(groups)


def test_groups_and_specs_exclude_each_other() -> None:
    expected = "Compute got groups and also specs: put specs inside each group of groups."
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        resolve_groups((CPU,), None, {"groups": {"cpu": CPU}})
    expected = "Compute got groups and also nodes, region: put nodes, region inside each `sky.Spec(...)` of groups."
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        with_groups({"cpu": CPU}, nodes=2, region="x")


@pytest.mark.parametrize(
    ("given", "fewest"),
    [
        ({"nodes": 3}, 3),
        ({"nodes": Nodes(1, 8, desired=3)}, 3),
        ({"groups": {"cpu": Spec(nodes=(1, 4), vcpus=1), "gpu": Spec(nodes=2, accelerator="T4")}}, 3),
    ],
)
def test_initial_nodes_within_max_nodes(given: dict[str, Any], fewest: int) -> None:
    assert resolve_groups((), None, {**given, "max_nodes": fewest}).options.max_nodes == fewest
    expected = (
        f"max_nodes (2) must not be less than the {fewest} nodes that the pool starts with: raise max_nodes, or lower "
        "`nodes`."
    )
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        resolve_groups((), None, {**given, "max_nodes": 2})
