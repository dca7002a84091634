"""The arguments of `Compute`, made into specs and options."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from skyward.errors import SpecError
from skyward.specs.options import OptionFields, Options
from skyward.specs.spec import Spec, SpecFields
from skyward.values import closest

__all__ = ["ComputeFields", "resolve"]


class ComputeFields(SpecFields, OptionFields, total=False):
    """What `Compute` takes by keyword beside `name` and `options`."""


_SPEC = frozenset(field.name for field in fields(Spec))
_OPTIONS = frozenset(field.name for field in fields(Options) if field.init)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")

_MEANT = {
    "gpu": "accelerator='A100'",
    "gpus": "accelerator='A100:4'",
    "cpu": "vcpus=4",
    "cpus": "vcpus=4",
    "memory": "memory_gb=16",
    "ram": "memory_gb=16",
    "disk": "disk_gb=100",
    "spot": "allocation='spot'",
    "concurrency": "worker=sky.Worker(concurrency=2)",
    "executor": "worker=sky.Worker(executor='process')",
    "timeout": "default_compute_timeout=600",
    "python": "image=sky.Image(python='3.13')",
    "pip": "image=sky.Image(pip=['numpy'])",
    "apt": "image=sky.Image(apt=['ffmpeg'])",
    "env": "image=sky.Image(env={'NAME': 'value'})",
    "includes": "image=sky.Image(includes=['./my_module'])",
    "min": "nodes=sky.Nodes(min=2)",
    "max": "nodes=(2, 16)",
    "min_nodes": "nodes=sky.Nodes(min=2)",
    "max_nodes": "nodes=(2, 16)",
}
"""Names that users of other libraries try first, and what says the same here."""


def resolve(
    specs: Sequence[Spec], options: Options | None, given: Mapping[str, Any], name: str | None = None
) -> tuple[tuple[Spec, ...], Options]:
    """The specs and the options that the arguments of `Compute` mean.

    Args:
        specs: positional arguments. None at all, with no field of a spec in `given`, is one local node.
        options: the argument of that name.
        given: the other keywords: fields of one `Spec`, and fields of `Options`.
        name: the name of the pool, which is only checked.

    Raises:
        SpecError: a keyword is unknown, specs are given in two ways, a knob is given twice, or a value is not allowed.
    """
    for keyword in given:
        if keyword not in _SPEC and keyword not in _OPTIONS:
            fix = f"write `{_MEANT[keyword]}`." if keyword in _MEANT else closest(keyword, _SPEC | _OPTIONS)
            raise SpecError(f"Compute has no argument {keyword!r}; {fix}")
    _check_name(name)
    hardware = {keyword: value for keyword, value in given.items() if keyword in _SPEC}
    knobs = {keyword: value for keyword, value in given.items() if keyword in _OPTIONS}
    return _specs(specs, hardware), _options(options, knobs)


def _check_name(name: str | None) -> None:
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise SpecError(
            f"name must be letters, digits, '-', '_' and '.', at most 63 of them, such as 'training', but got {name!r}."
        )


def _specs(specs: Sequence[Spec], hardware: dict[str, Any]) -> tuple[Spec, ...]:
    for spec in specs:
        if isinstance(spec, Spec):
            continue
        keyword = "options" if isinstance(spec, Options) else "provider"
        raise SpecError(f"Compute takes only `sky.Spec(...)` by position, but got {spec!r}; write `{keyword}=...`.")
    if specs and hardware:
        names = ", ".join(hardware)
        raise SpecError(f"Compute got specs and also {names}: put {names} inside each `sky.Spec(...)`.")
    return tuple(specs) or (Spec(**hardware),)


def _options(options: Options | None, knobs: dict[str, Any]) -> Options:
    if options is None:
        return Options(**knobs)
    if not isinstance(options, Options):
        raise SpecError(f"options must be `sky.Options(...)`, but got {options!r}.")
    for knob in knobs:
        if knob in options._given:
            raise SpecError(f"{knob} is given twice, on Compute and in options: keep one of them.")
    return replace(options, **knobs)
