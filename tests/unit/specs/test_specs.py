"""Values of a spec: accepted and refused input, and error messages."""

import pickle
import re
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skyward import Image, Nodes, Options, PipIndex, Spec, SpecError, Volume, Worker, accelerators
from skyward.scaling.snapshot import CONSOLIDATE_WITHIN, Decision, Snapshot
from skyward.specs import FrozenMap
from tests.unit.plugins.cases import Tokens

pytestmark = pytest.mark.unit

PLUGIN = Tokens()


def says(text: str) -> str:
    return f"^{re.escape(text)}$"


# Nodes: the table of the specification, and then its edges.


@pytest.mark.parametrize(
    ("value", "least", "threshold", "ceiling", "elastic"),
    [
        (4, 4, 4, 4, False),
        (Nodes(min=8, desired=4), 8, 4, 8, False),
        ((2, 16), 2, 2, 16, True),
        ([2, 16], 2, 2, 16, True),
        (Nodes(min=4, desired=2, max=16), 4, 2, 16, True),
        (Nodes(min=2, desired=5, max=16), 2, 5, 16, True),
        (Nodes(0, 4), 0, 0, 4, True),
        (Nodes(0, 4, 0), 0, 0, 4, True),
        (Nodes(0, 4, 2), 0, 2, 4, True),
        (Nodes(3, 3), 3, 3, 3, False),
    ],
)
def test_nodes_are_read_from_numbers_and_ranges(
    value: Any, least: int, threshold: int, ceiling: int, elastic: bool
) -> None:
    nodes = Nodes.of(value)
    assert (nodes.min, nodes.threshold, nodes.ceiling, nodes.elastic) == (least, threshold, ceiling, elastic)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("4", Nodes(4)),
        ("2:16", Nodes(2, 16)),
        ("3/2:16", Nodes(2, 16, 3)),
        ("3/8", Nodes(8, None, 3)),
        (" 4 ", Nodes(4)),
    ],
)
def test_nodes_are_parsed_from_text(text: str, nodes: Nodes) -> None:
    assert Nodes.parse(text) == nodes


@pytest.mark.parametrize(
    ("text", "fix"),
    [("0", "such as 0:4"), ("4:2", "write 2:4"), ("5/2", "write 2/2:2, or 5/2:5"), ("0/3", "leave it out")],
)
def test_inconsistent_text_is_refused_in_its_own_terms(text: str, fix: str) -> None:
    with pytest.raises(SpecError, match=fix) as caught:
        Nodes.parse(text)
    assert "Nodes" not in str(caught.value)
    assert "`" not in str(caught.value)


@given(st.integers(0, 99), st.none() | st.integers(0, 99), st.none() | st.integers(0, 99))
def test_nodes_text_round_trip(least: int, most: int | None, desired: int | None) -> None:
    try:
        nodes = Nodes(least, most, desired)
    except SpecError:
        assume(False)
    assert Nodes.parse(str(nodes)) == nodes
    assert 0 <= nodes.threshold <= nodes.ceiling
    assert nodes.min <= nodes.ceiling


NODES: dict[str, tuple[Callable[[], Any], str]] = {
    "zero": (
        lambda: Nodes(0),
        "Nodes min can be 0 only in an elastic pool: give `max` too, as in `Nodes(min=0, max=4)`.",
    ),
    "negative": (lambda: Nodes(-1), "Nodes min must be a whole number of at least 1, but got -1."),
    "text": (lambda: Nodes("3"), "Nodes min must be a whole number of at least 1, but got '3'."),  # type: ignore[arg-type]
    "max below min": (lambda: Nodes(3, 2), "Nodes max (2) must not be less than min (3): swap them or raise max."),
    "max zero": (lambda: Nodes(0, 0), "Nodes max must be a whole number of at least 1, but got 0."),
    "desired of fixed": (
        lambda: Nodes(4, desired=5),
        "Nodes desired (5) must not be more than min (4): lower it, or give `max` to let the pool grow.",
    ),
    "desired of elastic": (
        lambda: Nodes(2, 4, 5),
        "Nodes desired (5) must not be more than max (4): lower it, or raise max.",
    ),
    "desired zero": (lambda: Nodes(2, 4, 0), "Nodes desired must be a whole number of at least 1, but got 0."),
    "of zero": (
        lambda: Nodes.of(0),
        "nodes cannot be 0, because a fixed pool has at least one: give (minimum, maximum), as in `(0, 4)`, for nodes "
        "that start when tasks need them.",
    ),
    "of negative": (lambda: Nodes.of(-1), "nodes must be a whole number of at least 1, but got -1."),
    "of bool": (lambda: Nodes.of(True), "nodes must be a number, (min, max) or `sky.Nodes(...)`, but got True."),
    "of text": (
        lambda: Nodes.of("2:16"),  # type: ignore[arg-type]
        "nodes must be a number, (min, max) or `sky.Nodes(...)`, but got '2:16'; write `Nodes.parse('2:16')`.",
    ),
    "of text that is no size": (
        lambda: Nodes.of("many"),  # type: ignore[arg-type]
        "nodes must be a number, (min, max) or `sky.Nodes(...)`, but got 'many'.",
    ),
    "of text with bounds that are swapped": (
        lambda: Nodes.of("4:2"),  # type: ignore[arg-type]
        "nodes must be a number, (min, max) or `sky.Nodes(...)`, but got '4:2'.",
    ),
    "of three": (
        lambda: Nodes.of((1, 2, 3)),  # type: ignore[arg-type]
        "nodes must be a number, (min, max) or `sky.Nodes(...)`, but got (1, 2, 3).",
    ),
    "parse": (
        lambda: Nodes.parse("2-16"),
        "nodes must be N, MIN:MAX or DESIRED/MIN:MAX, such as 4, 2:16 or 3/2:16, but got '2-16'.",
    ),
    "parse too many": (
        lambda: Nodes.parse("9" * 20),
        "Nodes min must be at most 10,000, but got 99999999999999999999: lower it.",
    ),
    "parse zero": (
        lambda: Nodes.parse("0"),
        "a pool without nodes has to grow: give a maximum after the minimum, such as 0:4.",
    ),
}

VALUES: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "field of Worker": (Worker, {"concurency": 2}, "Worker has no field 'concurency'; did you mean 'concurrency'?"),
    "field of Nodes": (Nodes, {"q": 1}, "Nodes has no field 'q'; it has desired, max, min."),
    "concurrency": (Worker, {"concurrency": 0}, "Worker concurrency must be a whole number of at least 1, but got 0."),
    "executor": (
        Worker,
        {"executor": "threads"},
        "Worker executor must be one of 'auto', 'thread', 'process', but got 'threads'.",
    ),
    "selection": (Options, {"selection": "best"}, "selection must be one of 'cheapest', 'first', but got 'best'."),
    "worker": (
        Options,
        {"worker": 2},
        "worker must be Worker, as in `worker=sky.Worker(concurrency=2)`, but got 2.",
    ),
    "decision log": (
        Options,
        {"decision_log": 3},
        "decision_log must be a file, as in `decision_log='decisions.jsonl'`, but got 3.",
    ),
    "empty decision log": (
        Options,
        {"decision_log": " "},
        "decision_log must be a file, as in `decision_log='decisions.jsonl'`, but got ' '.",
    ),
    "cooldown": (Options, {"autoscale_cooldown": -1}, "autoscale_cooldown must be a number of at least 0, but got -1."),
    "target by another name": (
        Options,
        {"target_wait": "quick"},
        "target_wait must be 'cheap', 'balanced' or 'fast', or a number of seconds, but got 'quick'.",
    ),
    "target": (Options, {"target_wait": -1}, "target_wait must be a number of at least 0, but got -1."),
    "waiting cost": (
        Options,
        {"waiting_cost": -1},
        "waiting_cost must be a number of at least 0, or None, but got -1.",
    ),
    "time to consolidate": (
        Options,
        {"consolidate_within": None},
        "consolidate_within must be a number of at least 0, but got None.",
    ),
    "tick": (
        Options,
        {"reconcile_tick_interval": 0},
        "reconcile_tick_interval must be a positive number, but got 0.",
    ),
    "default timeout": (
        Options,
        {"default_compute_timeout": None},
        "default_compute_timeout must be a positive number, but got None.",
    ),
    "ssh timeout": (Options, {"ssh_timeout": "9"}, "ssh_timeout must be a positive number, or None, but got '9'."),
    "attempts": (
        Options,
        {"max_provision_attempts": 0},
        "max_provision_attempts must be a whole number of at least 1, but got 0.",
    ),
    "retries": (
        Options,
        {"retry_on_interruption": -1},
        "retry_on_interruption must be a whole number of at least 0, but got -1.",
    ),
    "console": (
        Options,
        {"console": "loud"},
        "console must be one of 'rich', 'minimal', 'log', 'silent', but got 'loud'.",
    ),
    "cluster": (Options, {"cluster": "no"}, "cluster must be bool, as in `cluster=False`, but got 'no'."),
    "policy": (Options, {"policy": "presure"}, "There is no scaling policy 'presure'; did you mean 'pressure'?"),
    "policy of no kind": (
        Options,
        {"policy": 3},
        "The scaling policy must be a name, as in `policy='adaptive'`, or an object with `name`, `interval` and "
        "`decide(snapshot)`, but 3 has no 'name'.",
    ),
    "budget": (Options, {"budget": 0}, "budget must be a positive number, or None, but got 0."),
    "max nodes": (Options, {"max_nodes": 0}, "max_nodes must be a whole number of at least 1, but got 0."),
    "speed": (
        Options,
        {"upscaling_speed": -0.5},
        "upscaling_speed must be a positive number, or None, but got -0.5.",
    ),
    "launches": (
        Options,
        {"max_concurrent_launches": 0},
        "max_concurrent_launches must be a whole number of at least 1, but got 0.",
    ),
    "idle": (Spec, {"idle_timeout": -1}, "idle_timeout must be a number of at least 0, or None, but got -1."),
    "resources": (Spec, {"resources": {"GPU": -1}}, "resources['GPU'] must be a number of at least 0, but got -1."),
    "capabilities": (
        Spec,
        {"capabilities": "gpu"},
        "capabilities must be a set of names, as in `capabilities={'gpu'}`, but got 'gpu'.",
    ),
    "pip": (Image, {"pip": "torch"}, "pip must be a list, but got the string 'torch'; write `pip=['torch']`."),
    "pip number": (
        Image,
        {"pip": ["torch", 3]},
        "pip must be a list of strings, as in `pip=['numpy', 'torch']`, but it has 3.",
    ),
    "apt": (Image, {"apt": 3}, "apt must be a list of strings, as in `apt=['ffmpeg']`, but got 3."),
    "env": (Image, {"env": ["A"]}, "env must be a dict, as in `env={'KERAS_BACKEND': 'jax'}`, but got ['A']."),
    "env number": (Image, {"env": {"N": 1}}, "env must set N to a string, but it is int; write N='...'."),
    "env name": (
        Image,
        {"env": {"A B": "1"}},
        "env must have names of shell variables (letters, digits and _), but it has 'A B'.",
    ),
    "old python": (
        Image,
        {"python": "3.11"},
        "python must be 3.12 or newer, which Skyward needs on a node, but got 3.11.",
    ),
    "python number": (
        Image,
        {"python": 3.13},
        "python must be a version, such as '3.13', or 'auto', but got 3.13.",
    ),
    "index": (
        Image,
        {"pip_indexes": ["https://host"]},
        "pip_indexes must be PipIndex, as in `pip_indexes=[sky.PipIndex('https://host/simple')]`, "
        "but got 'https://host'.",
    ),
    "index url": (
        PipIndex,
        {"url": "pypi"},
        "PipIndex url must be an address, such as 'https://host/simple', but got 'pypi'.",
    ),
    "relative mount": (
        Volume,
        {"bucket": "b", "mount": "data"},
        "Volume mount must be an absolute path, such as '/data', but got 'data'.",
    ),
    "bucket": (Volume, {"bucket": "", "mount": "/d"}, "Volume bucket must be the name of a bucket, but got ''."),
    "provider class": (
        Spec,
        {"provider": Worker},
        "provider must be the settings of a provider, but got the class: write `Worker()`.",
    ),
    "accelerator not called": (
        Spec,
        {"accelerator": accelerators.L4},
        "accelerator must be an accelerator: call it, `L4()`.",
    ),
    "allocation": (
        Spec,
        {"allocation": "spots"},
        "allocation must be one of 'spot-if-available', 'spot', 'on-demand', 'cheapest', but got 'spots'.",
    ),
    "architecture": (
        Spec,
        {"architecture": "x86"},
        "architecture must be one of 'x86_64', 'arm64' or None, but got 'x86'.",
    ),
    "vcpus": (Spec, {"vcpus": "4"}, "vcpus must be a positive number, or None, but got '4'."),
    "image": (Spec, {"image": "a"}, "image must be Image, as in `image=sky.Image(pip=['numpy'])`, but got 'a'."),
    "two mounts": (
        Spec,
        {"volumes": [Volume("a", "/d"), Volume("b", "/d/")]},
        "volumes mount two buckets at '/d': give each a mount of its own.",
    ),
    "plugins": (
        Spec,
        {"plugins": "torch"},
        "plugins must be a list, as in `plugins=[sky.plugins.torch()]`, but got 'torch'.",
    ),
}


@pytest.mark.parametrize("case", NODES)
def test_invalid_nodes_are_refused(case: str) -> None:
    act, expected = NODES[case]
    with pytest.raises(SpecError, match=says(expected)):
        act()


@pytest.mark.parametrize("case", VALUES)
def test_invalid_fields_are_refused(case: str) -> None:
    make, given_fields, expected = VALUES[case]
    with pytest.raises(SpecError, match=says(expected)):
        make(**given_fields)


def test_values_by_position_are_refused() -> None:
    make: Any = Spec  # what mypy says of it depends on whether Spec comes from its cache
    with pytest.raises(SpecError, match=r"^Spec got too many values by position; name its fields: provider, "):
        make(3)


@pytest.mark.parametrize(
    "mount", ["/", "//", "/opt", "/opt/", "/opt/skyward", "/opt/skyward/x", "/root", "/data/../tmp"]
)
def test_mounts_over_folders_of_the_node_are_refused(mount: str) -> None:
    expected = f"Volume mount {mount!r} would hide a folder that the node needs: use another path, such as '/data'."
    with pytest.raises(SpecError, match=says(expected)):
        Volume("bucket", mount)


@pytest.mark.parametrize(("mount", "path"), [("/data", "/data"), ("/data/", "/data"), ("/opt/data", "/opt/data")])
def test_mount_of_a_volume_is_normalized(mount: str, path: str) -> None:
    assert Volume("bucket", mount).mount == path


def test_defaults_of_the_specification() -> None:
    options, spec = Options(), Spec()
    assert (options.autoscale_cooldown, options.autoscale_idle_timeout, options.reconcile_tick_interval) == (
        30, None, 15,
    )  # fmt: skip
    assert (options.target_wait, options.waiting_cost, options.consolidate_within) == ("balanced", None, 600)
    assert options.consolidate_within == CONSOLIDATE_WITHIN
    assert (options.retry_on_interruption, options.default_compute_timeout, options.shutdown_timeout) == (3, 300, 120)
    assert (options.selection, options.cluster, options.worker) == ("cheapest", True, Worker())
    assert (options.policy, options.budget, options.max_nodes) == ("adaptive", None, None)
    assert (options.upscaling_speed, options.max_concurrent_launches) == (None, 100)
    assert (spec.nodes, spec.allocation, spec.ttl, spec.provider) == (Nodes(1), "spot-if-available", 600, None)
    assert (Worker().concurrency, Worker().resolved_executor) == (1, "thread")
    assert Worker(executor="process").resolved_executor == "process"


def test_policy_is_a_name_or_an_object() -> None:
    class Own:
        name, interval = "own", None

        def decide(self, snapshot: Snapshot) -> Decision:
            return Decision(snapshot.desired, "as it is")

    own = Own()
    assert Options(policy=own).policy is own
    assert Options(policy="no").policy == "no"


@pytest.mark.parametrize("interval", [-1, 0, float("nan"), float("inf"), "x", True])
def test_policy_with_an_interval_that_is_no_time_is_refused(interval: object) -> None:
    class Own:
        name = "own"

        def __init__(self) -> None:
            self.interval = interval

        def decide(self, snapshot: Snapshot) -> Decision:
            return Decision(snapshot.desired, "as it is")

    with pytest.raises(SpecError, match="^interval of the scaling policy must be a (finite )?positive number, or None"):
        Options(policy=Own())  # type: ignore[arg-type]  # intended


def test_worker_none_is_the_default() -> None:
    assert Options(worker=None).worker == Worker()  # type: ignore[arg-type]


def test_spec_reads_short_forms() -> None:
    spec = Spec(nodes=(2, 4), accelerator="A100:2", volumes=[Volume("b", "/d")], plugins=[PLUGIN])
    assert spec.nodes == Nodes(2, 4)
    assert spec.accelerator == accelerators.A100(count=2)
    assert (spec.volumes, spec.plugins) == ((Volume("b", "/d"),), (PLUGIN,))


@pytest.mark.parametrize(
    "value",
    [
        Nodes(2, 4),
        Worker(2),
        Options(cluster=False),
        Image(pip=["a"], env={"A": "1"}, pip_indexes=[PipIndex("https://host", ["a"])]),
        Volume("b", "/d"),
        Spec(nodes=2, accelerator="T4", image=Image(env={"A": "1"}), resources={"slots": 2}, capabilities={"fast"}),
        FrozenMap({"a": 1}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_hashable_and_picklable(value: Any) -> None:
    copy = pickle.loads(pickle.dumps(value))
    assert copy == value
    assert hash(copy) == hash(value)
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        value.anything = 1


def test_frozen_map_is_a_mapping() -> None:
    frozen = FrozenMap({"a": 1, "b": 2})
    assert frozen == {"b": 2, "a": 1} == dict(frozen)
    assert (frozen["a"], len(frozen), repr(frozen)) == (1, 2, "{'a': 1, 'b': 2}")
    assert hash(FrozenMap([("b", 2), ("a", 1)])) == hash(frozen)


def test_image_lists_become_tuples() -> None:
    image = Image(pip=["a"], apt=iter(["b"]), includes=["c"], metrics=[1])
    assert (image.pip, image.apt, image.includes, image.metrics) == (("a",), ("b",), ("c",), (1,))


def test_image_hashes_depend_on_their_fields_only() -> None:
    image = Image(pip=["a"], env={"A": "1", "B": "2"})
    assert re.fullmatch("[0-9a-f]{12}", image.env_hash())
    assert image.env_hash() == Image(pip=("a",), env={"B": "2", "A": "1"}).env_hash()
    assert image.env_hash() != Image(pip=("b",), env={"A": "1", "B": "2"}).env_hash()
    assert image.env_hash() == Image(pip=["a"], env={"A": "1", "B": "2"}, bootstrap_timeout=9).env_hash()
    assert image.content_hash() != image.env_hash()


def test_auto_python_is_the_version_of_this_process() -> None:
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert Image().resolved_python == ours
    assert Image().env_hash() == Image(python=ours).env_hash()


def test_fields_are_those_of_the_reference() -> None:
    assert [field.name for field in fields(Spec)] == [
        "provider", "accelerator", "nodes", "vcpus", "memory_gb", "disk_gb", "architecture", "allocation", "image",
        "region", "max_hourly_cost", "ttl", "volumes", "plugins", "resources", "capabilities", "idle_timeout", "warm",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["nonsense", "_given"])
def test_no_private_field_is_known_or_listed(name: str) -> None:
    settings: dict[str, Any] = {name: 1}
    with pytest.raises(SpecError, match=f"^Options has no field '{name}'; it has autoscale_cooldown, "):
        Options(**settings)
