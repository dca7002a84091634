"""The settings of Slurm."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from skyward.errors import SpecError
from skyward.providers import SETUP_FIELDS, ActsOn, Provider
from skyward.values import limits
from skyward.values.validation import number, of_type, seconds, shown, strings
from skyward_providers.slurm.options import check_option

__all__ = ["Slurm", "limit_text", "minutes_of", "time_limit"]

_WORDS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:=/()@+-]*")
"""Value of an option of `sbatch`, which is not an option itself."""

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d\d?))?(?::(\d\d?))?")


@dataclass(frozen=True, slots=True)
class Slurm:
    """Jobs of a Slurm cluster, one for each node.

    Commands of Slurm run on this machine, or on the login node `host`. `vcpus`, `memory_gb` and `accelerator` of the
    spec are requests of each job; without, it gets the defaults of its partition.

    Attributes:
        partition: partitions, separated by commas; None for the default one.
        account: account to charge; None for the user's default.
        time: time limit of a node in seconds, or as Slurm writes it ("1-12:00:00", "04:00:00"); None for the default
            of the partition. A node that reaches it is replaced.
        gres: generic resources of each job, such as "gpu:a100:2", in place of those for `accelerator` of the spec.
        host: login node, as `ssh` takes it; None if the commands of Slurm are on this machine.
        options: further options of `sbatch`, such as ["--qos=high", "--constraint=ib"], except those that a node needs.
        hourly_price: price to assume for each node, in USD per hour.
        scratch: directory on the nodes for the files of workers; each job has one of its own in it while it runs.
        directory: directory on the nodes for environments, which may be shared between them; None for "~/.skyward".
        grace: seconds that a node may be unreachable before it is replaced and its tasks are retried.
        python: an interpreter on the nodes with the packages that a node needs; None to set one up.

    Example:
        with sky.Compute(provider=sky.Slurm(partition="gpu", time="04:00:00"), nodes=(1, 8), vcpus=4) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: a value is not allowed.
    """

    partition: str | None = None
    account: str | None = None
    time: str | float | None = None
    gres: str | None = None
    host: str | None = None
    options: Sequence[str] = ()
    hourly_price: float = 0.0
    scratch: str = "/tmp"
    directory: str | None = "~/.skyward"
    grace: float = 30.0
    python: str | None = None

    def __post_init__(self) -> None:
        for name, example in (
            ("partition", "gpu"),
            ("account", "physics"),
            ("gres", "gpu:a100:2"),
            ("host", "me@login"),
        ):
            if (value := getattr(self, name)) is not None:
                of_type(value, name, str, f"{name}={example!r}")
                if not _WORDS.fullmatch(value):
                    raise SpecError(f"{name} must be a value such as {example!r}, but got {shown(value)}.")
        for name in ("directory", "python"):
            if (value := getattr(self, name)) is not None:
                of_type(value, name, str, f"{name}='/path'")
                if not value:
                    raise SpecError(f"{name} must not be empty.")
        of_type(self.scratch, "scratch", str, "scratch='/local'")
        if not re.fullmatch(r"/[\w./-]*", self.scratch):
            raise SpecError(
                f"scratch must be an absolute path of letters, digits, '_', '.' and '-', but got {shown(self.scratch)}."
            )
        object.__setattr__(self, "options", strings(self.options, "options", "['--qos=high']"))
        for option in self.options:
            if not option.startswith("-"):
                raise SpecError(f"options must each begin with '-', as in ['--qos=high'], but got {shown(option)}.")
            check_option(option)
        number(self.hourly_price, "hourly_price", zero=True, most=limits.USD)
        seconds(self.grace, "grace")
        if isinstance(self.time, str):
            minutes_of(self.time)
        else:
            seconds(self.time, "time", optional=True)

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "slurm"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect. With `python`, there is nothing to set up."""
        fields = {"vcpus", "memory_gb", "ttl"} | (SETUP_FIELDS if self.python is None else set())
        if self.gres is None:
            fields |= {"accelerator"}
        if self.python is not None:
            return ActsOn(frozenset(fields), f"Slurm places jobs, which use {self.python} as it is")
        return ActsOn(frozenset(fields), "Slurm places jobs, on the disks of the cluster")

    @property
    def offers_ttl(self) -> float:
        """Seconds for which its offers hold: they are listed whenever they are needed."""
        return 0.0

    @property
    def boot_timeout(self) -> float:
        """Seconds that a job may wait: a week. A job that is submitted again is at the end of the queue."""
        return 7 * 86_400.0

    def create_provider(self) -> Provider:
        """Create the provider."""
        from skyward_providers.slurm.provider import SlurmProvider  # circular: loaded when a pool opens

        return SlurmProvider(self)


def time_limit(settings: Slurm) -> int | None:
    """Return the time limit in whole minutes, as Slurm counts it, rounded up; None for the default of the partition."""
    if settings.time is None:
        return None
    return minutes_of(settings.time) if isinstance(settings.time, str) else math.ceil(settings.time / 60)


def minutes_of(text: str) -> int:
    """Return the minutes, rounded up, of a time limit as Slurm writes it.

    The forms are "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes" and
    "days-hours:minutes:seconds".

    Raises:
        SpecError: it is not a time limit.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise SpecError(f"time must be seconds, or a limit such as '04:00:00' or '1-12:00:00', but got {shown(text)}.")
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is None:  # the last part is seconds, unless it is the only one
        parts = [0] * (3 - len(parts)) + parts if len(parts) > 1 else [0, parts[0], 0]
    hours, minutes, left = (*parts, 0, 0)[:3]
    whole = math.ceil(((int(days or 0) * 24 + hours) * 60 + minutes) + left / 60)
    if not whole:
        raise SpecError(f"time must be a positive time limit, but got {shown(text)}.")
    return whole


def limit_text(minutes: int) -> str:
    """Return a time limit for people: "30 days", "1 day 12 hours", "1 hour 30 minutes"."""
    hours, left = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "day"), (hours, "hour"), (left, "minute"))
    return " ".join(f"{count} {unit}{'s' * (count != 1)}" for count, unit in parts if count)
