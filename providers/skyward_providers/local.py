"""`sky.Local()`: nodes that are worker processes on this machine. The default provider, which needs no account."""

import asyncio
import contextlib
import itertools
import os
import platform
import random
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from skyward.errors import ProvisioningError, SpecError
from skyward.providers import PoolIdentity
from skyward.providers.protocol import (
    SETUP_FIELDS,
    Access,
    ActsOn,
    Cluster,
    ExecAccess,
    Instance,
    InstanceStatus,
    InstanceType,
    LocalAccess,
    Offer,
    Provider,
)
from skyward.providers.recorded_process import recorded_process
from skyward.specs import Spec
from skyward.values import limits
from skyward.values.validation import number, seconds, shown, whole
from skyward_providers.local_gpus import find_gpus

__all__ = ["Local"]

_ENTER = "import os, sys; os.closerange(3, os.sysconf('SC_OPEN_MAX')); os.execvp(sys.argv[1], sys.argv[1:])"
"""Runs a command without inherited descriptors: a worker that stays must not keep the client's pipes open."""

_SHELL = 'cd "$1" && exec "${SHELL:-sh}"'
"""Interactive shell in the directory of a node."""


@dataclass(frozen=True, slots=True)
class Local:
    """Worker processes on this machine, each with a loopback address and a working directory of its own.

    Cells run in the notebook's folder instead.

    Workers have the interpreter and the packages of the calling process, and those that the image's `pip` adds, in an
    environment that is cached for later pools. If the image names another `python`, they have that, and only the
    packages of the image. The image's `apt` and the spec's hardware have no effect; the pool warns about them. The
    image's includes are copied for each node, and the commands of its `shell_vars` run once, when the pool opens.

    Prices, boot times and failures can be simulated, to try out a pool's behaviour without an account.

    Attributes:
        hourly_price: price to assume for each node, in USD per hour.
        boot_time: simulated seconds until a machine runs.
        fail_rate: simulated fraction of machines that fail to launch, from 0 to 1.
        seed: seed of the random choice of these.
        outlives: True if nodes outlive the process that opened them, as machines of a cloud do: until their lease
            (`ttl=`) expires, another process can take them over with `sky.attach`. Linux only.

    Example:
        with sky.Compute(provider=sky.Local(boot_time=5), nodes=2) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: a value is not allowed.
    """

    hourly_price: float = 0.0
    boot_time: float = 0.0
    fail_rate: float = 0.0
    seed: int = 0
    outlives: bool = False

    def __post_init__(self) -> None:
        number(self.hourly_price, "hourly_price", zero=True, most=limits.USD)
        seconds(self.boot_time, "boot_time", zero=True)
        number(self.fail_rate, "fail_rate", zero=True)
        if self.fail_rate > 1:
            raise SpecError(f"fail_rate must be from 0 to 1, such as 0.2, but got {shown(self.fail_rate)}.")
        whole(self.seed, "seed", least=0, most=limits.SEED)
        if not isinstance(self.outlives, bool):
            raise SpecError(f"outlives must be True or False, but got {shown(self.outlives)}.")
        if self.outlives and sys.platform != "linux":
            raise SpecError("Local nodes outlive the process that opened them on Linux only: leave outlives=True out.")

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "local"

    @property
    def shares_files(self) -> bool:
        """True: its nodes have the files of this machine."""
        return True

    @property
    def offers_ttl(self) -> float:
        """Seconds for which its offers hold: they are listed whenever they are needed."""
        return 0.0

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        fields = SETUP_FIELDS - {"image.apt", "image.skyward_source"}
        return ActsOn(
            fields | ({"ttl"} if self.outlives else set()),
            "Local nodes run on this machine as it is",
            knows_hardware=True,
        )

    def create_provider(self) -> Provider:
        """Create the provider."""
        return _LocalProvider(self)


class _LocalProvider:
    def __init__(self, settings: Local) -> None:
        self._settings = settings
        self._outlives = getattr(settings, "outlives", False)  # a journal may have settings of a version without it
        self._random = random.Random(settings.seed)
        self._numbers = itertools.count(1)
        # Linux has all of 127/8 as loopback, so each node of each pool can have an address of its own.
        self._subnet = f"127.{64 + secrets.randbelow(128)}.{secrets.randbelow(256)}" if sys.platform == "linux" else ""
        self._instances: dict[str, Instance] = {}

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield this machine."""
        machine = platform.machine().lower()
        gpus = await find_gpus()
        pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        kind = InstanceType(
            name=platform.node() or "this machine",
            vcpus=os.cpu_count() or 1,
            memory_gb=round(pages * page / 2**30, 1),
            accelerator=None if gpus is None else gpus.name,
            accelerator_count=0 if gpus is None else gpus.count,
            accelerator_memory_gb=None if gpus is None else gpus.memory_gb,
            architecture="arm64" if machine in ("arm64", "aarch64") else "x86_64",
        )
        yield Offer("local", kind, on_demand_price=self._settings.hourly_price, region="local")

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Create a directory for the pool."""
        directory = os.path.join(tempfile.gettempdir(), f"skyward-{pool.id}")
        await asyncio.to_thread(os.makedirs, directory, 0o700, exist_ok=True)
        specific = {"directory": directory}
        return Cluster(f"local-{secrets.token_hex(4)}", pool.id, spec, offer, specific)

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Create addresses and directories for `count` processes, which are started later as workers."""
        await asyncio.sleep(self._settings.boot_time)
        succeeded = sum(self._random.random() >= self._settings.fail_rate for _ in range(count))
        if not succeeded:
            raise ProvisioningError("simulated failure (fail_rate)")
        return cluster, [self._make(cluster) for _ in range(succeeded)]

    def _make(self, cluster: Cluster) -> Instance:
        root = Path(cluster.specific["directory"])
        number = next(each for each in self._numbers if not _directory(root, each).exists())
        directory = _directory(root, number)
        directory.mkdir()
        return self._running(number, directory)

    def _running(self, number: int, directory: Path) -> Instance:
        host = f"{self._subnet}.{1 + (number - 1) % 254}" if self._subnet else "127.0.0.1"
        instance = Instance(
            f"local-{number}",
            "running",
            self._access(host, directory),
            address=host,
            interface="lo",
            hourly_price=self._settings.hourly_price,
        )
        self._instances[instance.id] = instance
        return instance

    def _access(self, host: str, directory: Path) -> Access:
        if not self._outlives:
            return LocalAccess(host, str(directory))
        # Accessed like a machine that outlives the client: through a command, which here runs its arguments.
        command = (sys.executable, "-ISc", _ENTER, "env", "SKYWARD_METRICS_SCOPE=processes", "SKYWARD_SHARED_FILES=1")
        name, folder = f"this machine ({directory.name})", str(directory)
        terminal = ("sh", "-c", _SHELL, "sh", folder)
        return ExecAccess(command, name, folder, python=sys.executable, terminal=terminal, is_local=True)

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the machine, which runs at once. A machine of a former process exists if its directory does.

        Such a machine has another address here; a pool uses the earlier one while a worker runs there.
        """
        known = self._instances.get(instance_id)
        directory = _directory(Path(cluster.specific["directory"]), _number(instance_id))
        if known is None and self._outlives and directory.is_dir():
            known = self._running(_number(instance_id), directory)
        return cluster, known

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the machines that have a directory: exited ones, unless they outlive the process that opened them."""
        root = Path(cluster.specific["directory"])
        machines = await _in_thread(lambda: sorted(root.glob("machine-*")))
        status: InstanceStatus = "running" if self._outlives else "exited"
        return [Instance(each.name.replace("machine", "local"), status) for each in machines]

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Kill workers that still run, and remove the directories."""
        for instance_id in instance_ids:
            self._instances.pop(instance_id, None)
            directory = _directory(Path(cluster.specific["directory"]), _number(instance_id))
            await _in_thread(partial(_end_workers, directory))
            await _remove(str(directory))

    async def teardown(self, cluster: Cluster) -> None:
        """Remove the pool's directory."""
        await _remove(cluster.specific["directory"])


def _directory(root: Path, number: int) -> Path:
    return root / f"machine-{number}"


def _number(instance_id: str) -> int:
    return int(instance_id.removeprefix("local-"))


def _end_workers(directory: Path) -> None:
    """Kill the workers that have outlived their client, with all their child processes."""
    for file in directory.glob("nodes/*/pid"):
        if (number := recorded_process(file, zombies=True)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(number, signal.SIGKILL)


async def _remove(directory: str) -> None:
    await _in_thread(partial(shutil.rmtree, directory, ignore_errors=True))


async def _in_thread[R](work: Callable[[], R]) -> R:
    try:
        return await asyncio.to_thread(work)
    except RuntimeError:  # the interpreter is shutting down: no new threads
        return work()
