"""Validation: any input gives a valid value or a one-sentence SpecError."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyward as sky
from skyward.accelerators import Accelerator, from_name, parse_accelerator
from skyward.commands import reading
from skyward.errors import UsageError
from skyward.functions.pending import check_timeout
from skyward.specs import Needs, Nodes
from skyward.values import limits
from skyward.values.validation import shown

CASES: list[tuple[Callable[..., object], str, str]] = [
    (Nodes, "min", "nodes"),
    (lambda max: Nodes(1, max), "max", "nodes"),
    (lambda nodes: sky.Spec(nodes=nodes), "nodes", "nodes"),
    (sky.Worker, "concurrency", "whole"),
    (sky.Worker, "backlog_gb", "zero"),
    (sky.Spec, "vcpus", "number"),
    (sky.Spec, "memory_gb", "number"),
    (sky.Spec, "disk_gb", "number"),
    (sky.Spec, "max_hourly_cost", "number"),
    (sky.Spec, "ttl", "zero"),
    (sky.Spec, "idle_timeout", "zero"),
    (lambda CPU: sky.Spec(resources={"CPU": CPU}), "CPU", "zero"),
    (lambda count: Accelerator("A100", count=count), "count", "number"),
    (lambda count: sky.accelerators.H100(count=count), "count", "number"),
    (sky.Image, "bootstrap_timeout", "number"),
    (sky.Options, "provision_timeout", "number"),
    (sky.Options, "ssh_timeout", "number"),
    (sky.Options, "bootstrap_timeout", "number"),
    (sky.Options, "ssh_retry_interval", "number"),
    (sky.Options, "provision_retry_delay", "zero"),
    (sky.Options, "max_provision_attempts", "whole"),
    (sky.Options, "default_compute_timeout", "number"),
    (sky.Options, "autoscale_cooldown", "zero"),
    (sky.Options, "autoscale_idle_timeout", "zero"),
    (sky.Options, "target_wait", "zero"),
    (sky.Options, "waiting_cost", "zero"),
    (sky.Options, "consolidate_within", "zero"),
    (sky.Options, "reconcile_tick_interval", "number"),
    (sky.Options, "shutdown_timeout", "number"),
    (sky.Options, "retry_on_interruption", "whole or zero"),
    (sky.Options, "budget", "number"),
    (sky.Options, "max_nodes", "whole"),
    (sky.Options, "upscaling_speed", "number"),
    (sky.Options, "max_concurrent_launches", "whole"),
    (sky.Options, "metrics_interval", "number"),
    (sky.Local, "hourly_price", "zero"),
    (sky.Local, "boot_time", "zero"),
    (sky.Local, "fail_rate", "zero"),
    (sky.Local, "seed", "whole or zero"),
    (lambda grace: sky.SSH(hosts=["a"], grace=grace), "grace", "number"),
    (sky.Container, "hourly_price", "zero"),
    (sky.Container, "grace", "number"),
    (sky.Adapter, "connect_timeout", "zero"),
    (sky.Adapter, "silence", "number"),
    (lambda timeout: sky.function(timeout=timeout), "timeout", "number"),
    (lambda timeout: check_timeout(timeout), "timeout", "number"),
    (lambda GPU: Needs(resources={"GPU": GPU}), "GPU", "zero"),
]
"""Constructors that take a number, the name of the field, and the kind of number."""

HUGE = [10**400, 10**5000, 1e300, 10**30]
NEVER = [nan, inf, -inf, -1, -0.5, True, "1", [1], *HUGE]


@pytest.mark.parametrize(("make", "name", "kind"), CASES, ids=lambda each: each if isinstance(each, str) else "")
def test_invalid_numbers_are_refused(make: Callable[..., object], name: str, kind: str) -> None:
    zero = [] if "zero" in kind or kind == "nodes" else [0, 0.0]
    fraction = [1.5, 1.0] if kind.startswith(("whole", "nodes")) else []
    for value in (*NEVER, *zero, *fraction):
        with pytest.raises(UsageError) as caught:
            make(**{name: value})
        said = str(caught.value)
        assert "\n" not in said
        assert len(said) < 400
        assert name in said or kind == "nodes"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: sky.Spec(nodes=10**30),
            "nodes must be at most 10,000, but got 1000000000000000000000000000000: lower",
        ),
        (
            lambda: sky.Worker(concurrency=10**9),
            "Worker concurrency must be at most 4,096, but got 1000000000: lower it.",
        ),
        (lambda: sky.Spec(ttl=1e30), "ttl must be at most 315,360,000, but got 1e+30: lower it."),
        (
            lambda: sky.Options(metrics_interval=1e-9),
            "metrics_interval must be at least 0.01, but got 1e-09: raise it.",
        ),
        (lambda: Nodes.parse("99999:100000"), "Nodes min must be at most 10,000, but got 99999: lower it."),
        (lambda: parse_accelerator("A100:99999"), "Accelerator count must be at most 10,000, but got 99999: lower it."),
        (
            lambda: sky.Compute(groups={name: sky.Spec(vcpus=1, nodes=6000) for name in "ab"}),
            "groups start with 12,000 nodes, and a pool has 10,000 at most: lower `nodes`.",
        ),
        (lambda: reading.duration("99999999d"), "a duration must be at most 315,360,000, but got"),
        (lambda: reading.size("9" * 400), "a size must be at most 1,000,000 GiB, but got"),
    ],
)
def test_error_names_the_limit(make: Callable[[], object], said: str) -> None:
    with pytest.raises(sky.SpecError) as caught:
        make()
    assert str(caught.value).startswith(said)


def test_numbers_at_the_limits_are_accepted() -> None:
    assert sky.Spec(nodes=limits.NODES, ttl=limits.SECONDS, vcpus=limits.VCPUS, memory_gb=limits.GIB)
    assert sky.Worker(concurrency=limits.CONCURRENCY)
    assert sky.Options(reconcile_tick_interval=limits.INTERVAL, budget=limits.USD)


@pytest.mark.parametrize("text", ["9" * 5000, "1:" + "9" * 5000, "0" * 50, "1" * 19])
def test_strings_with_too_many_digits_are_refused(text: str) -> None:
    for read in (Nodes.parse, parse_accelerator, lambda text: parse_accelerator(f"A100:{text}")):
        with pytest.raises(sky.SpecError):
            read(text)
    with pytest.raises(sky.SpecError):
        sky.SSH(hosts=[f"host:{text.replace(':', '')}"])
    with pytest.raises(sky.SpecError):
        sky.Image(python=f"3.{text}")


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"SKYWARD_LEASE": "1"}, "env must not set SKYWARD_LEASE, which is reserved for Skyward: use another name."),
        ({"COMPUTE_POOL": "{}"}, "env must not set COMPUTE_POOL, which is reserved for Skyward: use another name."),
        ({"PATH": ""}, "env sets PATH to a value that keeps workers from starting: it must be absolute paths"),
        ({"PATH": "/bin:bin"}, "env sets PATH to a value that keeps workers from starting: it must be absolute paths"),
        ({"PYTHONPATH": "src"}, "env sets PYTHONPATH to a value that keeps workers from starting"),
        (
            {"PYTHONHOME": "/usr"},
            "env must not set PYTHONHOME, which keeps workers from starting: choose the interpreter",
        ),
        ({"PYTHONIOENCODING": "klingon"}, "env sets PYTHONIOENCODING to a value that keeps workers from starting"),
        ({"PYTHONUTF8": "yes"}, "env sets PYTHONUTF8 to a value that keeps workers from starting: it must be 0 or 1."),
        ({"PYTHONHASHSEED": "-1"}, "env sets PYTHONHASHSEED to a value that keeps workers from starting"),
        ({"A=B": "x"}, "env must have names of shell variables (letters, digits and _), but it has 'A=B'."),
        ({"A\0": "x"}, "env must have names of shell variables"),
        ({"A": "x\0secret"}, "env sets A to a string with a NUL or a lone surrogate"),
    ],
)
def test_variables_that_break_workers_are_refused(env: dict[str, str], said: str) -> None:
    with pytest.raises(sky.SpecError) as caught:
        sky.Image(env=env)
    assert str(caught.value).startswith(said)
    assert "secret" not in str(caught.value)


def test_computed_variables_must_not_be_reserved() -> None:
    with pytest.raises(sky.SpecError, match="shell_vars must not set SKYWARD_TOKEN, which is reserved for Skyward"):
        sky.Image(shell_vars={"SKYWARD_TOKEN": "cat secret"})


def test_variables_that_affect_only_tasks_are_accepted() -> None:
    env = {
        "LD_PRELOAD": "/lib/mine.so",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": "/data/lib",
        "PYTHONHASHSEED": "random",
        "PYTHONIOENCODING": "utf-8:backslashreplace",
        "PYTHONUNBUFFERED": "1",
    }
    assert dict(sky.Image(env=env).env) == env


class Rude:
    """Value whose `repr` raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@dataclass(frozen=True)
class Sample:
    """Index of one of `ODD`, whose values hypothesis cannot print."""

    number: int


ODD = [
    *NEVER, Rude(), nested(100_000), object, len, {}, (), {1: 2}, [None], {"a": object()}, {"a": 1e400}, ..., "1:2",
    "\ud800", "", "\0", "a=b", b"x", {"PATH": ""}, None, 0, 1e308, 5e-324, ["a" * 10_000],
]  # fmt: skip  # one value a line says no more
VALUES = (
    st.integers(0, len(ODD) - 1).map(lambda number: Sample(number))
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.text(max_size=3), max_size=2)
    | st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), max_size=2)
)
REQUIRED: dict[Any, dict[str, Any]] = {
    sky.Spec: {},
    sky.Image: {},
    sky.Options: {},
    sky.Worker: {},
    sky.Nodes: {"min": 1},
    sky.Volume: {"bucket": "b", "mount": "/x"},
    sky.PipIndex: {"url": "https://index.invalid"},
    Accelerator: {"name": "A100"},
    Needs: {},
    sky.Local: {},
    sky.SSH: {"hosts": ["a"]},
    sky.Container: {},
    sky.Adapter: {},
}
FIELDS = [(kind, field.name) for kind in REQUIRED for field in fields(kind) if field.init]


@given(st.sampled_from(FIELDS), VALUES)
def test_any_field_value_is_valid_or_refused(field: tuple[Any, str], value: Any) -> None:
    kind, name = field
    refused = ""
    try:
        made = kind(**{**REQUIRED[kind], name: ODD[value.number] if isinstance(value, Sample) else value})
    except UsageError as error:
        refused = str(error)
    else:
        assert shown(made)
    assert len(refused) < 1000


@given(st.text(max_size=12) | st.from_regex(r"[0-9/:xXA-H. -]{1,12}", fullmatch=True))
def test_any_string_is_parsed_or_refused(text: str) -> None:
    for read in (Nodes.parse, parse_accelerator, from_name):
        with suppress(UsageError):
            read(text)
    options = (reading.duration, reading.lifetime, reading.size, reading.gigabytes, reading.number, reading.count)
    for read_option in options:
        with suppress(ValueError):  # an option reports it together with what it takes
            read_option(text)


@pytest.mark.parametrize("value", ["a\0b", "\udc80"])
def test_variables_with_nul_or_surrogates_are_refused(value: str) -> None:
    with pytest.raises(sky.SpecError, match="sets V to a string with a NUL or a lone surrogate"):
        sky.Image(env={"V": value})
