"""The pools of a kernel: registered by name, kept from cell to cell, closed when the kernel ends.

A cell opens its pool on first use. Pools that code opens (`sky.Compute(...).open()`, `with`, `sky.attach`) are
registered too.
"""

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from skyward.errors import PoolClosedError, ProvisioningError, SkywardError, SpecError, UsageError
from skyward.frontends.calls import is_forked, observe_with, opened
from skyward.frontends.configuration import (
    Nodes,
    NodesLike,
    OptionFields,
    Options,
    Spec,
    UpdateFields,
    compute_fields,
    configured_values,
    field_paths,
    resolve_groups,
)
from skyward.frontends.views import joined, notify
from skyward_kernel.orphans import orphan_notes
from skyward_kernel.reaper import start_reaping

if TYPE_CHECKING:
    from skyward.frontends.pools import Compute

__all__ = ["DEFAULT_POOL", "FailedStart", "PoolManager", "manager_of", "resident"]

DEFAULT_POOL: Final = "default"
"""Name of the pool of cells that do not name one."""

_OPTIONS = OptionFields.__optional_keys__
_AS_ASKED = ("groups", "nodes", "provider")
"""Properties on which plugins have no influence, or which are compared in their own ways."""

type Asked = Mapping[str, Any]
"""Requested properties of a pool, by path, as `compute_fields` takes them."""

type OpeningContext = Callable[[Compute], AbstractContextManager[object]]
"""Makes a context for a pool to open in, such as one that shows progress."""


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A pool that failed to open, the reason, and the Unix time."""

    name: str
    reason: str
    at: float


class _Resident:
    """One registered pool, and its requested properties.

    Attributes:
        by_code: whether code made the pool, and may have it in a variable.
    """

    def __init__(self, compute: "Compute", asked: Asked, *, by_code: bool = False) -> None:
        self.compute = compute
        self.by_code = by_code
        self._asked = asked
        self._groups = compute.groups

    @property
    def asked(self) -> Asked:
        """The properties to request for a pool like this one as it is now."""
        size = self.compute.requested_nodes
        resized = "groups" not in self._asked and size != Nodes.of(self.compute.spec.nodes)
        has, asks = self.compute.options.budget, "budget" in self._asked
        budget = {"budget": has} if asks or has is not None else {}
        return {**self._asked, **self._updated(), **budget, **({"nodes": size} if resized else {})}

    def was_opened_with(self, path: str, value: object) -> bool:
        """Return whether the pool was opened with this property, and has been updated in it since."""
        if path not in self._updated() or len(self._groups) > 1:
            return False
        specs = next(iter(self._groups.values()))
        before = tuple(each.provider for each in specs) if path == "provider" else _spec_paths(specs[0])[path]
        return _same(path, before, value)

    def _updated(self) -> Asked:
        """Return the properties in which the pool has been updated."""
        groups = self.compute.groups
        if groups == self._groups:
            return {}
        if len(groups) > 1:
            return {"groups": groups}
        before = _spec_paths(next(iter(self._groups.values()))[0])
        return {path: value for path, value in _spec_paths(self.compute.spec).items() if value != before[path]}


class PoolManager:
    """Registry of the pools of one kernel, by name. Thread-safe.

    Args:
        factory: makes a pool that is not open yet; `sky.Compute` if None.
        labels: names of the fields of a pool in messages, if different from the path.
        defaults: returns the default properties of a pool by name; called whenever one is made.
    """

    def __init__(
        self,
        factory: "Callable[..., Compute] | None" = None,
        labels: Mapping[str, str] | None = None,
        defaults: Callable[[str], Asked] = lambda _: {},
    ) -> None:
        self._defaults = defaults
        self._factory = factory
        self._labels = labels or {}
        self._pools: dict[str, _Resident] = {}
        self._openings: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._shown: OpeningContext = nullcontext
        self._attaching: dict[str, OpeningContext] = {}
        self._failed: dict[str, FailedStart] = {}

    @classmethod
    def of(cls, compute: "Compute") -> "PoolManager":
        """Return a registry of one pool, for commands on a pool that is not one of this kernel's."""
        manager = cls()
        manager._put(compute.name, _Resident(compute, {}, by_code=True))
        return manager

    def observe(self, shown: OpeningContext = nullcontext) -> None:
        """Register the pools of this process that code opens, or already has open.

        Args:
            shown: makes a context for them to open in.
        """
        self._shown = shown
        observe_with(self._observed)
        for compute in list(opened):
            try:
                self._add(compute)
            except UsageError:
                notify(
                    f"Two open pools are named {compute.name!r}; cells and views use one of them. Close the other, "
                    "and open it again under another name."
                )

    def stop_observing(self) -> None:
        """Unregister the pools that code has made, and register no more of them."""
        observe_with(None)
        with self._lock:
            self._pools = {name: each for name, each in self._pools.items() if not each.by_code}

    @contextmanager
    def _observed(self, compute: "Compute") -> Iterator[None]:
        """Register a pool that code opens within the context, and show its progress, unless it is registered."""
        resident = self._add(compute)
        if resident is None:
            yield
            return
        _note_orphans(compute.name)
        try:
            with self._noting_failure(compute.name, resident), self._attaching.get(compute.name, self._shown)(compute):
                yield
        except BaseException:
            self._forget(compute.name, resident)
            raise

    def _add(self, compute: "Compute") -> "_Resident | None":
        """Register a pool that code has made and return its entry; None if it is registered already.

        Raises:
            UsageError: another pool has its name.
        """
        other = self.peek(compute.name)
        if other is not None and other is not compute and other.snapshot().state == "closed":
            self.close(compute.name)  # an interrupted close left it registered
        with self._lock:
            known = self._pools.get(compute.name)
            if known is not None and known.compute is compute:
                return None
            if known is not None:
                raise _taken(compute.name)
            by_code = compute.name not in self._attaching
            return self._put(compute.name, _Resident(compute, _asked_of(compute), by_code=by_code))

    def _put(self, name: str, resident: _Resident) -> _Resident:
        """Register a pool until it is closed, by cell or by code."""
        from skyward.frontends.pools import when_closed  # loads the engine, so it is imported late

        self._pools[name] = resident
        self._failed.pop(name, None)
        when_closed(resident.compute, lambda: self._forget(name, resident))
        return resident

    @property
    def names(self) -> list[str]:
        """Names of the pools, in order of registration."""
        with self._lock:
            return list(self._pools)

    @property
    def failed_starts(self) -> tuple[FailedStart, ...]:
        """The pools that failed to open, until they are dismissed or opened again."""
        with self._lock:
            return tuple(self._failed.values())

    def dismiss(self, name: str) -> None:
        """Drop the pool with a name from those that failed to open. Idempotent."""
        with self._lock:
            self._failed.pop(name, None)

    def get(self, name: str = DEFAULT_POOL) -> "Compute":
        """Return the pool with a name.

        Raises:
            UsageError: there is no such pool.
        """
        return self._resident(name).compute

    def find(self, name: str = DEFAULT_POOL) -> "Compute | None":
        """Return the pool with a name if it is open, else None. Does not block."""
        with self._lock:
            resident = self._pools.get(name)
        return resident.compute if resident is not None and resident.compute.is_open else None

    def peek(self, name: str) -> "Compute | None":
        """Return the pool with a name, open or opening; None if there is none. Does not block."""
        with self._lock:
            resident = self._pools.get(name)
        return None if resident is None else resident.compute

    def plan(self, name: str, asked: Asked) -> Asked:
        """Return the properties that the pool with a name would have if it were made now."""
        return {**self._defaults(name), **self.asked(name), **asked}

    def asked(self, name: str) -> Asked:
        """Return the properties that were requested of the pool with a name, beyond its defaults."""
        with self._lock:
            resident = self._pools.get(name)
        return {} if resident is None else resident.asked

    def check(self, name: str, asked: Asked) -> None:
        """Check that the pool with a name, if it is open, has the requested properties.

        Raises:
            SpecError: it differs. The message names the differences, and how to resize or replace the pool.
        """
        with self._lock:
            resident = self._pools.get(name)
        if resident is not None and _works(resident.compute):
            self._refuse_differences(name, resident, asked, says=False)

    def get_or_open(
        self,
        name: str = DEFAULT_POOL,
        asked: Asked | None = None,
        *,
        opening: OpeningContext = nullcontext,
    ) -> "Compute":
        """Return the pool with a name; open it if necessary, and replace it if it failed.

        Args:
            name: its name.
            asked: the requested properties; others are not compared.
            opening: makes a context to open it in, such as one that shows progress.

        Raises:
            SpecError: it is open and differs from the request. The message says how to resize or replace it.
            ProvisioningError: its machines could not be provisioned. None of them is left running.
        """
        asked = asked or {}
        with self._lock:
            one_at_a_time = self._openings.setdefault(name, threading.Lock())
        with one_at_a_time:
            resident = self._claim(name, asked)
            compute = resident.compute
            if _works(compute):
                self._refuse_differences(name, resident, asked)
            elif resident.by_code:
                self._refuse_differences(name, resident, asked)
                with self._noting_failure(name, resident), opening(compute):
                    self._reopen(name, resident)
            else:
                _note_orphans(name)
                try:
                    with self._noting_failure(name, resident), opening(compute):
                        compute.open()
                except BaseException:
                    self._forget(name, resident)
                    raise
            return compute

    def attach(
        self, name: str = DEFAULT_POOL, *, budget: float | None = None, opening: OpeningContext = nullcontext
    ) -> "Compute":
        """Attach to an orphaned pool of another kernel, or of this one before a restart, and return it.

        Args:
            name: its name.
            budget: its maximum total cost from now on, USD; None for the budget that it has.
            opening: makes a context to attach in, such as one that shows progress.

        Raises:
            UsageError: there is no such pool, its owner lives, or this kernel already has a pool of that name.
            ProvisioningError: none of its machines is left.
        """
        from skyward.frontends.pools import attach

        with self._lock:
            one_at_a_time = self._openings.setdefault(name, threading.Lock())
        with one_at_a_time:
            if self.find(name) is not None:
                if orphan_notes(name):
                    raise UsageError(
                        f"This kernel has another pool {name!r}: close it first with `%sky down {name}`, and then run "
                        f"`%sky attach {name}` again."
                    )
                raise UsageError(f"This kernel has pool {name!r} already: use it, there is nothing to attach to.")
            self._attaching[name] = opening
            try:
                compute = attach(name, budget=budget)
                self._add(compute)  # if pools of code are not observed
            finally:
                del self._attaching[name]
            return compute

    def close(self, name: str = DEFAULT_POOL) -> float:
        """Terminate the machines of a pool and unregister it. Return its cost in USD.

        Raises:
            UsageError: there is no pool of that name.
        """
        resident = self._resident(name)
        self._forget(name, resident)
        resident.compute.close()
        return resident.compute.snapshot().spent

    def close_all(self) -> dict[str, float]:
        """Terminate the machines of every pool and return the costs of the pools in USD, by name. Idempotent.

        Raises:
            ProvisioningError: machines of some pools may still be running. All other pools are closed.
        """
        with self._lock:
            residents, self._pools = self._pools, {}
        errors = []
        spent = {}
        for name, resident in residents.items():
            try:
                resident.compute.close()
                spent[name] = resident.compute.snapshot().spent
            except Exception as error:
                errors.append(f"Pool {name!r}: {error}" if name not in str(error) else str(error))
        if errors:
            raise ProvisioningError("\n".join(errors))
        return spent

    def leave(self) -> list[str]:
        """Unregister the pools whose nodes outlive this kernel, for the next one to attach to. Return their names.

        Pools of a `with` block stay registered, and end with this kernel.
        """
        pools = {name: self.find(name) for name in self.names}
        left = [name for name, pool in pools.items() if pool is not None and not pool.is_scoped and pool.leave()]
        with self._lock:
            for name in left:
                self._pools.pop(name, None)
        return left

    def scale(self, name: str, nodes: NodesLike, group: str | None = None) -> Nodes:
        """Change how many nodes a pool has.

        Args:
            group: name of the group; required if the pool has several.

        Raises:
            UsageError: there is no pool of that name, or `nodes` is not a valid number of nodes.
            SpecError: there is no such group.
        """
        wanted = Nodes.of(nodes)
        compute = self._resident(name).compute
        _check_group(compute, group, f"%sky scale {name} {wanted}")
        compute.resize(wanted, group)
        return wanted

    def update(self, name: str, asked: Asked, group: str | None = None) -> str:
        """Change properties of a pool, and replace its nodes one by one. Return what has changed; empty for nothing.

        Args:
            name: its name.
            asked: the properties; each has its new value instead of the one before.
            group: name of the group; required if the pool has several.

        Raises:
            UsageError: there is no pool of that name, or `Compute.update` refuses it.
            SpecError: a property has a value that is not allowed, or there is no such group.
            NoOffersError: no offer fits.
        """
        compute = self._resident(name).compute
        _check_group(compute, group, f"%sky update {name} ...")
        before = compute.groups
        updated = group or next(iter(before))
        known = _spec_paths(before.get(updated, (compute.spec,))[0])
        fields = compute_fields({**known, **asked})
        compute.update(group=group, **{path.partition(".")[0]: fields[path.partition(".")[0]] for path in asked})
        if compute.groups == before:
            return ""
        new = _spec_paths(compute.groups[updated][0])
        return "; ".join(
            f"{_label(self._labels, path)} {_difference(_text(path, new[path]), _text(path, known[path]))}"
            for path in asked
            if new[path] != known[path]
        )

    def raise_budget(self, name: str, asked: Asked) -> bool:
        """Give an open pool the requested budget if it has none or a lower one; return whether that is so.

        Raises:
            SpecError: the pool differs from the request in something else, too.
            UsageError: the price of some machines is unknown, so a budget cannot be enforced.
        """
        compute, wanted = self.find(name), asked.get("budget")
        if compute is None or wanted is None or not _works(compute):
            return False
        if (has := compute.options.budget) is not None and wanted <= has:
            return False
        self.check(name, {path: value for path, value in asked.items() if path != "budget"})
        compute.set_budget(wanted)
        return True

    def _resident(self, name: str) -> _Resident:
        with self._lock:
            resident = self._pools.get(name)
            names = list(self._pools)
        if resident is None:
            existing = f"there {'is' if len(names) == 1 else 'are'} {', '.join(map(repr, names))}"
            hint = existing if names else f"open it with `%sky up {name}`"
            left = " ".join(("", *orphan_notes(name)))
            raise UsageError(f"There is no pool {name!r}; {hint}.{left}")
        return resident

    def _claim(self, name: str, asked: Asked) -> _Resident:
        """Return the entry of a name: the registered one while its pool works, else a new one."""
        with self._lock:
            known = self._pools.get(name)
        if known is not None and (known.by_code or _works(known.compute)):
            return known
        # A failed pool is replaced by one like it: a cell written for a GPU must not run on something else.
        asked = asked if known is None else {**known.asked, **asked}
        resident = _Resident(self._make(name, asked), asked)
        with self._lock:
            self._put(name, resident)
        if known is not None:
            _close(known.compute)
        return resident

    def _reopen(self, name: str, resident: _Resident) -> None:
        """Open a pool that code has made, or wait until the code that is opening it has done so."""
        compute = resident.compute
        compute.open()
        if not _works(compute):
            _close(compute)
            with self._lock:
                self._put(name, resident)
            compute.open()

    def _make(self, name: str, asked: Asked) -> "Compute":
        from skyward.frontends.pools import Compute, pool_fields  # loads the engine, so it is imported late

        if self._factory is None:
            self._factory = Compute
        return self._factory(name=name, **pool_fields({**self._defaults(name), **asked}))

    def _forget(self, name: str, resident: _Resident) -> None:
        with self._lock:
            if self._pools.get(name) is resident:
                del self._pools[name]

    @contextmanager
    def _noting_failure(self, name: str, resident: _Resident) -> Iterator[None]:
        """Note the failure of a pool that opens within the context, unless the user interrupts or closes it."""
        try:
            yield
        except PoolClosedError:
            raise
        except Exception as error:
            with self._lock:
                has_name = self._pools.get(name, resident) is resident  # or it is closed, and no other one has it
                if has_name and name not in self._attaching:
                    self._failed[name] = FailedStart(name, str(error) or type(error).__name__, time.time())
            raise

    def _refuse_differences(self, name: str, resident: _Resident, asked: Asked, *, says: bool = True) -> None:
        """Refuse requested properties that a pool does not have, and was not opened with.

        Args:
            says: True to say that it was opened with them, and has been updated since.
        """
        has = {path: _current(resident, path) for path in asked}
        asked = _resolved(resident.compute, asked)
        unlike = [path for path in asked if not _same(path, has[path], asked[path])]
        differing = [path for path in unlike if not resident.was_opened_with(path, asked[path])]
        if not differing:
            if unlike and says:
                options = ", ".join(_label(self._labels, path) for path in unlike)
                notify(
                    f"Pool {name!r} has been updated since it was opened with this {options}; it is used as it is now."
                )
            return
        if differing == ["nodes"]:
            wanted, groups = asked["nodes"], resident.compute.groups
            resize = f"resize it with `%sky scale {name} {wanted}`"
            if len(groups) > 1:
                resize = f"resize a group of it, as with `%sky scale {name} {wanted} --group {next(iter(groups))}`"
            label = _label(self._labels, "nodes")
            raise SpecError(f"Pool {name!r} has {label} {has['nodes']}, not {wanted}: {resize}.")
        texts = [
            f"{_label(self._labels, path)} {_difference(_text(path, has[path]), _text(path, asked[path]))}"
            for path in differing
        ]
        raise SpecError(
            f"Pool {name!r} has {'; '.join(texts)}: {_update_hint(name, differing)}close it with `%sky down {name}` "
            "and run this again to replace it, or use another pool with `--pool NAME`."
        )


def _check_group(compute: "Compute", group: str | None, line: str) -> None:
    """Check that a command on a pool of several groups names one.

    Raises:
        SpecError: it does not. The message has the command as it may be, which begins with `line`.
    """
    if group is None and len(compute.groups) > 1:
        first, *_ = compute.groups
        raise SpecError(
            f"Pool {compute.name!r} has the groups {joined(map(repr, compute.groups))}: name one, as in "
            f"`{line} --group {first}`."
        )


def _note_orphans(name: str) -> None:
    """Tell that an ended process left a pool of the name of one that is about to be opened."""
    for note in orphan_notes(name):
        notify(note)


def _update_hint(name: str, paths: Iterable[str]) -> str:
    """Return how to change properties of an open pool; empty if one of them is its provider, or cannot change."""
    changed = {path.partition(".")[0] for path in paths}
    if "provider" in changed or not UpdateFields.__optional_keys__.issuperset(changed):
        return ""
    return f"replace its nodes one by one with `%sky update {name}` and the new options, "


def _taken(name: str) -> UsageError:
    return UsageError(
        f"There is a pool {name!r} in this kernel already: close it with `%sky down {name}`, or use another name for "
        "the new one."
    )


def _asked_of(compute: "Compute") -> Asked:
    """Return the properties to request for a pool like this one."""
    if len(compute.groups) > 1:
        return field_paths({**_option_values(compute), "groups": compute.groups})
    return _properties(compute)


def _properties(compute: "Compute") -> Asked:
    """Return all properties of a pool whose nodes are of its first spec."""
    return {**field_paths(_option_values(compute)), **_spec_paths(compute.spec)}


def _spec_paths(spec: Spec) -> Asked:
    """Return the fields of a spec by path."""
    return field_paths({field.name: getattr(spec, field.name) for field in fields(spec)})


def _option_values(compute: "Compute") -> dict[str, Any]:
    return {name: getattr(compute.options, name) for name in _OPTIONS}


def _works(compute: "Compute") -> bool:
    """Return whether tasks that are sent to the pool have a node to run on, now or soon."""
    if not compute.is_open:
        return False
    snapshot = compute.snapshot()
    return snapshot.desired == 0 or any(node.state in ("waiting", "active", "draining") for node in snapshot.nodes)


def _close(compute: "Compute") -> None:
    with contextlib.suppress(Exception):  # leftovers of the failed pool must not block its replacement
        compute.close()


def _current(resident: _Resident, path: str) -> Any:
    if path == "nodes":
        return resident.compute.requested_nodes
    if path == "provider":
        return tuple(spec.provider for specs in resident.compute.groups.values() for spec in specs)
    return _field(resident.compute.spec, resident.compute.options, path)


def _field(spec: Spec, options: Options, path: str) -> Any:
    group, dot, name = path.partition(".")
    owner: object = options if group in _OPTIONS else spec
    return getattr(getattr(owner, group), name) if dot else getattr(owner, path)


def _resolved(compute: "Compute", asked: Asked) -> Asked:
    """Return requested properties as the pool would have them: with what its plugins add, such as packages."""
    own = [path for path in asked if path not in _AS_ASKED]
    if not own:
        return asked
    try:
        fields = compute_fields({**_properties(compute), **{path: asked[path] for path in own}})
        resolved = resolve_groups((), None, fields)
    except SpecError:  # no pool could have them, and so this one differs
        return asked
    ((spec,),) = resolved.groups.values()
    return {**asked, **{path: _field(spec, resolved.options, path) for path in own}}


def _same(path: str, has: object, asked: object) -> bool:
    if path == "provider":
        return _same_providers(_several(has), _several(asked))
    return bool(has == asked)


def _same_providers(has: tuple[object, ...], asked: tuple[object, ...]) -> bool:
    """Return whether providers are the ones that are asked for: by name, and by their settings, if any are given.

    The settings of a table are given, those of a plain name are not.
    """
    if _provider_names(has) != _provider_names(asked):
        return False
    if all(map(_is_plain, asked)) or any(each is None or isinstance(each, str) for each in has):
        return True
    return all(each in has for each in asked) and all(each in asked for each in has)


def _is_plain(provider: object) -> bool:
    """Return whether a provider is only named: its settings are the default ones."""
    if provider is None or isinstance(provider, str):
        return True
    try:
        return bool(provider == type(provider)())
    except (TypeError, SkywardError):  # it needs settings
        return False


def _several(providers: object) -> tuple[object, ...]:
    return providers if isinstance(providers, tuple) else (providers,)


def _provider_names(providers: object) -> KeysView[str]:
    """Return the distinct names of one provider or of several alternatives, in their order."""
    return dict.fromkeys(map(_provider_name, _several(providers))).keys()


def _provider_name(provider: object) -> str:
    return provider if isinstance(provider, str) else str(getattr(provider, "name", None) or "local")


def _difference(has: str, asked: str) -> str:
    return f"{has}, not {asked}" if has != asked else f"{has} with other settings"


def _label(labels: Mapping[str, str], path: str) -> str:
    return labels.get(path, path)


def _text(path: str, value: object) -> str:
    if path == "provider":
        return ",".join(_provider_names(value))
    match value:
        case None:
            return "none"
        case Mapping():
            return ", ".join(value) or "none"  # names only: a value may be a secret
        case str() | int() | Nodes():
            return str(value)
        case float():
            return f"{value:g}"
        case Iterable():
            return ", ".join(map(str, value)) or "none"
    return str(value)


_resident: PoolManager | None = None
_resident_lock = threading.Lock()


def resident(labels: Mapping[str, str] | None = None) -> PoolManager:
    """Return the pools of this kernel. They are closed when it ends."""
    global _resident
    with _resident_lock:
        if _resident is None:
            _resident = PoolManager(labels=labels, defaults=configured_values)
            atexit.register(_end, _resident)
            atexit.register(start_reaping())
        return _resident


def _end(pools: PoolManager) -> None:
    if is_forked():
        return  # the pools belong to the kernel that this process was forked from
    try:
        pools.close_all()
    except ProvisioningError as error:
        notify(str(error))


def manager_of(compute: "Compute") -> PoolManager | None:
    """Return the pools of this kernel if `compute` is one of them, else None."""
    return _resident if _resident is not None and _resident.peek(compute.name) is compute else None
