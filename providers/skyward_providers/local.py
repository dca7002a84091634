"""`sky.Local()`: nodes that are worker processes on this machine. The default, and all that a first try needs."""

import asyncio
import itertools
import os
import platform
import random
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from skyward.errors import ProvisioningError, SpecError
from skyward.provider import Cluster, Instance, InstanceType, LocalAccess, Offer, Provider
from skyward.specs import Spec
from skyward.values import number, whole

__all__ = ["Local"]


@dataclass(frozen=True, slots=True)
class Local:
    """Worker processes on this machine, each on a loopback address and in a working directory of its own.

    They run the interpreter and the packages of the calling process, so the image's `python`, `pip` and `apt` and the
    spec's hardware are not acted on; the pool says so.

    A price, a time to boot and failures can be made up, to see with no account what a pool makes of them.

    Attributes:
        hourly_price: that each node is said to cost, USD.
        boot_time: seconds until a node is there.
        fail_rate: the part of the nodes that do not come, from 0 to 1.
        seed: of which nodes those are.

    Raises:
        SpecError: a value is not such a number.
    """

    hourly_price: float = 0.0
    boot_time: float = 0.0
    fail_rate: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        number(self.hourly_price, "hourly_price", zero=True)
        number(self.boot_time, "boot_time", zero=True)
        number(self.fail_rate, "fail_rate", zero=True)
        if self.fail_rate > 1:
            raise SpecError(f"fail_rate must be from 0 to 1, such as 0.2, but got {self.fail_rate!r}.")
        whole(self.seed, "seed", least=0)

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "local"

    def create_provider(self) -> Provider:
        """What starts the processes' directories."""
        return _LocalProvider(self)


class _LocalProvider:
    def __init__(self, settings: Local) -> None:
        self._settings = settings
        self._random = random.Random(settings.seed)
        self._numbers = itertools.count(1)
        # Linux answers on all of 127/8, so every node of every pool can have an address of its own.
        self._subnet = f"127.{64 + secrets.randbelow(128)}.{secrets.randbelow(256)}" if sys.platform == "linux" else ""
        self._instances: dict[str, Instance] = {}

    async def offers(self) -> AsyncIterator[Offer]:
        """This machine."""
        machine = platform.machine().lower()
        pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        kind = InstanceType(
            name=platform.node() or "this machine",
            vcpus=os.cpu_count() or 1,
            memory_gb=round(pages * page / 2**30, 1),
            architecture="arm64" if machine in ("arm64", "aarch64") else "x86_64",
        )
        yield Offer("local", kind, on_demand_price=self._settings.hourly_price, region="local")

    async def prepare(self, spec: Spec, offer: Offer, pool: str) -> Cluster:
        """A directory for the pool."""
        directory = os.path.join(tempfile.gettempdir(), f"skyward-{pool}")
        await asyncio.to_thread(os.makedirs, directory, 0o700, exist_ok=True)
        specific = {"directory": directory}
        return Cluster(f"local-{secrets.token_hex(4)}", pool, spec, offer, specific, _notes(spec))

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Addresses and directories for `count` processes; they are started as workers of nodes."""
        await asyncio.sleep(self._settings.boot_time)
        came = sum(self._random.random() >= self._settings.fail_rate for _ in range(count))
        if not came:
            raise ProvisioningError("this machine was told to fail (fail_rate)")
        return cluster, [self._make(cluster) for _ in range(came)]

    def _make(self, cluster: Cluster) -> Instance:
        number = next(self._numbers)
        directory = Path(cluster.specific["directory"]) / f"machine-{number}"
        directory.mkdir()
        host = f"{self._subnet}.{1 + (number - 1) % 254}" if self._subnet else "127.0.0.1"
        access = LocalAccess(host, str(directory))
        instance = Instance(
            f"local-{number}",
            "running",
            access,
            address=host,
            interface="lo",
            hourly_price=self._settings.hourly_price,
        )
        self._instances[instance.id] = instance
        return instance

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """The machine, which is up from the start."""
        return cluster, self._instances.get(instance_id)

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """The machines that have a directory. The processes on them end with the one that started them."""
        directory = Path(cluster.specific["directory"])
        machines = await _aside(lambda: sorted(directory.glob("machine-*")))
        return [Instance(each.name.replace("machine", "local"), "exited") for each in machines]

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Remove the directories."""
        for instance_id in instance_ids:
            instance = self._instances.pop(instance_id, None)
            if instance is not None and isinstance(instance.access, LocalAccess):
                await _remove(instance.access.directory)

    async def teardown(self, cluster: Cluster) -> None:
        """Remove the pool's directory."""
        await _remove(cluster.specific["directory"])


async def _remove(directory: str) -> None:
    await _aside(partial(shutil.rmtree, directory, ignore_errors=True))


async def _aside[R](work: Callable[[], R]) -> R:
    try:
        return await asyncio.to_thread(work)
    except RuntimeError:  # the interpreter is ending, and lends no threads any more
        return work()


def _notes(spec: Spec) -> tuple[str, ...]:
    """What of the spec a local process does not act on."""
    asked = {
        "accelerator": spec.accelerator is not None,
        "vcpus": spec.vcpus is not None,
        "memory_gb": spec.memory_gb is not None,
        "disk_gb": spec.disk_gb is not None,
        "architecture": spec.architecture is not None,
        "region": spec.region is not None,
        "image.pip": bool(spec.image.pip),
        "image.apt": bool(spec.image.apt),
        "image.python": spec.image.python not in ("auto", ".".join(platform.python_version_tuple()[:2])),
        "volumes": bool(spec.volumes),
    }
    ignored = [name for name, given in asked.items() if given]
    if not ignored:
        return ()
    return (f"Local nodes run on this machine's hardware and packages; not acted on: {', '.join(ignored)}.",)
