"""The provider of Slurm: each node is a job, whose batch script starts the worker."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from skyward.errors import NoCapacityError, SkywardError, SpecError
from skyward.providers import (
    Check,
    Cluster,
    ExecAccess,
    Instance,
    InstanceType,
    Leftover,
    Offer,
    PoolIdentity,
)
from skyward.specs import Architecture, Spec
from skyward_providers.cloud.launch import launch_each
from skyward_providers.slurm.anchor import DESCRIBE, NO_PLACE, batch_script, place_of
from skyward_providers.slurm.commands import SlurmCommands, SlurmError, UnansweredError, refusal
from skyward_providers.slurm.hardware import (
    Partition,
    architecture_of,
    offers_of,
    read_partitions,
    read_records,
)
from skyward_providers.slurm.jobs import SlurmJob, SlurmQueue, comment, job_name, of_pool
from skyward_providers.slurm.settings import Slurm, limit_text, minutes_of, time_limit

__all__ = ["SlurmProvider"]

_PATIENCE = 60
"""Seconds that a running job waits for its first client."""

_SETTLED_AFTER = 1.0
"""Seconds until a job whose submission was not answered is listed."""

_ENDING_PAUSE = 0.3
_ENDING_CHECKS = 8
"""Seconds between questions about a job whose processes are ending, and their number: only then it says why."""

_NOT_NOW = "not available now"
_SHELL = "command -v bash >/dev/null && exec bash; exec sh"


@dataclass(frozen=True, slots=True)
class _Machine:
    """The machine of a job: its address for other nodes, its network interface, and its architecture."""

    address: str
    interface: str
    architecture: Architecture


class SlurmProvider:
    """Jobs of a cluster, one for each node."""

    def __init__(self, settings: Slurm) -> None:
        self._settings = settings
        self._commands = SlurmCommands(settings.host)
        self._queue = SlurmQueue(self._commands)
        self._machines: dict[str, _Machine] = {}

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the types of nodes of the partitions, whole: the most that a job can have."""
        partitions = {each.name: each for each in self._long_enough(await self._partitions())}
        nodes = await self._commands.call("scontrol", "--oneliner", "show", "node")
        for offer in offers_of(nodes, partitions, self._settings.hourly_price):
            yield offer

    async def _partitions(self) -> list[Partition]:
        """Return the partitions of the settings, or the default one.

        Raises:
            SpecError: there is no such partition.
        """
        found = read_partitions(await self._commands.call("scontrol", "--oneliner", "show", "partition"))
        known = f"the cluster has {', '.join(each.name for each in found) or 'none'}"
        if self._settings.partition is None:
            if chosen := [each for each in found if each.is_default]:
                return chosen
            raise SpecError(f"The cluster has no default partition: name one with `sky.Slurm(partition=...)`; {known}.")
        named = {each.name: each for each in found}
        wanted = dict.fromkeys(self._settings.partition.split(","))
        for name in wanted:
            if name not in named:
                raise SpecError(f"There is no partition {name!r}; {known}.")
        return [named[name] for name in wanted]

    def _long_enough(self, partitions: Sequence[Partition]) -> Sequence[Partition]:
        """Return the partitions that allow the time limit of the settings.

        Raises:
            SpecError: none does.
        """
        minutes = time_limit(self._settings)
        if minutes is None:
            return partitions
        if found := [each for each in partitions if not each.limit or minutes <= minutes_of(each.limit)]:
            return found
        longest = max(partitions, key=lambda each: minutes_of(each.limit))
        raise SpecError(
            f"Partition {longest.name} allows jobs of at most {longest.limit}, and sky.Slurm asks for "
            f"{limit_text(minutes)}: lower `time`, or name another partition."
        )

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Check that the cluster can run such jobs. There is nothing to set up."""
        cluster = Cluster(f"slurm-{pool.id}", pool.id, spec, offer, notes=tuple(self._notes()), tags=pool.tags)
        try:
            await self._commands.call(*self._submission(cluster, ""), "--test-only", stdin=self._script)
        except SlurmError as error:
            if _NOT_NOW not in str(error):  # such a job waits until its nodes are back
                raise refusal(error) from None
        return cluster

    def _notes(self) -> Iterator[str]:
        if self._settings.time is None:
            yield (
                "Nodes end at the default time limit of their partition, and are replaced: set another with "
                "`sky.Slurm(time=...)`."
            )

    @property
    def _script(self) -> str:
        return batch_script(self._settings.scratch, _PATIENCE)

    def _submission(self, cluster: Cluster, number: str) -> Sequence[str]:
        """Return the command that submits one job. The script is its input."""
        return tuple(self._submission_words(cluster, number))

    def _submission_words(self, cluster: Cluster, number: str) -> Iterator[str]:
        settings, spec = self._settings, cluster.spec
        tags = {"skyward-pool": cluster.pool, **cluster.tags}
        if number:
            tags["skyward-request"] = f"{tags.get('skyward-request', '')}/{number}"
        yield from ("sbatch", "--parsable", "--no-requeue", "--nodes=1", "--ntasks=1", "--export=ALL")
        yield from (f"--job-name={job_name(cluster.pool)}", f"--comment={comment(tags)}")
        yield from ("--output=/dev/null", "--chdir=/")
        if settings.partition is not None:
            yield f"--partition={cluster.offer.specific.get('partitions', settings.partition)}"
        if settings.account is not None:
            yield f"--account={settings.account}"
        if (minutes := time_limit(settings)) is not None:
            yield f"--time={minutes}"
        if spec.vcpus is not None:
            yield f"--cpus-per-task={math.ceil(spec.vcpus)}"
        if spec.memory_gb is not None:
            yield f"--mem={math.ceil(spec.memory_gb * 1024)}M"
        if settings.gres is not None:
            yield f"--gres={settings.gres}"
        elif spec.accelerator is not None:
            kind = cluster.offer.specific.get("gpu", "")
            yield f"--gres=gpu:{f'{kind}:' if kind else ''}{math.ceil(spec.accelerator.count)}"
        yield from settings.options

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Submit jobs, except those that an earlier attempt of the request has submitted."""
        submitted = await self._submitted(cluster)

        async def submit(number: int) -> Instance:
            job = submitted.get(str(number)) or await self._submit(cluster, str(number))
            return Instance(
                job, "provisioning", hourly_price=self._settings.hourly_price, detail=f"its job {job} waits"
            )

        async def cancel(jobs: Sequence[str]) -> None:
            await self.terminate(cluster, jobs)

        return cluster, await launch_each(count, submit, cancel)

    async def _submitted(self, cluster: Cluster) -> dict[str, str]:
        """Return the jobs of the request: ids by number."""
        found = {}
        for job in of_pool(await self._queue.jobs(), cluster.pool):
            request, _, number = job.tags.get("skyward-request", "").partition("/")
            if request and request == cluster.tags.get("skyward-request"):
                found[number] = job.id
        return found

    async def _submit(self, cluster: Cluster, number: str) -> str:
        try:
            output = await self._commands.call(*self._submission(cluster, number), stdin=self._script)
        except UnansweredError:
            await asyncio.sleep(_SETTLED_AFTER)
            if (job := (await self._submitted(cluster)).get(number)) is None:
                raise
            return job
        except SlurmError as error:
            if _NOT_NOW in str(error):
                raise NoCapacityError(f"Slurm has no such nodes now: {error}; try again later.") from None
            raise refusal(error) from None
        return output.strip().splitlines()[-1].partition(";")[0]

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a job; None once the controller does not know it any more."""
        job = await self._queue.job(instance_id)
        if job is None:
            return cluster, None
        instance = await self._instance(job)
        if instance.status == "exited":
            return cluster, replace(instance, detail=await self._explain(job))
        if instance.status == "running":
            try:
                machine = await self._machine(job)
            except SlurmError as error:
                return cluster, replace(instance, status="provisioning", access=None, detail=str(error))
            assert isinstance(instance.access, ExecAccess)
            access = replace(instance.access, directory=self._directory(machine.architecture))
            instance = replace(instance, access=access, address=machine.address, interface=machine.interface)
        return cluster, instance

    def _directory(self, architecture: Architecture) -> str | None:
        """Return the directory for environments on a machine: machines of all architectures may share a disk."""
        directory = self._settings.directory
        return directory if directory is None or architecture == "x86_64" else f"{directory}/{architecture}"

    async def _instance(self, job: SlurmJob) -> Instance:
        settings = self._settings
        price = settings.hourly_price
        if job.stage != "running":
            status: Literal["exited", "provisioning"] = "exited" if job.stage == "ended" else "provisioning"
            return Instance(job.id, status, hourly_price=price, detail=job.detail)
        access = ExecAccess(
            await self._commands.entering(job.id),
            f"job {job.id} on {job.node}",
            settings.directory,
            settings.grace,
            settings.python,
            await self._commands.terminal(job.id, _SHELL),
            shell=settings.host is not None,
            starter=place_of(job.id, settings.scratch),
        )
        return Instance(job.id, "running", access, hourly_price=price)

    async def _explain(self, job: SlurmJob) -> str:
        """Return why a job ended. The exit status of its script is not among what `squeue` lists."""
        for _ in range(_ENDING_CHECKS):
            if not job.is_ending:
                break
            await asyncio.sleep(_ENDING_PAUSE)
            job = (await self._queue.jobs()).get(job.id, job)
        if job.state != "FAILED":
            return job.detail
        try:
            (record,) = read_records(await self._commands.call("scontrol", "--oneliner", "show", "job", job.id))
        except (SlurmError, UnansweredError, ValueError):
            return job.detail
        if record.get("ExitCode", "").startswith(f"{NO_PLACE}:"):
            place = place_of(job.id, self._settings.scratch)
            return f"{place} could not be created on {job.node}: name another directory with `sky.Slurm(scratch=...)`"
        return (
            f"{job.detail} (exit status {record.get('ExitCode', 'unknown')}, reason {record.get('Reason', 'unknown')})"
        )

    async def _machine(self, job: SlurmJob) -> _Machine:
        """Return the machine of a job.

        Raises:
            SlurmError: the node does not answer.
        """
        if job.id not in self._machines:
            (record,) = read_records(await self._commands.call("scontrol", "--oneliner", "show", "node", job.node))
            place = place_of(job.id, self._settings.scratch)
            try:
                described = await self._commands.ask(
                    job.id, "sh", "-c", DESCRIBE, place, record.get("NodeAddr", job.node)
                )
            except SlurmError as error:
                raise SlurmError(f"job {job.id} on {job.node} cannot be entered: {error}") from None
            (found,) = read_records(described) or ({},)
            if not found.get("address"):
                raise SlurmError(f"job {job.id} on {job.node} does not tell its address")
            self._machines[job.id] = _Machine(found["address"], found["interface"], architecture_of(record))
        return self._machines[job.id]

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the existing jobs with the tag or the name of the pool."""
        return [await self._instance(job) for job in of_pool(await self._queue.jobs(certain=True), cluster.pool)]

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Cancel jobs. Those that do not exist are ignored."""
        if instance_ids:
            await self._cancel(*instance_ids)
        for instance_id in instance_ids:
            self._machines.pop(instance_id, None)

    async def teardown(self, cluster: Cluster) -> None:
        """Do nothing: there are no shared resources."""

    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return the existing jobs with a tag of `owner`."""
        return [
            Leftover("machine", job.id, job.pool, hourly_price=self._settings.hourly_price)
            for job in (await self._queue.jobs(certain=True)).values()
            if job.exists and job.tags.get("skyward-owner") == owner
        ]

    async def remove(self, leftover: Leftover) -> None:
        """Cancel a job."""
        await self._cancel(leftover.id)

    async def _cancel(self, *jobs: str) -> None:
        await self._commands.call("scancel", *jobs)
        self._queue.forget()

    async def check(self) -> Sequence[Check]:
        """Check that the controller answers, the partition exists, and a job would be accepted."""
        found: list[Check] = []
        for what, step in (
            ("Slurm answers", self._check_controller),
            ("the partition exists", self._check_partition),
            ("may submit jobs", self._check_submission),
        ):
            try:
                await step()
            except (SkywardError, UnansweredError) as error:
                return [*found, Check(what, str(error))]
            found.append(Check(what))
        return found

    async def _check_controller(self) -> None:
        await self._queue.jobs()

    async def _check_partition(self) -> None:
        for partition in await self._partitions():
            if not partition.is_up:
                raise SpecError(f"Partition {partition.name} takes or starts no jobs now: name another one.")

    async def _check_submission(self) -> None:
        kind = InstanceType("", 0, 0)
        cluster = Cluster("check", "check", Spec(), Offer("check", kind))
        try:
            await self._commands.call(*self._submission(cluster, ""), "--test-only", stdin=self._script)
        except SlurmError as error:
            raise refusal(error) from None
