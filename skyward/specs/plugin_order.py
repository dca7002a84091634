"""Plugins of a spec together: their order, what they require, and the environment that results."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from skyward.errors import SpecError
from skyward.specs.plugin import Plugin, PluginStep, Requires
from skyward.values.validation import shown

if TYPE_CHECKING:
    from skyward.specs.image import Image
    from skyward.specs.spec import Spec  # circular: a spec has plugins, whose methods take it

__all__ = ["image_of", "ordered", "processes", "required", "steps_of"]


def ordered(plugins: Sequence[object]) -> tuple[Plugin, ...]:
    """Return plugins in the given order, except that each comes after those that it names.

    Raises:
        SpecError: one is not a plugin, one is given twice, two exclude each other, or each must come after the other.
    """
    found: dict[str, Plugin] = {}
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            name = getattr(plugin, "name", None) if isinstance(plugin, type) else None
            fix = (
                f"call it, `sky.plugins.{name}()`" if isinstance(name, str) else "use one such as `sky.plugins.torch()`"
            )
            if isinstance(plugin, str) and plugin.isidentifier():
                fix = f"names are for `skyward.toml`; write `sky.plugins.{plugin}()`"
            what = shown(plugin) if isinstance(plugin, str | type) else f"a value of type {type(plugin).__name__}"
            raise SpecError(f"plugins has {what}, which is not a plugin: {fix}.")  # others may have secrets
        if plugin.name in found:
            raise SpecError(f"plugins has {plugin.name!r} twice: keep one of them.")
        found[plugin.name] = plugin
    for plugin in found.values():
        for other in sorted(plugin.excludes & found.keys()):
            raise SpecError(f"plugins has {plugin.name!r} and {other!r}, which exclude each other: take one out.")
    placed: dict[str, Plugin] = {}
    waiting = list(found.values())
    while waiting:
        ready = next((each for each in waiting if not each.after & {other.name for other in waiting}), None)
        if ready is None:
            names = " and ".join(repr(each.name) for each in waiting)
            raise SpecError(f"plugins has {names}, each of which must come after the other: take one out.")
        placed[ready.name] = ready
        waiting.remove(ready)
    return tuple(placed.values())


def required(plugins: Sequence[Plugin]) -> Requires:
    """Return what the plugins require of a pool together. A number of processes comes before "auto".

    Raises:
        SpecError: they ask for different numbers of processes.
    """
    each = [plugin.requires() for plugin in plugins]
    asked = {one.procs_per_node for one in each} - {None}
    numbers = asked - {"auto"} or asked
    if len(numbers) > 1:
        raise SpecError(
            f"The plugins ask for {' and '.join(map(str, sorted(map(str, numbers))))} processes of each node: give "
            "them one `procs_per_node=`."
        )
    return Requires(
        executor=next((one.executor for one in each if one.executor is not None), None),
        together=any(one.together for one in each),
        accelerator=any(one.accelerator for one in each),
        same_devices=any(one.same_devices for one in each),
        procs_per_node=next(iter(numbers), None),
        restarts=max((one.restarts for one in each), default=0),
        meeting_timeout=max((one.meeting_timeout for one in each if one.together), default=60.0),
    )


def processes(spec: "Spec") -> int:
    """Return the number of processes of a node of this spec that work together in a broadcast; 0 for none."""
    needed = required(spec.plugins)
    if not needed.together:
        return 0
    if needed.procs_per_node == "auto":
        return 1 if spec.accelerator is None else max(1, int(spec.accelerator.count))
    return needed.procs_per_node or 1


def image_of(plugins: Sequence[Plugin], image: "Image", spec: "Spec") -> "Image":
    """Return the environment with what all plugins need, in their order.

    Raises:
        SpecError: a plugin sets a variable that another one sets to another value.
    """
    theirs: dict[str, tuple[str, str]] = {}
    own = dict(image.env)
    for plugin in plugins:
        changed = plugin.image(image, spec)
        if plugin.requirement is not None and plugin.requirement not in changed.pip:
            changed = replace(changed, pip=(*changed.pip, plugin.requirement))
        for name, value in changed.env.items():
            if name in own or image.env.get(name) == value:
                continue
            setter, other = theirs.setdefault(name, (plugin.name, value))
            if other != value:
                raise SpecError(
                    f"Plugins {setter!r} and {plugin.name!r} set the variable {name} to different values: set it "
                    f"yourself, `image=sky.Image(env={{{name!r}: ...}})`, or take one of them out."
                )
        image = replace(changed, env={**changed.env, **own})
    return image


def steps_of(plugins: Sequence[Plugin], spec: "Spec") -> tuple[PluginStep, ...]:
    """Return the set-up of a machine by all plugins, in their order."""
    return tuple(step for plugin in plugins for step in plugin.steps(spec))
