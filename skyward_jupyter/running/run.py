"""The path of a cell: from its text to a pool, and back into the notebook."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from skyward.errors import CredentialsError, ProvisioningError, SkywardError, UsageError
from skyward.frontends.calls import KEEP_FOR, open_with, stop_all
from skyward.frontends.cells import CellEnd, bind_with, unpack_shared
from skyward.frontends.commands import POOL_LABELS
from skyward.frontends.configuration import FrozenMap, Retries, provider_config, target_of
from skyward.frontends.files import FetchedVersions, FileOptions, FileTransfer, Shape
from skyward.frontends.views import count_text, duration_text, screen, shown_value
from skyward_jupyter.cells.capture import Capture, capture
from skyward_jupyter.cells.cell import CellCode, blank_lines
from skyward_jupyter.cells.manifest import SHOWN_FROM
from skyward_jupyter.cells.name_checks import elements_of
from skyward_jupyter.display.elements import MOST, Elements, weight
from skyward_jupyter.display.footer import Footer
from skyward_jupyter.display.plotting import LivePlot
from skyward_jupyter.display.progress import meter, opening
from skyward_jupyter.display.recorder import OutputRecorder
from skyward_jupyter.display.sections import NodeSections
from skyward_jupyter.display.sink import CellSink
from skyward_jupyter.failures.presentation import interrupted
from skyward_jupyter.failures.tracebacks import as_cell_error
from skyward_jupyter.running.analysis import analyse_cell, named_source, refuse_stream
from skyward_jupyter.running.cell_display import CellDisplay
from skyward_jupyter.running.cell_run import CellRun
from skyward_jupyter.running.handle import CellHandle
from skyward_jupyter.running.local import LocalCell
from skyward_jupyter.running.readahead import ReadAhead, StreamHandle
from skyward_jupyter.running.recovered import RecoveredCells
from skyward_jupyter.running.status_line import follow
from skyward_jupyter.running.stopping import stopping_text

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward.frontends.cells import Packed
    from skyward.frontends.configuration import Nodes
    from skyward.frontends.pools import Compute, PoolSnapshot, Run
    from skyward_jupyter.options.cell_options import CellOptions
    from skyward_jupyter.options.settings import CellSettings
    from skyward_kernel.pools import PoolManager

__all__ = ["NO_LIMIT", "CellRunner"]

REFRESH = 0.25
"""Seconds between two polls of the output of nodes, where it is merged."""

KEPT = 5
"""Most finished background cells that can be shown again, with their results; the latest ones."""

_ONLY_THE_LAST = (
    f"The cell has yielded more than the {MOST:,} elements or 1 GiB that are kept: only the last ones stay in"
)

NO_LIMIT = 30 * 86400.0
"""Default timeout of a cell in seconds. The default of a pool is meant for functions; a cell is often a whole job."""


class CellRunner:
    """Runs the cells of one notebook.

    Attributes:
        background: handles of the cells in the background, oldest first, with only the latest finished ones.
    """

    def __init__(self, shell: "InteractiveShell", pools: "PoolManager") -> None:
        self._shell = shell
        self.pools = pools
        self._display = CellDisplay(shell)
        self.background: list[CellHandle] = []
        self._environ = dict(os.environ)
        self._fetched = FetchedVersions()
        here = ref(shell)
        open_with(lambda packed: _unpickle_in(here(), packed))
        bind_with(RecoveredCells(lambda: _names_of(here()), _notify))

    def run(
        self,
        raw: str,
        options: "CellOptions",
        settings: "CellSettings",
        *,
        returns_value: bool = False,
        local: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Run a cell, and return the magic's value: None, a list with `--map`, a handle with `--noblock`.

        Afterwards `_` is the value of the cell, or the list of its elements if it yields. With `returns_value`, for
        `%sky!`, the value is returned and not displayed, and `local` has the variables of the surrounding function.

        Raises:
            UsageError: the cell, or an option, is invalid. Nothing was sent.
            PayloadError: a variable cannot be pickled. Nothing was sent.
            KeyboardInterrupt: the user interrupted it; the work was stopped.
            BaseException: the exception of the cell.
        """
        if options.local:
            return self._run_here(raw, options, settings, returns_value=returns_value, local=local)
        code = analyse_cell(self._shell, raw, options, first_line=1 if returns_value else 2)
        if code.is_stream and returns_value:
            raise UsageError("%sky! returns one value, so its code cannot yield: use a %%sky cell.")
        if code.packages:
            options = self._with_packages(options, code.packages)
        self.pools.check(options.pool, options.asked)
        self._check_place(options)
        transfer = self._file_transfer(options)
        sent = self._capture(code, options, settings, local)
        sent = replace(sent, manifest=replace(sent.manifest, files=transfer.described))
        if returns_value:
            sent = replace(sent, request=replace(sent.request, shows=False, returns_value=True))
        if options.dry_run:
            self._explain(sent, options)
            return None
        is_large = sent.manifest.worth_showing or transfer.choice.nbytes > SHOWN_FROM
        if is_large and not options.quiet:
            self._display.publish(sent.manifest)
        for notice in (*sent.notices, *self._environment(code, options)):
            _notify(notice)
        compute = self.open(options.pool, options.asked, settings, quiet=options.quiet)
        files = transfer.request(shared=transfer.is_asked and _shares_files(compute))
        sent = replace(sent, request=replace(sent.request, files=files))
        return self._send(compute, code, sent, options, settings, raw, transfer, returns_value=returns_value)

    def _run_here(
        self,
        raw: str,
        options: "CellOptions",
        settings: "CellSettings",
        *,
        returns_value: bool,
        local: Mapping[str, Any],
    ) -> Any:
        """Run a cell in the notebook's process."""
        started = time.monotonic()
        shell: Any = self._shell
        elements = None if options.map is None else elements_of(options.map, {**self._shell.user_ns, **local})
        try:
            text = "\n" * ((0 if returns_value else 1) + blank_lines(raw)) + shell.transform_cell(raw)
            cell = LocalCell(text, named_source(self._shell, text, 1), self._shell.user_ns, local)
        except SyntaxError as error:
            raise as_cell_error(error) from None
        if cell.is_stream:
            refuse_stream(options)
        shown = settings.footer and options.footer and not options.quiet
        try:
            if options.map is not None and elements is not None:
                values = cell.run_each(options.map, elements)
                has_value = any(value is not None for value in values)
                return values if has_value or (cell.shows_value and not values) else None  # as on nodes
            if cell.is_stream:
                self._show_here(cell)
                return None
            value = cell.run()
            if returns_value:
                return value
            if value is not None:
                shell.displayhook(value)
            return None
        finally:
            if shown:
                self._display.publish(Footer((), (), time.monotonic() - started))

    def _show_here(self, cell: LocalCell) -> None:
        """Show the elements of a local cell that yields, as they arrive, and bind their list to `_`."""
        elements = []
        try:
            with closing(cell.stream(self._display.show)) as stream:
                for element in stream:
                    elements.append(element)
                    self._display.show(element)
        finally:
            self._display.remember(elements)

    def wait_for_nodes(
        self, name: str, wanted: "Nodes", group: str | None, settings: "CellSettings", *, quiet: bool
    ) -> int:
        """Wait until a pool, or a group of it, has as many nodes as requested, and return their number.

        Raises:
            UsageError: the pool was closed meanwhile.
            ProvisioningError: the nodes cannot be launched.
            KeyboardInterrupt: the user interrupted the wait.
        """
        compute = self.pools.get(name)
        started = time.monotonic()

        def text() -> str:
            active, _, desired = _nodes_of(compute.snapshot(), group)
            elapsed = duration_text(time.monotonic() - started)
            return f"Pool {name!r}: {active} of {count_text(desired)} ready, {elapsed}"

        try:
            with self._display.progress(text, settings, quiet):
                while (nodes := _settled_nodes(name, compute.snapshot(), wanted, group)) is None:
                    time.sleep(REFRESH)
        except KeyboardInterrupt:
            raise interrupted(f"pool {name!r} keeps scaling to {count_text(wanted)}.") from None
        return nodes

    def _with_packages(self, options: "CellOptions", packages: tuple[str, ...]) -> "CellOptions":
        """Return `options` with the packages of `%pip install` in the cell added to `--pip`.

        Raises:
            UsageError: the pool is open without one of them.
        """
        compute = self.pools.find(options.pool)
        path = "image.pip"
        planned = self.pools.plan(options.pool, options.asked)
        there: Sequence[str] = planned.get(path, ()) if compute is None else compute.spec.image.pip
        if compute is not None and (missing := [name for name in packages if name not in there]):
            wanted = ",".join(dict.fromkeys((*there, *missing)))
            raise UsageError(
                f"%pip install {' '.join(missing)}: pool {options.pool!r} is open without it, and packages are "
                f"installed when a node starts: replace its nodes one by one with `%sky update {options.pool} --pip "
                f"{wanted}`, or close it with `%sky down {options.pool}` and run this cell again."
            )
        if compute is not None and path not in options.asked:
            return options
        asked = {**options.asked, path: tuple(dict.fromkeys((*there, *packages)))}
        return replace(options, asked=FrozenMap(asked))

    def _check_place(self, options: "CellOptions") -> None:
        """Check that the group of `--on` exists, before a pool is opened for it."""
        compute = self.pools.find(options.pool)
        groups = self.pools.plan(options.pool, options.asked).get("groups") if compute is None else compute.groups
        target_of(options.on, options.pool, groups or ["default"])

    def _environment(self, code: CellCode, options: "CellOptions") -> Iterator[str]:
        """Yield a sentence for each environment variable that the cell names and the nodes do not have."""
        if self.pools.find(options.pool) is None:
            return
        for name, value in dict(os.environ).items():
            if self._environ.get(name) != value and name in code.source:
                yield (
                    f"os.environ[{name!r}] was set in the notebook, but the running nodes do not have it: "
                    f"pass the value as a variable, or open the pool with `--env {name}=...`."
                )

    def open(self, name: str, asked: Mapping[str, Any], settings: "CellSettings", *, quiet: bool = False) -> "Compute":
        """Return the pool of that name; open it first if necessary, with a progress line.

        Raises:
            SpecError: the pool is open, and differs from `asked`.
            ProvisioningError: its machines cannot be launched.
            KeyboardInterrupt: the user interrupted it; the machines of the pool were released.
        """

        def shown(compute: "Compute") -> AbstractContextManager[None]:
            return opening(self._shell, compute, settings, enabled=not quiet)

        try:
            return self.pools.get_or_open(name, asked, opening=shown)
        except KeyboardInterrupt:
            if self.pools.peek(name) is not None:
                raise interrupted(f"pool {name!r} is still being opened by other code.") from None
            raise interrupted(f"pool {name!r} was not opened, and its machines were released.") from None

    def _capture(
        self, code: CellCode, options: "CellOptions", settings: "CellSettings", local: Mapping[str, Any]
    ) -> Capture:
        from skyward.frontends.pools import nodes_with  # loads the engine, so it is imported late

        limit = options.capture_limit or settings.capture_limit
        pool = self.pools.find(options.pool)
        return capture(
            code,
            self._shell.user_ns,
            limit=limit,
            holds=(lambda _: ()) if pool is None else partial(nodes_with, pool),
            nodes=() if pool is None else [node.rank for node in pool.snapshot().nodes],
            map_name=options.map,
            gang=options.gang,
            in_place=not options.on_several,
            is_next=_shape(options) == "single" and not options.noblock,
            keep=options.keep,
            keep_for=KEEP_FOR if options.keep_for is None else options.keep_for,
            local=local,
        )

    def _file_transfer(self, options: "CellOptions") -> FileTransfer:
        """Resolve the options for files."""
        asked = FileOptions(options.files, options.sync, options.fetch, options.excludes, options.file_limit)
        return FileTransfer(asked, os.getcwd(), self._fetched, _shape(options), _notify, options.quiet)

    def _explain(self, sent: Capture, options: "CellOptions") -> None:
        """Show the data that would be sent, and its destination."""
        self._display.publish(sent.manifest)
        if self.pools.find(options.pool) is not None:
            plan = f"It would run on pool {options.pool!r}, which is open."
        else:
            made = self.pools.plan(options.pool, options.asked)
            asked = ", ".join(
                f"{POOL_LABELS.get(path, path)} {shown_value(path, value)}" for path, value in made.items()
            )
            plan = f"It would open pool {options.pool!r} with {asked or 'one local node'}.{_quoted(options.pool, made)}"
        asks = f" It would ask for {options.needs}." if options.needs else ""
        runs = "" if options.map is None else f" It would run {len(sent.pendings)} times."
        if options.gang is not None:
            where = "" if options.placement is None else f" with placement {options.placement!r}"
            runs = f" It would run as a gang: {count_text(options.gang, 'time')} at once{where}."
        sys.stdout.write(f"{plan}{asks}{runs} Nothing was sent.\n")

    def _send(
        self,
        compute: "Compute",
        code: CellCode,
        sent: Capture,
        options: "CellOptions",
        settings: "CellSettings",
        raw: str,
        transfer: FileTransfer,
        *,
        returns_value: bool,
    ) -> Any:
        if options.keep and compute.options.worker.resolved_executor == "process":
            raise UsageError(
                f"--keep {','.join(options.keep)}: the tasks of pool {options.pool!r} run in separate processes, which "
                "cannot keep values. Use a pool with the executor 'thread', which is the default."
            )
        started = time.monotonic()
        shape = _shape(options)
        runs: list[Run[Any]] = []

        def text() -> str:
            return meter(cell.done, len(runs), time.monotonic() - started)

        progress = self._display.progress(text, settings, options.quiet or shape != "map" or options.noblock)
        recorder = OutputRecorder() if options.noblock else None
        sections = NodeSections(self._shell) if options.by_node else None
        cell_sink = CellSink(self._shell, label=shape == "all" or options.gang is not None, recorder=recorder)
        sink = sections or cell_sink
        footed = settings.footer and options.footer and not options.quiet
        finish = _with_retry_notices(sink.finish, runs) if options.retries else sink.finish
        names_node = not footed and len(compute.snapshot().nodes) > 1
        cell = CellRun(
            runs,
            shape,
            self._shell.user_ns,
            _notify,
            finish,
            sent.originals,
            names_node,
            transfer,
            is_gang=options.gang is not None,
        )
        footer = self._display.footer(runs, started, shown=footed)
        limit = options.timeout or (None if code.is_stream else NO_LIMIT)
        plot = LivePlot(self._shell, _notify, recorder) if options.plot else None
        try:
            # Sent one by one, so that an interrupt stops those that were sent before.
            retries = Retries(options.retries)
            pendings = [
                replace(pending, timeout=limit, needs=options.needs, grace=settings.interrupt_grace, retries=retries)
                for pending in sent.pendings
            ]
            if options.gang is not None:
                sinks = [cell_sink.of_member(rank) for rank in range(len(pendings))]
                placement = options.placement or "pack"
                compute.start_gang(pendings, placement, sinks=sinks, runs=runs, waits=not options.noblock)
                _stop_with_the_first(runs)
            else:
                for pending in pendings:
                    compute.start(pending, on=options.on, sink=sink, runs=runs, waits=not options.noblock)
            if sections is not None:
                runs[0].future.add_done_callback(lambda _: sections.finish())
            if options.noblock:
                stream = self._read_ahead(runs, plot) if code.is_stream else None
                cell.release_when_done()
                handle = self._handle(cell, options, settings, raw, sections or recorder, stream)
                if settings.show_progress and not options.quiet:
                    follow(self._shell, handle, runs, footer=footed)
                if stream is not None:
                    stream.line = handle.line
                return handle
            if code.is_stream:
                with footer:
                    self._show_stream(cell, plot)
                return None
            with progress:
                while not cell.wait(None if sections is None else REFRESH):
                    sink.refresh()
            with footer:
                value = cell.collect()
        except KeyboardInterrupt:
            value = self._stop(cell, settings, quiet=options.quiet)
        except BaseException:
            stop_all(runs)
            raise
        if shape == "map":
            return [] if not runs and code.shows_value else value
        if returns_value:
            return value
        self._display.remember(value)  # displayed before
        return None

    def _stop(self, cell: CellRun, settings: "CellSettings", *, quiet: bool) -> Any:
        """Stop a cell that the user has interrupted; return its value if it has finished nevertheless.

        Raises:
            KeyboardInterrupt: the cell was stopped; the names that it had assigned are bound.
            BaseException: the exception of the cell.
        """
        grace, since = settings.interrupt_grace, time.monotonic()

        def last() -> str:
            return f"Waited {duration_text(time.monotonic() - since)} for the variables of the cell"

        stop = cell.stop(grace, self._display.progress(stopping_text(cell.runs, grace), settings, quiet, last))
        if stop.ended and not any(run.is_stream for run in cell.runs):
            return cell.collect()
        raise interrupted(cell.bind_after_stop(stop)) from None

    def _show_stream(self, cell: CellRun, plot: LivePlot | None) -> None:
        """Show the elements of a cell that yields, as they arrive, and bind their list to `_`."""
        elements = Elements(lambda: _notify(f"{_ONLY_THE_LAST} `_`."))
        try:
            with plot or nullcontext():
                for element in cell.items():
                    elements.add(element, weight(element))
                    if plot is None or not plot.add(element):
                        self._display.show(element)
        finally:
            self._display.remember(elements.kept())

    def _read_ahead(self, runs: "list[Run[Any]]", plot: LivePlot | None) -> ReadAhead:
        """Replace the run of a stream with one that prefetches its elements."""
        elements = Elements(lambda: _notify(f"{_ONLY_THE_LAST} the handle."))
        if plot is not None:
            plot.place()
        stream = ReadAhead(runs[0], elements, self._shell.user_ns, plot)
        stream.start()
        runs[0] = cast("Run[Any]", stream)
        return stream

    def _handle(
        self,
        cell: CellRun,
        options: "CellOptions",
        settings: "CellSettings",
        raw: str,
        recorder: OutputRecorder | NodeSections | None,
        stream: ReadAhead | None,
    ) -> CellHandle:
        over = [handle for handle in self.background if handle.done()]
        self.background = [handle for handle in self.background if handle not in over[:-KEPT]]
        number = max((handle.number for handle in self.background), default=0) + 1
        line = next((line.strip() for line in raw.splitlines() if line.strip()), "")
        details = (cell, number, options.pool, line, settings.interrupt_grace, recorder)
        handle = CellHandle(*details) if stream is None else StreamHandle(*details, stream=stream)
        self.background.append(handle)
        return handle


def _unpickle_in(shell: "InteractiveShell | None", packed: "Packed") -> Any:
    """Unpickle a fetched value with the classes of the notebook."""
    return unpack_shared(packed, CellEnd(_names_of(shell), is_notebook=True))


def _names_of(shell: "InteractiveShell | None") -> dict[str, Any]:
    return {} if shell is None else shell.user_ns


def _shape(options: "CellOptions") -> Shape:
    return "map" if options.map is not None or options.gang is not None else "all" if options.on_several else "single"


def _stop_with_the_first(runs: "Sequence[Run[Any]]") -> None:
    """Stop the other runs of a gang once one has failed: they may wait for it.

    They started together, so a run that reaches the timeout ends the time of all, whichever is the first.
    """

    from skyward.frontends.pools import stop_overdue  # loads the engine, so it is imported late

    def over(run: "Run[Any]", _: object) -> None:
        if run.timed_out:
            stop_overdue(runs)
        elif run.state in ("failed", "cancelled") and not run.is_only_unsaved:
            stop_all(runs)

    for run in runs:
        run.future.add_done_callback(partial(over, run))


def _quoted(name: str, asked: Mapping[str, Any]) -> str:
    """Return sentences on the machines that a new pool would launch; empty if all are local."""
    from skyward.frontends.pools import Compute, describe_quote, pool_fields, price_notes, quote

    try:
        pool = Compute(name=name, **pool_fields(asked))
    except CredentialsError as error:
        return f" It could launch no machine now: {error}"
    if all(provider_config(spec).name == "local" for specs in pool.groups.values() for spec in specs):
        return ""
    try:
        groups = quote(pool)
    except SkywardError as error:
        return f" It could launch no machine now: {error}"
    several = len(groups) > 1
    parts = [f"{f'Group {each.group!r}: ' if several else ''}{describe_quote(each)}" for each in groups]
    parts += dict.fromkeys([note for each in groups for note in each.notes])
    return "".join(f" {part}" for part in (*parts, *price_notes(pool, groups)))


def _shares_files(compute: "Compute") -> bool:
    """Return whether all nodes of a pool have the files of this machine."""
    specs = [spec for alternatives in compute.groups.values() for spec in alternatives]
    return all(getattr(provider_config(spec), "shares_files", False) for spec in specs)


def _with_retry_notices(finish: Callable[[], object], runs: "Sequence[Run[Any]]") -> Callable[[], object]:
    """Return `finish` with a notice for each retried run."""

    def finish_and_tell() -> None:
        finish()
        for times, reason in (each for run in runs for each in run.retries):
            often = "once" if times == 1 else f"{times} times"
            _notify(f"The cell was retried {often}, the last time because {reason}.")

    return finish_and_tell


def _nodes_of(pool: "PoolSnapshot", group: str | None) -> tuple[int, int, int]:
    """Return the active, the existing and the desired nodes of a pool, or of a group of it."""
    nodes = [node for node in pool.nodes if group in (None, node.group)]
    desired = pool.desired if group is None else pool.desired_in[group]
    return sum(node.state == "active" for node in nodes), len(nodes), desired


def _settled_nodes(name: str, pool: "PoolSnapshot", wanted: "Nodes", group: str | None) -> int | None:
    """Return the number of nodes of a pool or group that has as many as requested; None while nodes join or leave.

    Raises:
        UsageError: the pool was closed.
        ProvisioningError: the nodes cannot be launched.
    """
    if pool.state != "ready":
        raise UsageError(f"Pool {name!r} was closed before its nodes were ready.")
    active, existing, desired = _nodes_of(pool, group)
    # The policy may have changed the desired number of nodes meanwhile.
    needed = wanted.min if wanted.desired is None else max(wanted.min, min(wanted.desired, desired))
    is_blocked = group is None or active == existing  # else the failure may be that of another group
    if active < needed and pool.failure and is_blocked:
        raise ProvisioningError(f"Pool {name!r} {pool.failure}")
    most = max(wanted.ceiling, desired)  # nodes that keep values stay, even above the maximum
    return active if active == existing and needed <= active <= most else None


def _notify(sentence: str) -> None:
    screen.put("stderr", f"{sentence}\n", _notify)
