"""Jobs of a pool, as `squeue` lists them."""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from skyward.errors import SpecError
from skyward_providers.slurm.commands import SlurmCommands, SlurmError
from skyward_providers.slurm.settings import limit_text, minutes_of

__all__ = ["SlurmJob", "SlurmQueue", "comment", "job_name", "of_pool", "read_jobs"]

type _Stage = Literal["waiting", "running", "ended"]

_FORMAT = "%i|%T|%r|%B|%l|%j|%k"
"""Fields of `squeue`, which all its versions have: its JSON changed from version to version."""

_FIELDS = 7
_NAME = "skyward-"
_CURRENT = 1.0
"""Seconds for which a listing counts as current. All nodes of a pool share it, to spare the controller."""

_ASK_AGAIN = 0.5
_TIMES = 4
"""Pause in seconds between questions about a job that is not listed, and their number."""

_WAITING = frozenset({"PENDING", "CONFIGURING", "SUSPENDED", "STOPPED", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
_RUNNING = frozenset({"RUNNING", "RESIZING", "SIGNALING"})
_NEVER = frozenset({
    "AccountNotAllowed", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS", "JobHeldAdmin",
    "PartitionNodeLimit", "PartitionTimeLimit", "QOSNotAllowed",
})  # fmt: skip  # one name a line says no more
"""Reasons for which a job waits for ever."""

_REASONS = {
    "Resources": "waits for free nodes",
    "Priority": "waits for jobs of a higher priority",
    "None": "waits to be scheduled",
    "PartitionConfig": "waits, because its partition has no such nodes now, or not for that long",
    "PartitionDown": "waits, because its partition takes no jobs now",
    "PartitionInactive": "waits, because its partition is inactive",
    "ReqNodeNotAvail": "waits for nodes that are down, drained or reserved",
    "Licenses": "waits for a license",
    "JobHeldUser": "is held; `scontrol release` lets it start",
    "BeginTime": "waits for its begin time",
    "Reservation": "waits for its reservation",
}
_ENDS = {
    "BOOT_FAIL": "its node did not boot",
    "CANCELLED": "its job was cancelled",
    "COMPLETED": "its job ended, because no client used it",
    "DEADLINE": "its job reached its deadline",
    "FAILED": "its job failed",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "its job ran out of memory: ask for more with `memory_gb`",
    "PREEMPTED": "its job was preempted by another of a higher priority",
}
_TIMEOUT = "TimeLimit"
"""The reason of a job that reached its time limit. While its processes end, its state does not say so."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job of ours.

    Attributes:
        id: its number.
        state: its state, such as "PENDING".
        reason: the reason why it waits, such as "Resources".
        node: the node that runs its script; "" if none does.
        name: its name.
        tags: the tags in its comment.
        limit: its time limit, as Slurm writes it; "" if it is not known.
    """

    id: str
    state: str
    reason: str
    node: str
    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    limit: str = ""

    @property
    def is_ending(self) -> bool:
        """True while its processes end, and nothing says why."""
        return self.state == "COMPLETING" and self._reason != _TIMEOUT

    @property
    def stage(self) -> _Stage:
        """Its state in short. A job that can never start counts as ended."""
        if self.state in _RUNNING:
            return "running"
        return "waiting" if self.state in _WAITING and self._reason not in _NEVER else "ended"

    @property
    def exists(self) -> bool:
        """True if it waits or runs. A job that can never start is one that exists: a change of a limit may start it."""
        return self.state in _WAITING or self.state in _RUNNING

    @property
    def _reason(self) -> str:
        return re.split(r"[,(]", self.reason)[0].strip()

    @property
    def pool(self) -> str:
        """Id of its pool. The name has it too, because a cluster may replace comments."""
        return self.tags.get("skyward-pool") or self.name.removeprefix(_NAME)

    @property
    def detail(self) -> str:
        """The reason why it waits or why it ended, as the end of a sentence."""
        reason = self._reason
        if self.state == "CONFIGURING":
            return "its node is being booted"
        if self.state == "SUSPENDED":
            return f"its job {self.id} is suspended"
        if self.state in _WAITING:
            if reason in _NEVER:
                return f"its job {self.id} can never start ({reason}): check partition, account and time of sky.Slurm"
            if reason.startswith(("QOS", "Assoc")):
                return f"its job {self.id} waits, because a limit of your account or QOS is reached ({reason})"
            return f"its job {self.id} {_REASONS.get(reason, 'waits')} ({reason})"
        if self.state in _RUNNING:
            return ""
        if self.state == "TIMEOUT" or reason == _TIMEOUT:
            try:
                limit = f" of {limit_text(minutes_of(self.limit))}"
            except SpecError:  # such as UNLIMITED
                limit = ""
            return f"its job reached its time limit{limit}: raise `time=` of sky.Slurm"
        return _ENDS.get(self.state, f"its job is {self.state.lower().replace('_', ' ')}")


def job_name(pool: str) -> str:
    """Return the name of the jobs of a pool."""
    return f"{_NAME}{pool}"


def comment(tags: Mapping[str, str]) -> str:
    """Return the comment with the tags of a job. All users of the cluster can read it."""
    return " ".join(f"{name}={value}" for name, value in sorted(tags.items()))


def _tags(text: str) -> Mapping[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in text.split()) if value}


def read_jobs(output: str) -> dict[str, SlurmJob]:
    """Return the jobs with a name of ours in the output of `squeue`, by id."""
    found = {}
    for line in output.splitlines():
        parts = line.split("|", _FIELDS - 1)
        if len(parts) == _FIELDS and parts[5].startswith(_NAME):
            id, state, reason, node, limit, name, text = parts
            found[id] = SlurmJob(id, state, reason, "" if node in ("n/a", "") else node, name, _tags(text), limit)
    return found


class SlurmQueue:
    """The user's jobs. A listing is shared by all who ask within a second."""

    def __init__(self, commands: SlurmCommands) -> None:
        self._commands = commands
        self._asking = asyncio.Lock()
        self._jobs: Mapping[str, SlurmJob] = {}
        self._asked = -_CURRENT

    async def jobs(self, *, current: float = 0.0, certain: bool = False) -> Mapping[str, SlurmJob]:
        """Return all jobs of ours, including those that ended lately, as listed within the last `current` seconds.

        With `certain`, an empty listing is repeated: it alone does not prove that there are no jobs.

        Raises:
            SlurmError: the controller does not answer.
        """
        begun = time.monotonic()
        async with self._asking:
            if self._asked < begun - current:
                await self._list()
            if certain and not self._jobs:
                await asyncio.sleep(_ASK_AGAIN)
                await self._list()
            return self._jobs

    def forget(self) -> None:
        """Forget the last listing: jobs were cancelled."""
        self._asked = -_CURRENT

    async def _list(self) -> None:
        asked = time.monotonic()
        words = ("squeue", "--me", "--noheader", "--states=all", f"--format={_FORMAT}")
        self._jobs = read_jobs(await self._commands.call(*words))
        self._asked = asked

    async def job(self, id: str) -> SlurmJob | None:
        """Return a job; None if there is none: if the controller has said so twice.

        Raises:
            SlurmError: the controller does not answer, or not clearly.
        """
        if (job := (await self.jobs(current=_CURRENT)).get(id)) is not None:
            return job
        denied = 0
        for _ in range(_TIMES):
            try:
                words = ("squeue", "--noheader", "--states=all", f"--jobs={id}", f"--format={_FORMAT}")
                output = await self._commands.call(*words)
            except SlurmError as error:
                if "Invalid job id" not in str(error):
                    raise
                denied += 1
                if denied > 1:
                    return None
            else:
                if (job := read_jobs(output).get(id)) is not None:
                    return job
            await asyncio.sleep(_ASK_AGAIN)
        raise SlurmError(f"`squeue` does not list job {id}, nor says that there is none")


def of_pool(jobs: Mapping[str, SlurmJob], pool: str) -> list[SlurmJob]:
    """Return the existing jobs of a pool."""
    return [job for job in jobs.values() if job.pool == pool and job.exists]
