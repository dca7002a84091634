"""Resolution of the arguments of `Compute` into groups of nodes and options."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from skyward.errors import SpecError
from skyward.specs.nodes import Worker
from skyward.specs.options import OptionFields, Options
from skyward.specs.plugin_order import image_of, processes
from skyward.specs.spec import Spec, SpecFields
from skyward.values import limits
from skyward.values.validation import FrozenMap, closest, shown

__all__ = ["DEFAULT_GROUP", "ComputeFields", "GroupsLike", "Resolved", "resolve_groups"]

DEFAULT_GROUP: Final = "default"
"""Name of the only group of a pool without named groups."""

type GroupsLike = Mapping[str, Spec | Sequence[Spec]]
"""Accepted form of groups: by name, the spec of its nodes, or several alternative specs."""


class ComputeFields(SpecFields, OptionFields, total=False):
    """Keywords of `Compute`, except `name` and `options`."""

    groups: GroupsLike


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
}
"""Argument names of other libraries, and their equivalents."""


@dataclass(frozen=True)
class Resolved:
    """Groups and options of a pool.

    Attributes:
        groups: by name, the specs of its nodes. Several are alternatives: all nodes are of one of them.
        options: options of the pool.
    """

    groups: FrozenMap[str, tuple[Spec, ...]]
    options: Options


def resolve_groups(
    specs: Sequence[Spec], options: Options | None, given: Mapping[str, Any], name: str | None = None
) -> Resolved:
    """Return the groups and options for the arguments of `Compute`.

    Args:
        specs: positional arguments: alternatives for the nodes of one group. Without any, and without fields of a spec
            or groups in `given`, the pool is one local node.
        options: argument of that name.
        given: other keywords: groups, or fields of one `Spec`; and fields of `Options`.
        name: name of the pool, which is only validated.

    Raises:
        SpecError: a keyword is unknown, specs are given in two ways, an option is given twice, a value is not allowed,
            or alternatives have different numbers of nodes.
    """
    for keyword in given:
        if keyword not in _SPEC and keyword not in _OPTIONS and keyword != "groups":
            known = {*_SPEC, *_OPTIONS, "groups"}
            fix = f"write `{_MEANT[keyword]}`." if keyword in _MEANT else closest(keyword, known)
            raise SpecError(f"Compute has no argument {keyword!r}; {fix}")
    if name is not None:
        _check_name(name, "name", "training")
    hardware = {keyword: value for keyword, value in given.items() if keyword in _SPEC}
    knobs = {keyword: value for keyword, value in given.items() if keyword in _OPTIONS}
    if "groups" in given:
        groups = _groups(given["groups"], specs, hardware)
    else:
        groups = FrozenMap({DEFAULT_GROUP: _specs(specs, hardware)})
    _check_nodes(groups)
    resolved = _with_plugins(Resolved(groups, _options(options, knobs)))
    _check_limits(resolved)
    return resolved


def _check_nodes(groups: Mapping[str, tuple[Spec, ...]]) -> None:
    for name, (first, *others) in groups.items():
        other = next((spec.nodes for spec in others if spec.nodes != first.nodes), None)
        if other is not None:
            what = "The specs of the pool" if list(groups) == [DEFAULT_GROUP] else f"The specs of groups[{name!r}]"
            raise SpecError(
                f"{what} are alternatives for the same nodes, but have nodes {first.nodes} and {other}: give all of "
                "them the same `nodes=`."
            )


def _with_plugins(resolved: Resolved) -> Resolved:
    """Return the groups and options with what their plugins need and require."""
    groups = FrozenMap({name: tuple(map(_with_plugins_of, specs)) for name, specs in resolved.groups.items()})
    options = resolved.options
    demanding = [
        plugin
        for specs in groups.values()
        for spec in specs
        for plugin in spec.plugins
        if plugin.requires().executor == "process"
    ]
    if demanding and options.worker.executor == "thread":
        raise SpecError(
            f"Plugin {demanding[0].name!r} needs a process for each task: leave `executor='thread'` out of `worker=`."
        )
    worker = _with_processes(options.worker, groups)
    if demanding and worker.executor == "auto":
        worker = replace(worker, executor="process")
    for spec in (spec for specs in groups.values() for spec in specs):
        for plugin in spec.plugins:
            plugin.check(spec, worker)
    return Resolved(groups, options if worker == options.worker else replace(options, worker=worker))


def _with_processes(worker: Worker, groups: Mapping[str, tuple[Spec, ...]]) -> Worker:
    """Return the settings of workers, with a slot for each of the processes that work together on a node.

    Raises:
        SpecError: nodes would have different numbers of them, or fewer slots.
    """
    _check_collectives(groups)
    found = {processes(spec) for specs in groups.values() for spec in specs}
    if len(found) > 1:
        numbers = " and ".join(map(str, sorted(found)))
        raise SpecError(
            f"The plugins ask for {numbers} processes that work together, on different nodes of the pool: give them a "
            "number, `procs_per_node=`, or give all specs equally many accelerators."
        )
    needed = max(found, default=0)
    if needed <= worker.concurrency:
        return worker
    if worker.concurrency != Worker().concurrency:
        raise SpecError(
            f"The plugins ask for {needed} processes of each node, and `worker=` has concurrency={worker.concurrency}: "
            f"leave it out, or give at least {needed}."
        )
    return replace(worker, concurrency=needed)


def _check_collectives(groups: Mapping[str, tuple[Spec, ...]]) -> None:
    """Check that all nodes of a pool work together in the same way: a broadcast has members on each of them.

    Raises:
        SpecError: they have different plugins for it; or some have accelerators, and a plugin does not allow that.
    """
    specs = [spec for group in groups.values() for spec in group]
    first, *others = ({each.name: each for each in spec.plugins if each.requires().together} for spec in specs)
    for other in others:
        if other != first:
            name = min(name for name in first.keys() | other.keys() if first.get(name) != other.get(name))
            raise SpecError(
                f"Plugin {name!r} differs between the specs of the pool, whose nodes work together: give all of them "
                "this plugin, with the same settings, or none."
            )
    if len(groups) > 1 and len({spec.accelerator is None for spec in specs}) > 1:
        for plugin in first.values():
            if plugin.requires().same_devices:
                raise SpecError(
                    f"Only some specs of the pool have an accelerator, but with plugin {plugin.name!r} all nodes work "
                    "together on devices of one kind: give all of them one, or none, or make two pools."
                )


def _with_plugins_of(spec: Spec) -> Spec:
    """Return a spec with the environment that its plugins need. Again, it changes nothing."""
    for plugin in spec.plugins:
        if plugin.requires().accelerator and spec.accelerator is None:
            raise SpecError(f"Plugin {plugin.name!r} needs an accelerator: give one, such as `accelerator='A100'`.")
    image = image_of(spec.plugins, spec.image, spec)
    return spec if image == spec.image else replace(spec, image=image)


def _check_name(name: object, what: str, example: str) -> None:
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise SpecError(
            f"{what} must be letters, digits, '-', '_' and '.', at most 63 of them, such as {example!r}, "
            f"but got {shown(name)}."
        )


def _groups(given: object, specs: Sequence[Spec], hardware: Mapping[str, Any]) -> FrozenMap[str, tuple[Spec, ...]]:
    if specs or hardware:
        what, each = (", ".join(hardware), "`sky.Spec(...)`") if hardware else ("specs", "group")
        raise SpecError(f"Compute got groups and also {what}: put {what} inside each {each} of groups.")
    if not isinstance(given, Mapping) or not given:
        raise SpecError(
            "groups must be specs by name, as in `groups={'cpu': sky.Spec(vcpus=4), 'gpu': sky.Spec(accelerator='T4')}`"
            f", but got {shown(given)}."
        )
    return FrozenMap({name: _group(name, group) for name, group in given.items()})


def _group(name: object, given: object) -> tuple[Spec, ...]:
    _check_name(name, "a name in groups", "gpu")
    specs = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for spec in specs:
        if not isinstance(spec, Spec):
            raise SpecError(f"groups[{name!r}] must be `sky.Spec(...)`, or a list of them, but got {shown(spec)}.")
        if not spec.node_resources and not spec.node_capabilities:
            raise SpecError(
                f"groups[{name!r}] has no resources, so no task can request it: give its Spec `vcpus=`, "
                "`accelerator=`, or `resources=` such as {'CPU': 4}."
            )
    if not specs:
        raise SpecError(f"groups[{name!r}] must be `sky.Spec(...)`, or a list of them, but got {shown(given)}.")
    return specs


def _check_limits(resolved: Resolved) -> None:
    most = resolved.options.max_nodes
    fewest = sum(max(specs[0].nodes.min, specs[0].nodes.threshold) for specs in resolved.groups.values())
    if fewest > limits.NODES:
        raise SpecError(f"groups start with {fewest:,} nodes, and a pool has {limits.NODES:,} at most: lower `nodes`.")
    if most is not None and most < fewest:
        raise SpecError(
            f"max_nodes ({most}) must not be less than the {fewest} nodes that the pool starts with: raise max_nodes, "
            "or lower `nodes`."
        )


def _specs(specs: Sequence[Spec], hardware: dict[str, Any]) -> tuple[Spec, ...]:
    for spec in specs:
        if isinstance(spec, Spec):
            continue
        keyword = "options" if isinstance(spec, Options) else "provider"
        raise SpecError(
            f"Compute takes only `sky.Spec(...)` by position, but got {shown(spec)}; write `{keyword}=...`."
        )
    if specs and hardware:
        names = ", ".join(hardware)
        raise SpecError(f"Compute got specs and also {names}: put {names} inside each `sky.Spec(...)`.")
    if specs:
        return tuple(specs)
    provider = hardware.get("provider")
    if isinstance(provider, str):
        provider = [each for name in provider.split(",") if (each := name.strip())] or provider
    if not isinstance(provider, list | tuple):
        return (Spec(**hardware),)
    if not provider:
        raise SpecError("provider must be a provider, or several, as in `provider=[sky.AWS(), sky.RunPod()]`.")
    return tuple(Spec(**{**hardware, "provider": each}) for each in provider)


def _options(options: Options | None, knobs: dict[str, Any]) -> Options:
    if options is None:
        return Options(**knobs)
    if not isinstance(options, Options):
        raise SpecError(f"options must be `sky.Options(...)`, but got {shown(options)}.")
    for knob in knobs:
        if knob in options._given:
            raise SpecError(f"{knob} is given twice, on Compute and in options: keep one of them.")
    return replace(options, **knobs)
