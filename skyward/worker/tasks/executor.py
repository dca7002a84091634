"""The task slots of a node: one queue, served by threads; deadlines, interrupts, and forced ends.

Slot 0 of the thread executor is the main thread, where an interrupt ends even a blocking call. A task that does not
stop within `PATIENCE`, or within its own grace if that is longer, is given up: if it is alone in its process, the
process ends and is replaced; beside other tasks, only its thread is abandoned, with the interrupt still pending.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock  # tasks may replace the attributes of the module
from typing import Literal, Protocol

from skyward.process.clock import clock
from skyward.wire.protocol.messages import NO_PARTIAL_RESULT, PACKING_TIMEOUT, Finished, Payload
from skyward.worker.tasks.guard import Reason
from skyward.worker.tasks.jobs import ForJob, Job

__all__ = ["PATIENCE", "Slot", "TaskExecutor"]

PATIENCE = 0.8
"""Seconds that a task has to stop after a request."""

_AGAIN = 0.3
"""Seconds between interrupts of a task that does not stop: it may have caught the first one."""

_LAST = PATIENCE - _AGAIN
"""Seconds before the end of its patience at which a task is interrupted again: it may still handle the first one."""


class Slot(Protocol):
    """Runner of one job at a time."""

    def get_ready(self) -> None:
        """Prepare for the next job, outside the job's time."""

    def run(self, job: Job) -> Finished:
        """Run `job` until it ends."""

    def interrupt(self, reason: Reason) -> None:
        """Interrupt the running job."""

    def give_up(self) -> bool:
        """Kill the job if no other job is affected. Return whether that was possible."""


@dataclass(slots=True)
class _Run:
    job: Job
    slot: Slot
    deadline: float | None
    patience: float
    announced: bool = False
    stopping: Reason | None = None
    since: float = 0.0
    again: float = 0.0
    settling: bool = False


@dataclass
class TaskExecutor:
    """Queue of jobs, and the slots that run them.

    Attributes:
        started: called with each task that runs for longer than a tick; shorter ones end before anyone asks.
        begin: called on the slot's thread before a job runs; returns the end of a job that cannot run, else None.
        settle: called before `finished`, on the slot's thread, for work that precedes the report of the end, which it
            returns. The task is neither stopped nor late meanwhile.
        finished: called with the last event of each task, once per task.
        replace_slot: called when a thread was abandoned, so that the node keeps its number of slots.
        end_process: called with the last event of a task that can only be stopped by ending this process; returns
            whether it does so, and reports the event. No task starts from then on.
    """

    started: Callable[[int], None]
    begin: Callable[[Job], Finished | None]
    settle: Callable[[Finished], Finished]
    finished: Callable[[Finished], None]
    replace_slot: Callable[[], None]
    end_process: Callable[[Finished], bool]
    _queue: SimpleQueue[Job | None] = field(default_factory=SimpleQueue)
    _lock: Lock = field(default_factory=Lock)
    _jobs: dict[int, Job] = field(default_factory=dict)
    _runs: dict[int, _Run] = field(default_factory=dict)
    _given_up: set[int] = field(default_factory=set)
    _ending: bool = False
    _unreported: int = 0
    _held: list[Job] = field(default_factory=list)

    def submit(self, job: Job) -> None:
        """Queue a job."""
        with self._lock:
            self._jobs[job.submit.task] = job
        self._queue.put(job)

    def serve(self, slot: Slot) -> None:
        """Run jobs on `slot`, on the calling thread, until `shutdown`."""
        while (job := self._next(slot)) is not None:
            if not self._claim(job, slot):
                continue
            finished = self.begin(job) or slot.run(job)
            self._end_run(job)
            finished = self.settle(finished)
            if not self._release(job):
                return
            self.finished(finished)
            with self._lock:
                self._unreported -= 1

    def _next(self, slot: Slot) -> Job | None:
        slot.get_ready()
        return self._queue.get()

    def _claim(self, job: Job, slot: Slot) -> bool:
        timeout = job.submit.timeout
        with self._lock:
            if self._ending:
                self._held.append(job)
            if job.withdrawn or self._ending:
                return False
            deadline = None if timeout is None else clock.monotonic() + timeout
            self._unreported += 1
            self._runs[job.submit.task] = _Run(job, slot, deadline, max(PATIENCE, job.submit.grace))
            return True

    def _end_run(self, job: Job) -> None:
        with self._lock:
            run = self._runs.get(job.submit.task)
            if run is not None and run.job is job:
                run.settling = True

    def _release(self, job: Job) -> bool:
        """Forget a job that ended; return False if its slot was abandoned meanwhile."""
        task = job.submit.task
        with self._lock:
            if id(job) in self._given_up:
                self._given_up.discard(id(job))
                self._unreported -= 1
                return False
            self._runs.pop(task, None)
            if self._jobs.get(task) is job:
                del self._jobs[task]
            return True

    def relay(self, command: ForJob) -> None:
        """Deliver a command to its job; drop it if the job has ended."""
        with self._lock:
            job = self._jobs.get(command.task)
        if job is not None:
            job.deliver(command)

    def cancel(self, task: int, *, recall: bool) -> None:
        """Cancel a task; with `recall`, only return it to the client if it has not started."""
        with self._lock:
            run, job = self._runs.get(task), self._jobs.get(task)
            if run is None and job is not None:
                job.withdrawn = True
                del self._jobs[task]
        if run is not None:
            if not recall:
                self._stop(run, "cancelled")
        elif job is not None:
            outcome: Literal["returned", "cancelled"] = "returned" if recall else "cancelled"
            self.finished(Finished(task, outcome, NO_PARTIAL_RESULT, 0.0))

    def _stop(self, run: _Run, reason: Reason) -> None:
        if run.settling:
            return
        now = clock.monotonic()
        if run.stopping is None:
            run.stopping, run.since, run.again = reason, now, now + _AGAIN
            run.job.stop(reason)
            if run.job.submit.stream:
                return  # a generator ends at its next element, with its `finally` blocks undisturbed
        run.again = max(now + _AGAIN, run.since + run.patience - _LAST)
        run.slot.interrupt(run.stopping)

    def tick(self) -> None:
        """Stop tasks past their deadline, interrupt those that go on again, and give up those past their patience."""
        now = clock.monotonic()
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            if not run.announced:
                run.announced = True
                self.started(run.job.submit.task)
            if run.settling:
                continue
            if run.stopping is None:
                if run.deadline is not None and now >= run.deadline:
                    self._stop(run, "timeout")
            elif run.job.leaving and now - run.since < run.patience + PACKING_TIMEOUT:
                continue
            elif now - run.since >= run.patience:
                self._give_up(run)
            elif now >= run.again:
                self._stop(run, run.stopping)

    def _give_up(self, run: _Run) -> None:
        task = run.job.submit.task
        if run.slot.give_up():
            return
        with self._lock:
            if self._runs.get(task) is not run:
                return
            alone = self._ending = len(self._runs) == 1
            del self._runs[task]
            self._jobs.pop(task, None)
            self._given_up.add(id(run.job))
        finished = Finished(task, run.stopping or "cancelled", Payload(b""), clock.monotonic() - run.since)
        if alone and self.end_process(finished):
            return
        self.finished(finished)
        with self._lock:
            self._ending, held, self._held = False, self._held, []
        self.replace_slot()
        for job in held:
            self._queue.put(job)

    def hold(self) -> None:
        """Let no task start from now on."""
        with self._lock:
            self._ending = True

    @property
    def has_unreported(self) -> bool:
        """True if there is a task that has started, and whose end is not reported."""
        return self._unreported > 0

    def return_waiting(self) -> None:
        """Return the tasks that have not started to the client, except those with inputs, before the process ends."""
        with self._lock:
            waiting = [job for task, job in self._jobs.items() if task not in self._runs and not job.submit.inputs]
        for job in waiting:
            self.cancel(job.submit.task, recall=True)

    @property
    def running(self) -> list[int]:
        """Tasks that run now."""
        with self._lock:
            return list(self._runs)

    @property
    def tasks(self) -> list[int]:
        """Tasks that run or wait."""
        with self._lock:
            return list({**self._jobs, **self._runs})

    @property
    def idle(self) -> bool:
        """True if there is neither a running nor a queued task."""
        return not self._jobs

    def shutdown(self, slots: int) -> None:
        """Stop `slots` threads, interrupt running tasks, and drop queued ones."""
        with self._lock:
            runs = list(self._runs.values())
            for task, job in tuple(self._jobs.items()):
                if task not in self._runs:
                    job.withdrawn = True
                    del self._jobs[task]
        for _ in range(slots):
            self._queue.put(None)
        for run in runs:
            run.patience, run.job.leaving = PATIENCE, False  # no client waits for partial results
            self._stop(run, "cancelled")
