"""Publisher of the pools' state to the panel, on a thread of its own.

It polls the pools for a new revision, and once a second for changes without one, such as the startup phase of a node.
It sends at most ten messages a second, and none when nothing has changed. The cost of a poll determines the pause
before the next one, so that polling takes no more than `SHARE` of one processor.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from skyward.errors import SkywardError
from skyward.frontends.views import FailedPoolRow, OrphanRow, PoolTables, Row, Table, project
from skyward_kernel.panel.encoding import changes, encode
from skyward_kernel.panel.protocol import Delta, FormField, PanelSnapshot
from skyward_kernel.pools import FailedStart

if TYPE_CHECKING:
    from skyward.frontends.pools import Compute, Orphan

__all__ = ["FindFailed", "FindOrphans", "Publisher", "Watched", "project_orphans"]

type FindOrphans = Callable[[], "Iterable[Orphan]"]
type FindFailed = Callable[[], Iterable[FailedStart]]

_logger = logging.getLogger(__name__)

GAP: Final = 0.1
SHARE: Final = 0.01
MOST_GAP: Final = 3.0
"""Minimum seconds between two polls; the share of a processor that they may take; and the maximum seconds."""

STALE_AFTER: Final = 1.0
"""Seconds after which a pool is projected again even if its revision has not changed."""

ORPHANS_EVERY: Final = 5.0
"""Seconds between polls for orphaned pools, each of which reads a file."""

FULL_EVERY: Final = 3.0
FULL_MOST: Final = 300
"""Seconds between periodic snapshots while there is work, and the maximum number of rows of one. A page that is
reloaded while a cell blocks the kernel cannot request a snapshot."""


class Watched(Protocol):
    """Pools by name, as `PoolManager` has them."""

    @property
    def names(self) -> list[str]:
        """Names of the pools."""
        ...

    def peek(self, name: str) -> "Compute | None":
        """Return the pool with a name, if there is one."""
        ...


class Publisher:
    """Publisher of the state of pools.

    Args:
        pools: the pools to watch.
        send: sends a message of JSON values; called from this object's thread.
        form: the fields of the form of a new pool.
        orphans: finds orphaned pools of other processes.
        failed: returns the pools that failed to open.
        gap: minimum seconds between two polls.
    """

    def __init__(
        self,
        pools: Watched,
        send: Callable[[dict[str, Any]], object],
        form: Iterable[FormField] = (),
        orphans: FindOrphans = tuple,
        failed: FindFailed = tuple,
        gap: float = GAP,
    ) -> None:
        self._pools = pools
        self._gap = gap
        self._send = send
        self._form = [encode(each) for each in form]
        self._find_orphans = orphans
        self._find_failed = failed
        self._orphans: Table = {}
        self._unopened = PoolTables()
        self._session = secrets.token_hex(8)
        self._seq = 0
        self._states: dict[str, PoolTables] = {}
        self._revisions: dict[str, tuple[int, int]] = {}
        self._polled_at = self._full_at = self._orphans_at = float("-inf")
        self._full = False
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._last: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start publishing, or send a snapshot if already started."""
        with self._lock:
            if self._thread is None:
                self._over = threading.Event()
                self._thread = self._last = threading.Thread(
                    target=self._run, args=(self._over, self._last), name="skyward-panel", daemon=True
                )
                self._thread.start()
        self.refresh()

    def poll_once(self) -> None:
        """Send a snapshot now, from the calling thread, unless publishing has started."""
        with self._lock:
            if self._thread is None:
                self._full = True
                self.poll()

    def refresh(self) -> None:
        """Send a snapshot soon."""
        self._full = True
        self._wake.set()

    def refresh_orphans(self) -> None:
        """Poll for orphaned pools soon."""
        self._orphans_at = float("-inf")

    def stop(self) -> None:
        """Stop publishing. Idempotent."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._over.set()
            self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self, over: threading.Event, before: threading.Thread | None) -> None:
        """Poll until `over` is set, once the previous thread has ended, which may still be in its last poll."""
        if before is not None:
            before.join()
        gap = self._gap
        while not over.is_set():
            self._wake.wait(gap)
            if over.is_set():
                return
            if self._wake.is_set():
                self._wake.clear()
                over.wait(self._gap)  # batches requests that arrive together
            began = time.perf_counter()
            try:
                self._poll_orphans()
                self.poll()
            except SkywardError:
                self._full = True  # a pool was closed during the poll: the next one leaves it out
            except Exception:
                _logger.exception("could not publish the state of the pools; retrying")
                self._full = True
            gap = min(MOST_GAP, max(self._gap, (time.perf_counter() - began) / SHARE))

    def _poll_orphans(self) -> None:
        """Poll for orphaned pools periodically, and when this kernel has a new pool, which may have been one."""
        now = time.monotonic()
        has_new = any(name not in self._states for name in self._pools.names)
        if has_new or now >= self._orphans_at + ORPHANS_EVERY:
            self._orphans_at = now
            self._orphans = project_orphans(self._find_orphans())

    def _poll_unopened(self) -> PoolTables:
        """Return the rows of pools that are not open in this kernel: the same object while they are unchanged."""
        failed: Table = {each.name: FailedPoolRow(each.name, each.reason, each.at) for each in self._find_failed()}
        tables = {"orphans": self._orphans, "failed_pools": failed}
        if tables != self._unopened.tables:
            self._unopened = PoolTables(tables)
        return self._unopened

    def poll(self) -> bool:
        """Poll the pools once, send the changes, and return whether anything was sent."""
        now = time.monotonic()
        if full := self._full:
            self._full = False  # only if it was set: another thread may set it right after the look
        revisions = {}
        for name in self._pools.names:
            compute = self._pools.peek(name)
            if compute is not None:
                revisions[name] = (id(compute), compute.revision)
        unopened = self._poll_unopened()
        unopened_changed = self._states.get("") is not unopened
        if not full and not unopened_changed and revisions == self._revisions and now < self._polled_at + STALE_AFTER:
            return False
        stale = full or now >= self._polled_at + STALE_AFTER
        before = self._states
        states: dict[str, PoolTables] = {"": unopened}
        for name, revision in revisions.items():
            known = before.get(name) if self._is_same(name, revision) else None
            full = full or (known is None and name in before)  # replaced by another pool of that name
            if known is not None and not stale and self._revisions.get(name) == revision:
                states[name] = known
            elif (state := self._project(name, known)) is not None:
                states[name] = state
        self._states, self._revisions = states, revisions
        if stale:
            self._polled_at = now
        rows, gone = changes(before, states)
        return self._publish(rows, gone, full, now)

    def _is_same(self, name: str, revision: tuple[int, int]) -> bool:
        """Return whether the pool with a name is the same object as at the last poll."""
        return self._revisions.get(name, (0, 0))[0] == revision[0]

    def _project(self, name: str, known: PoolTables | None) -> PoolTables | None:
        compute = self._pools.peek(name)
        if compute is None:
            return None
        decided, wrote = (known.last_decision - 1, known.last_output) if known is not None else (0, 0)
        report = compute.report(decisions_after=decided, output_after=wrote)
        return project(report, known, len(compute.recovered))

    def _publish(
        self, rows: Mapping[str, Mapping[str, Row]], gone: Mapping[str, tuple[str, ...]], full: bool, now: float
    ) -> bool:
        full = full or (
            now >= self._full_at + FULL_EVERY
            and any(_works(state) for state in self._states.values())
            and sum(state.size for state in self._states.values()) <= FULL_MOST
        )
        if not (full or rows or gone):
            return False
        self._seq += 1
        if full:
            self._full_at = now
            everything = changes({}, self._states)[0]
            self._send(encode(PanelSnapshot(self._session, self._seq, _encoded(everything))) | {"form": self._form})
        else:
            self._send(encode(Delta(self._session, self._seq, _encoded(rows), gone)))
        return True


def _works(state: PoolTables) -> bool:
    return any(
        row.queued or row.running or row.state != "ready"  # type: ignore[union-attr]  # of the table of pools
        for row in state["pools"].values()
    )


def _encoded(rows: Mapping[str, Mapping[str, Row]]) -> dict[str, dict[str, dict[str, Any]]]:
    return {table: {key: encode(row) for key, row in entries.items()} for table, entries in rows.items()}


def project_orphans(orphans: "Iterable[Orphan]") -> Table:
    """Project orphaned pools to their rows, leaving out those that are due to be reaped."""
    return {
        orphan.id: OrphanRow(
            id=orphan.id,
            name=orphan.name,
            host=orphan.host,
            pid=orphan.pid,
            machines=orphan.machines,
            per_hour=orphan.per_hour,
            seen_at=orphan.seen,
            ends_at=orphan.warm_until or orphan.seen + orphan.lease,
            attachable=orphan.attachable,
            warm=orphan.warm_until > 0,
        )
        for orphan in orphans
        if orphan.machines and not orphan.due
    }
