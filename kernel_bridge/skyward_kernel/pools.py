"""The pools of a kernel: named, kept from cell to cell, given back when the kernel ends.

A cell makes one on first use. Those that code opens (`sky.Compute(...).open()`, `with`, `sky.attach`) are of them too.
"""

import atexit
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from skyward.config.pools import configured_values
from skyward.errors import ProvisioningError, SpecError, UsageError
from skyward.pool.open_pools import observe_with, opened
from skyward.process.forked import is_forked
from skyward.reporting.screen import notify
from skyward.specs import Nodes, NodesLike, OptionFields
from skyward.specs.paths import compute_fields, field_paths
from skyward_kernel.reaper import start_reaping

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["DEFAULT_POOL", "PoolManager", "compute_fields", "manager_of", "resident"]

DEFAULT_POOL: Final = "default"
"""The pool of cells that name none."""

_OPTIONS = OptionFields.__optional_keys__

type Asked = Mapping[str, Any]
"""What is asked of a pool, by paths, as `compute_fields` takes it."""

type Shows = Callable[[Compute], AbstractContextManager[object]]
"""Makes a context for a pool to open in, which shows progress."""


class _Resident:
    """One pool, and what was asked of it.

    Attributes:
        by_code: whether code made it, which has it in a variable.
    """

    def __init__(self, compute: "Compute", asked: Asked, *, by_code: bool = False) -> None:
        self.compute = compute
        self.by_code = by_code
        self._asked = asked

    @property
    def asked(self) -> Asked:
        """What would have to be asked for to get it as it is."""
        size = self.compute.asked_nodes
        resized = "groups" not in self._asked and size != Nodes.of(self.compute.spec.nodes)
        return {**self._asked, "nodes": size} if resized else dict(self._asked)


class PoolManager:
    """The pools of one kernel, by name. Its methods may be called from any thread.

    Args:
        factory: makes a pool that is not open yet; `sky.Compute` if None.
        labels: what the fields of a pool are called in messages, where that is not their name.
        defaults: what the pool of a name is like where nothing else is asked; looked at whenever one is made.
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
        self._shown: Shows = nullcontext
        self._attaching: dict[str, Shows] = {}

    def observe(self, shown: Shows = nullcontext) -> None:
        """Have the pools of this process that code opens, or has open already, be among these.

        Args:
            shown: a context for them to open in.
        """
        self._shown = shown
        observe_with(self._observed)
        for compute in list(opened):
            try:
                self._add(compute)
            except UsageError:
                notify(
                    f"Two open pools are named {compute.name!r}; cells and views have one of them. Close the other, "
                    "and open it again under another name."
                )

    def stop_observing(self) -> None:
        """Leave the pools that code has made to that code."""
        observe_with(None)
        with self._lock:
            self._pools = {name: each for name, each in self._pools.items() if not each.by_code}

    @contextmanager
    def _observed(self, compute: "Compute") -> Iterator[None]:
        """A context in which code opens a pool; one that this object opens is known, and shown, already."""
        resident = self._add(compute)
        if resident is None:
            yield
            return
        try:
            with self._attaching.get(compute.name, self._shown)(compute):
                yield
        except BaseException:
            self._forget(compute.name, resident)
            raise

    def _add(self, compute: "Compute") -> "_Resident | None":
        """The entry of a pool that code has made; None if there is one already.

        Raises:
            UsageError: another pool has its name.
        """
        other = self.peek(compute.name)
        if other is not None and other is not compute and other.snapshot().state == "closed":
            self.close(compute.name)  # closing it was interrupted before its end was seen
        with self._lock:
            known = self._pools.get(compute.name)
            if known is not None and known.compute is compute:
                return None
            if known is not None:
                raise _taken(compute.name)
            by_code = compute.name not in self._attaching
            return self._put(compute.name, _Resident(compute, _asked_of(compute), by_code=by_code))

    def _put(self, name: str, resident: _Resident) -> _Resident:
        """Enter a pool, until it is closed, whoever closes it."""
        self._pools[name] = resident
        resident.compute.when_closed(lambda: self._forget(name, resident))
        return resident

    @property
    def names(self) -> list[str]:
        """The names of the pools there are, in the order in which they were made."""
        with self._lock:
            return list(self._pools)

    def get(self, name: str = DEFAULT_POOL) -> "Compute":
        """The pool of that name.

        Raises:
            UsageError: there is none.
        """
        return self._resident(name).compute

    def find(self, name: str = DEFAULT_POOL) -> "Compute | None":
        """The pool of that name, if it is open. Does not wait for anything."""
        with self._lock:
            resident = self._pools.get(name)
        return resident.compute if resident is not None and resident.compute.is_open else None

    def peek(self, name: str) -> "Compute | None":
        """The pool of that name, open or on its way; None if there is none. Does not wait for anything."""
        with self._lock:
            resident = self._pools.get(name)
        return None if resident is None else resident.compute

    def plan(self, name: str, asked: Asked) -> Asked:
        """What the pool of that name would be made of, if it were made now."""
        return {**self._defaults(name), **self.asked(name), **asked}

    def asked(self, name: str) -> Asked:
        """What was asked of the pool of that name when it was made, and is not as its defaults have it."""
        with self._lock:
            resident = self._pools.get(name)
        return {} if resident is None else resident.asked

    def check(self, name: str, asked: Asked) -> None:
        """Check that the pool of that name, if it is open, is what is asked for.

        Raises:
            SpecError: it differs; says in what, and how to resize or to replace it.
        """
        with self._lock:
            resident = self._pools.get(name)
        if resident is not None and _works(resident.compute):
            self._refuse_differences(name, resident, asked)

    def get_or_open(
        self,
        name: str = DEFAULT_POOL,
        asked: Asked | None = None,
        *,
        opening: Shows = nullcontext,
    ) -> "Compute":
        """The pool of that name, opened if it is not. One that failed is replaced.

        Args:
            name: its name.
            asked: what it must be like; what is not mentioned may be as it is.
            opening: a context to open it in, such as one that shows progress.

        Raises:
            SpecError: it is open and differs from what is asked; says how to resize or to replace it.
            ProvisioningError: it cannot have its machines. Nothing of it is left.
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
                with opening(compute):
                    self._reopen(name, resident)
            else:
                try:
                    with opening(compute):
                        compute.open()
                except BaseException:
                    self._forget(name, resident)
                    raise
            return compute

    def attach(self, name: str = DEFAULT_POOL, *, opening: Shows = nullcontext) -> "Compute":
        """The pool of that name, which another kernel, or this one before it was restarted, has left behind.

        Args:
            name: its name.
            opening: a context to take it over in, such as one that shows progress.

        Raises:
            UsageError: there is none, its owner lives, or this kernel has a pool of that name already.
            ProvisioningError: nothing of it is left.
        """
        from skyward.pool.attach import attach

        with self._lock:
            one_at_a_time = self._openings.setdefault(name, threading.Lock())
        with one_at_a_time:
            if self.find(name) is not None:
                raise _taken(name)
            self._attaching[name] = opening
            try:
                compute = attach(name)
                self._add(compute)  # where this object does not observe
            finally:
                del self._attaching[name]
            return compute

    def close(self, name: str = DEFAULT_POOL) -> None:
        """Give back the machines of a pool, and forget it.

        Raises:
            UsageError: there is no pool of that name.
        """
        resident = self._resident(name)
        self._forget(name, resident)
        resident.compute.close()

    def close_all(self) -> list[str]:
        """Give back the machines of every pool. The names of those there were; twice does no harm.

        Raises:
            ProvisioningError: machines of some may be left. All the others are closed.
        """
        with self._lock:
            residents, self._pools = self._pools, {}
        errors = []
        for name, resident in residents.items():
            try:
                resident.compute.close()
            except Exception as error:
                errors.append(f"Pool {name!r}: {error}" if name not in str(error) else str(error))
        if errors:
            raise ProvisioningError("\n".join(errors))
        return list(residents)

    def leave(self) -> list[str]:
        """Forget the pools whose nodes outlive this kernel, for the one that takes its place. Their names.

        Those that a `with` block is to close are kept, and end with this kernel.
        """
        there = {name: self.find(name) for name in self.names}
        left = [name for name, pool in there.items() if pool is not None and not pool.is_scoped and pool.leave()]
        with self._lock:
            for name in left:
                self._pools.pop(name, None)
        return left

    def scale(self, name: str, nodes: NodesLike) -> Nodes:
        """Change how many nodes a pool has.

        Raises:
            UsageError: there is no pool of that name, or `nodes` is no number of nodes.
        """
        wanted = Nodes.of(nodes)
        self._resident(name).compute.resize(wanted)
        return wanted

    def _resident(self, name: str) -> _Resident:
        with self._lock:
            resident = self._pools.get(name)
            names = list(self._pools)
        if resident is None:
            there = f"there {'is' if len(names) == 1 else 'are'} {', '.join(map(repr, names))}"
            hint = there if names else f"open it with `%sky up {name}`"
            raise UsageError(f"There is no pool {name!r}; {hint}.")
        return resident

    def _claim(self, name: str, asked: Asked) -> _Resident:
        """The entry of that name: the one there is while its pool works, and else a new one."""
        with self._lock:
            known = self._pools.get(name)
        if known is not None and (known.by_code or _works(known.compute)):
            return known
        # A pool that failed comes back as it was: a cell made for a GPU must not run on something else.
        asked = asked if known is None else {**known.asked, **asked}
        resident = _Resident(self._make(name, asked), asked)
        with self._lock:
            self._put(name, resident)
        if known is not None:
            _close(known.compute)
        return resident

    def _reopen(self, name: str, resident: _Resident) -> None:
        """Open the pool that code has made, and has in a variable, or wait until who opens it now has done so."""
        compute = resident.compute
        compute.open()
        if not _works(compute):
            _close(compute)
            with self._lock:
                self._put(name, resident)
            compute.open()

    def _make(self, name: str, asked: Asked) -> "Compute":
        if self._factory is None:
            from skyward.pool.compute import Compute  # the engine is loaded when the first pool is

            self._factory = Compute
        return self._factory(name=name, **compute_fields({**self._defaults(name), **asked}))

    def _forget(self, name: str, resident: _Resident) -> None:
        with self._lock:
            if self._pools.get(name) is resident:
                del self._pools[name]

    def _refuse_differences(self, name: str, resident: _Resident, asked: Asked) -> None:
        has = {path: _current(resident, path) for path in asked}
        differing = [path for path in asked if not _same(path, has[path], asked[path])]
        if not differing:
            return
        if differing == ["nodes"]:
            wanted, groups = asked["nodes"], resident.compute.groups
            resize = f"resize it with `%sky scale {name} {wanted}`"
            if len(groups) > 1:
                resize = f"resize a group of it with `pool.resize(nodes, group={next(iter(groups))!r})`"
            label = _label(self._labels, "nodes")
            raise SpecError(f"Pool {name!r} has {label} {has['nodes']}, not {wanted}: {resize}.")
        texts = [f"{_label(self._labels, path)} {_text(has[path])}, not {_text(asked[path])}" for path in differing]
        raise SpecError(
            f"Pool {name!r} has {'; '.join(texts)}: close it with `%sky down {name}` and run this again to replace it, "
            "or use another pool with `--pool NAME`."
        )


def _taken(name: str) -> UsageError:
    return UsageError(
        f"There is a pool {name!r} in this kernel already: close it with `%sky down {name}`, or use another name for "
        "the new one."
    )


def _asked_of(compute: "Compute") -> Asked:
    """What would have to be asked for to get a pool like it."""
    asked = {name: getattr(compute.options, name) for name in _OPTIONS}
    if len(compute.groups) > 1:
        asked["groups"] = compute.groups
    else:
        asked |= {field.name: getattr(compute.spec, field.name) for field in fields(compute.spec)}
    return field_paths(asked)


def _works(compute: "Compute") -> bool:
    """Whether tasks that are sent to it have a node to run on, now or soon."""
    if not compute.is_open:
        return False
    snapshot = compute.snapshot()
    return snapshot.desired == 0 or any(node.state in ("waiting", "active", "draining") for node in snapshot.nodes)


def _close(compute: "Compute") -> None:
    with contextlib.suppress(Exception):  # what is left of it must not keep the rest from closing
        compute.close()


def _current(resident: _Resident, path: str) -> Any:
    if path == "nodes":
        return resident.compute.asked_nodes
    group, dot, name = path.partition(".")
    compute = resident.compute
    owner: object = compute.options if group in _OPTIONS else compute.spec
    return getattr(getattr(owner, group), name) if dot else getattr(owner, path)


def _same(path: str, has: object, asked: object) -> bool:
    if path == "provider":
        return _provider_name(has) == _provider_name(asked)
    return bool(has == asked)


def _provider_name(provider: object) -> str:
    return provider if isinstance(provider, str) else str(getattr(provider, "name", None) or "local")


def _label(labels: Mapping[str, str], path: str) -> str:
    return labels.get(path, path)


def _text(value: object) -> str:
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
    return str(getattr(value, "name", None) if hasattr(value, "create_provider") else value)


_resident: PoolManager | None = None
_resident_lock = threading.Lock()


def resident(labels: Mapping[str, str] | None = None) -> PoolManager:
    """The pools of this kernel. They are closed when it ends."""
    global _resident
    with _resident_lock:
        if _resident is None:
            _resident = PoolManager(labels=labels, defaults=configured_values)
            atexit.register(_end, _resident)
            atexit.register(start_reaping())
        return _resident


def _end(pools: PoolManager) -> None:
    if is_forked():
        return  # they are of the kernel that this process was forked from
    try:
        pools.close_all()
    except ProvisioningError as error:
        notify(str(error))


def manager_of(compute: "Compute") -> PoolManager | None:
    """The pools of this kernel, if `compute` is one of them."""
    return _resident if _resident is not None and _resident.peek(compute.name) is compute else None
