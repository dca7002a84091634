"""Dispatch of pending functions to tasks on the loop: pickles on the calling thread, returns futures."""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from skyward.control.act.pool_tasks import PoolTasks
from skyward.control.act.tasks.future import (
    TaskFuture,
    depends_on,
    end_cancelled,
    on_cancel,
    runs_while,
    set_members,
    when_done,
)
from skyward.control.act.tasks.inputs import TaskInputs
from skyward.control.act.tasks.merged_streams import MergedBuffer
from skyward.control.act.tasks.run import Run, follow, future_of
from skyward.control.act.tasks.stopping import stop_all
from skyward.control.act.tasks.streams import Feeder, StreamBuffer, feeder
from skyward.control.act.tasks.task import BroadcastWork, Sink, Work
from skyward.control.observe.origin import CELL_FUNCTIONS, current_origin
from skyward.errors import NotPicklableError, PoolClosedError, SpecError, UsageError, error_of_nodes
from skyward.formatting import joined
from skyward.functions.decorator import (
    PendingFunction,
    SkyFunction,
    is_generator,
    stream_arguments,
    stream_parameters,
)
from skyward.pool.future_arguments import Taken, may_hold_futures
from skyward.pool.series import MapSender, SentMap
from skyward.process import background
from skyward.specs import Options
from skyward.specs.placement import Several
from skyward.values.gangs import GangPlacement
from skyward.wire.payloads.arguments import StreamMarker
from skyward.wire.payloads.code import PreparedCode, prepare_code
from skyward.wire.payloads.payload import Outgoing, encode_call

__all__ = ["Dispatcher"]


class Dispatcher:
    """Dispatcher of pending functions to one pool."""

    def __init__(self, tasks: PoolTasks, options: Options) -> None:
        self._tasks = tasks
        self._options = options

    def start(
        self,
        pendings: Sequence[PendingFunction[Any]],
        sink: Sink,
        target: int | None,
        runs: list[Run[Any]],
        within: float | None = None,
        *,
        waits: bool = False,
        codes: dict[int, PreparedCode] | None = None,
    ) -> None:
        """Send tasks, in order. A function that occurs several times is pickled once.

        Args:
            within: seconds after which unfinished tasks are stopped; None for no limit.
            codes: functions that are not pickled again, by their identity; new ones are added.
            waits: see `Compute.start`.
            runs: the runs of the tasks are added to it before any task is sent.

        Raises:
            PayloadError: a task cannot be sent; none was sent.
        """
        known: dict[int, PreparedCode] = {} if codes is None else codes
        works = [self._work(pending, sink, known, waits=waits) for pending in pendings]
        for work in works:
            work.target = target
        runs += [follow(self._tasks, work) for work in works]
        background.call_soon(self._tasks.submit, works)
        if within is not None and works:
            background.call_soon(self._tasks.limit, works, within)

    def start_gang(
        self,
        pendings: Sequence[PendingFunction[Any]],
        placement: GangPlacement,
        sinks: Sequence[Sink],
        runs: list[Run[Any]],
        within: float | None = None,
        *,
        waits: bool = False,
    ) -> None:
        """Send tasks that start together or not at all, by their ranks in the gang.

        Args:
            placement: how they are spread over the nodes.
            sinks: receiver of the output of each.
            runs: see `start`, as for `within` and `waits`.

        Raises:
            UsageError: a task takes a future, an iterator or a kept value, or yields its results; none was sent.
            PayloadError: a task cannot be sent; none was sent.
        """
        known: dict[int, PreparedCode] = {}
        given = zip(pendings, sinks, strict=True)
        works = [self._work(pending, sink, known, waits=waits) for pending, sink in given]
        for work in works:
            if reason := _unfit_for_gang(work):
                what = "This cell" if work.code.name in CELL_FUNCTIONS else f"{work.code.name}()"
                raise UsageError(f"{what} cannot be a member of a gang: {reason}.")
            work.is_in_gang = True
        runs += [follow(self._tasks, work) for work in works]
        background.call_soon(self._tasks.submit_gang, works, placement)
        if within is not None:
            background.call_soon(self._tasks.limit, works, within)

    def map(
        self,
        call: SkyFunction[..., Any],
        items: Sequence[tuple[Any, ...]],
        sink: Sink,
        runs: list[Run[Any]],
        started: Callable[[TaskFuture[Any]], object] = lambda _: None,
        *,
        waits: bool = False,
    ) -> SentMap:
        """Send a call for each item, several in one task where they are short.

        Args:
            call: a function for which `is_serial` holds.
            runs: the runs of the tasks are added to it before any of them is sent.
            started: called with the future of each task before it is sent, on the library's loop too. A task whose
                future is done by then is not sent.
            waits: see `Compute.start`.

        Raises:
            PayloadError: a call cannot be sent. Others may have been.
        """
        codes: dict[int, PreparedCode] = {}

        def work(pending: PendingFunction[Any]) -> Work:
            return self._work(pending, sink, codes, waits=waits)

        timeout = self._options.default_compute_timeout
        return MapSender(self._tasks, call, work, sink, timeout, runs, started, waits=waits).send(items)

    def _work(self, pending: PendingFunction[Any], sink: Sink, codes: dict[int, PreparedCode], *, waits: bool) -> Work:
        function = pending.fn
        streams = is_generator(function)
        as_is = waits and not streams  # the caller of a stream continues between its elements
        code = codes.get(id(function))
        if code is None:
            code = codes[id(function)] = prepare_code(function, as_is=as_is)
        args, kwargs, feeders = _split_streams(function, pending.args, pending.kwargs)
        call, takes = _encode_call(args, kwargs, code.name, as_is=as_is)
        timeout = pending.timeout
        if timeout is None and not streams:
            timeout = self._options.default_compute_timeout
        stream = StreamBuffer() if streams else None
        origin = current_origin.get()
        inputs = TaskInputs(code.name, takes, pending.waits_for) if takes or pending.waits_for else None
        if feeders and pending.retries.times:
            raise SpecError(f"{code.name}() reads an iterator, which cannot be read again for `retries=`: pass a list.")
        future: TaskFuture[Any] = TaskFuture()
        future.name = f"{code.name}()"
        return Work(
            code,
            call,
            future,
            sink,
            timeout,
            stream,
            feeders,
            pending.needs,
            pending.retries,
            origin=origin,
            inputs=inputs,
            grace=pending.grace,
            as_is=as_is,
        )

    def broadcast(
        self,
        pending: PendingFunction[Any],
        sink: Sink,
        runs: list[Run[Any]],
        where: Several,
        *,
        waits: bool = False,
    ) -> None:
        """Send a task to several nodes.

        Args:
            waits: see `Compute.start`.
            runs: the run of the broadcast is added to it before any task is sent.

        Raises:
            PayloadError: the task cannot be sent; nothing was sent.
        """
        if stream_parameters(pending.fn):
            raise SpecError("An iterator cannot be broadcast: each element would reach only one node. Pass a list.")
        template = self._work(pending, sink, {}, waits=waits)
        tasks = self._tasks
        future: TaskFuture[list[Any]] = TaskFuture()
        members: dict[tuple[int, int], Work] = {}

        merged = None if template.stream is None else MergedBuffer(future)

        def make(label: int) -> Work:
            future: TaskFuture[Any] = TaskFuture()
            work = Work(template.code, template.call, future, sink, template.timeout, needs=template.needs)
            work.retries, work.origin, work.inputs = template.retries, template.origin, template.inputs
            work.is_member, work.grace, work.as_is = True, template.grace, template.as_is
            work.stream = None if merged is None else merged.add(label)
            follow(tasks, work)
            return work

        broadcast = BroadcastWork(
            make,
            future,
            partial(_collect, future, together=tasks.together),
            members,
            template.needs,
            template.code.name,
            template.retries,
            template.inputs,
            where,
            template.kept,
        )
        future.name = template.future.name
        on_cancel(future, lambda: background.call_soon(tasks.cancel_broadcast, broadcast))
        depends_on(future, lambda: [work.future for work in tuple(members.values())])
        runs_while(future, lambda: any(work.running for work in tuple(members.values())))
        runs.append(Run(future, lambda: [members[place] for place in sorted(members)], merged))
        background.call_soon(tasks.broadcast, broadcast)

    def gathered(self, runs: Sequence[Run[Any]]) -> TaskFuture[tuple[Any, ...]]:
        """Return a future of the results of `runs`; the first error stops the others. Streams are not awaited."""
        future: TaskFuture[tuple[Any, ...]] = TaskFuture()
        future.name = "a group"
        given = [future_of(run) for run in runs]
        set_members(future, tuple(given))
        runs = list(runs)
        left = sum(not run.is_stream for run in runs)
        counting = threading.Lock()

        def stop() -> None:
            stop_all(runs)

        def end() -> None:
            stop()
            runs.clear()  # callbacks refer to these lists, and so to tracebacks of errors
            given.clear()

        def one_done(ended: Future[Any]) -> None:
            nonlocal left
            with counting:
                left -= 1
                is_last = not left
            if future.done():
                return
            if ended.cancelled():
                end_cancelled(future, "The group was cancelled.")
                end()
            elif (error := Future.exception(ended)) is not None:
                future.set_exception(error)
                end()
            elif is_last:
                future.set_result(_Results(tuple(given), tuple))  # type: ignore[arg-type]  # decoded later

        on_cancel(future, stop)
        depends_on(future, lambda: tuple(given))
        runs_while(future, lambda: any(run.future.running() for run in tuple(runs)))
        if not left:
            future.set_result(_Results(tuple(given), tuple))  # type: ignore[arg-type]  # decoded later
        for run in tuple(runs):
            if not run.is_stream:
                when_done(run.future, one_done)
        return future


def _unfit_for_gang(work: Work) -> str:
    """Return why a task cannot be a member of a gang; empty if it can."""
    if work.stream is not None:
        return "it yields its results one by one, and the members of a gang return theirs together"
    if work.inputs is not None:
        waits = "it waits for a future, and the members start together"
        if work.inputs.takes:
            return f"{waits}; pass the result, as in `f(x.result())`"
        return f"{waits}; call `x.result()` first, without `.after`"
    if work.feeders:
        return "it reads an iterator, which cannot be read again if the gang runs again; pass a list"
    if work.kept:
        names = joined(handle.name for handle in work.kept)
        return (
            f"it uses {names}, which one node keeps, and a gang runs where all its members fit; fetch the value first"
        )
    return ""


@dataclass(frozen=True, slots=True)
class _Results:
    """Results that are decoded when the result of their group is read."""

    futures: Sequence[Future[Any]]
    make: Callable[[Iterable[Any]], Any]

    def decode(self) -> Any:
        """Return the results, in order."""
        return self.make(future.result() for future in self.futures)


def _collect(future: TaskFuture[list[Any]], members: dict[tuple[int, int], Work], *, together: bool) -> None:
    """End the future of a broadcast. If its members work together, the first error is not a consequence of others."""
    works = [members[place] for place in sorted(members)]
    if not works:
        future.set_exception(PoolClosedError("The broadcast found no node to run on; open the pool first."))
        return
    failed = [(rank, work) for (rank, _), work in sorted(members.items()) if _error(work) is not None]
    errors = [(rank, error) for rank, work in failed if (error := _error(work)) is not None]
    if errors and together:
        future.set_exception(_first_error(failed, members))
    elif errors:
        future.set_exception(error_of_nodes(works[0].code.name, errors, len(works)))
    elif any(work.future.cancelled() for work in works):
        end_cancelled(future, "The broadcast was cancelled.")
    else:
        future.set_result(_Results([work.future for work in works], list))  # type: ignore[arg-type]  # decoded later


def _first_error(failed: list[tuple[int, Work]], members: dict[tuple[int, int], Work]) -> BaseException:
    """Return the error of a collective: that of the member which failed first, with a note about the others."""
    ranks = {id(work): position for position, (_, work) in enumerate(sorted(members.items()))}
    # Of errors that only follow from others, the first member's says most.
    (node, first), *others = sorted(
        failed, key=lambda each: (each[1].follows_loss, 0.0 if each[1].follows_loss else each[1].ended_at or 0.0)
    )
    error = _error(first)
    assert error is not None  # only those that failed are given
    if len(members) > 1:
        BaseException.add_note(error, f"It failed in rank {ranks[id(first)]} of {len(members)}, on node {node}.")
    followed = [f"rank {ranks[id(work)]} on node {where}: {type(_error(work)).__name__}" for where, work in others]
    if followed:
        BaseException.add_note(error, f"The others were stopped; some failed, too: {'; '.join(followed)}.")
    return error


def _encode_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], name: str, *, as_is: bool
) -> tuple[Outgoing, tuple[Future[Any], ...]]:
    """Encode the arguments; return them with the futures whose values replace the markers in them."""
    if not any(map(may_hold_futures, (*args, *kwargs.values()))):
        try:
            return encode_call(args, kwargs, name, as_is=as_is), ()
        except NotPicklableError:
            taken = Taken()
            placed, named = taken.replace(args, kwargs)
            if not taken.futures:
                raise
    else:
        taken = Taken()
        placed, named = taken.replace(args, kwargs)
    return encode_call(placed, named, name, as_is=as_is), tuple(taken.futures)


def _error(work: Work) -> BaseException | None:
    return None if work.future.cancelled() else Future.exception(work.future)


def _split_streams(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Feeder, ...]]:
    """Replace iterators in the arguments by markers; return the arguments and the feeders of the streams."""
    streams = stream_arguments(function, args, kwargs)
    if not streams:
        return args, kwargs, ()
    placed, named = list(args), dict(kwargs)
    feeders: list[Feeder] = []
    for place, source in streams.items():
        marker = StreamMarker(len(feeders))
        feeders.append(feeder(source))
        if isinstance(place, int):
            placed[place] = marker
        else:
            named[place] = marker
    return tuple(placed), named, tuple(feeders)
