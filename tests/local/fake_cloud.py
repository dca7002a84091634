"""A cloud of files: each file is a machine, from its launch until its termination. The machines run on this host.

`FAKE_CLOUD_KILL` in the environment kills the calling process at that point, as a laptop that dies. `fail` and
`hold` inject errors and delays at a point.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyward.providers import Cluster, Instance, InstanceType, LocalAccess, Offer, PoolIdentity, Provider
from skyward.specs import Spec


@dataclass(frozen=True, slots=True)
class FakeCloud:
    """The cloud, in a directory."""

    directory: str

    @property
    def name(self) -> str:
        return "fake"

    def create_provider(self) -> Provider:
        return _Cloud(Path(self.directory))

    def fail(self, point: str, times: int = 1) -> None:
        """Raise an error at a point, so many times."""
        _point_file(Path(self.directory), "fail", point).write_text(str(times))

    def hold(self, point: str) -> Callable[[], bool]:
        """Block at a point until `release`; return whether a caller is blocked."""
        marker = _point_file(Path(self.directory), "hold", point)
        marker.write_text("")
        return lambda: marker.read_text() == "held"

    def release(self, point: str) -> None:
        """Release the blocked callers."""
        _point_file(Path(self.directory), "hold", point).unlink()

    @property
    def left(self) -> list[str]:
        """The machines, and the resources that they share."""
        root = Path(self.directory)
        return sorted(str(path.relative_to(root)) for kind in ("machines", "shared") for path in root.glob(f"{kind}/*"))


def _point_file(directory: Path, what: str, point: str) -> Path:
    return directory / f"{what} {point}"


class _Cloud:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._machines, self._shared, self._unseen = (directory / name for name in ("machines", "shared", "unseen"))
        for each in (self._machines, self._shared, self._unseen):
            each.mkdir(exist_ok=True)

    async def _point(self, name: str) -> None:
        if os.environ.get("FAKE_CLOUD_KILL") == name:
            os.kill(os.getpid(), signal.SIGKILL)
        hold, fail = (_point_file(self._directory, what, name) for what in ("hold", "fail"))
        while await asyncio.to_thread(hold.exists):
            await asyncio.to_thread(_note, hold)
            await asyncio.sleep(0.01)
        times = int(await asyncio.to_thread(fail.read_text)) if await asyncio.to_thread(fail.exists) else 0
        if times:
            await asyncio.to_thread(fail.write_text, str(times - 1))
            raise OSError(f"the cloud is down {name}")

    async def offers(self) -> AsyncIterator[Offer]:
        await self._point("before offers")
        yield Offer("fake", InstanceType("fake", 1, 1), on_demand_price=1.0)

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        await self._point("before prepare")
        (self._shared / pool.id).mkdir(exist_ok=True)
        await self._point("after prepare")
        return Cluster(pool.id, pool.id, spec, offer)

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        await self._point("before create")
        created = []
        for _ in range(count):
            machine = self._machines / secrets.token_hex(4)
            made = self._unseen / machine.name
            (made / "work").mkdir(parents=True)
            (made / "tags").write_text(json.dumps(dict(cluster.tags)))
            made.rename(machine)  # visible machines have their tags
            created.append(self._instance(machine))
            await self._point("among creates")
        await self._point("after create")
        return cluster, created

    def _instance(self, machine: Path) -> Instance:
        access = LocalAccess(f"127.91.0.{1 + int(machine.name, 16) % 250}", str(machine / "work"))
        return Instance(machine.name, "running", access, address=access.host)

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        machine = self._machines / instance_id
        return cluster, self._instance(machine) if await asyncio.to_thread(machine.exists) else None

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        pool = cluster.tags["skyward-pool"]
        found = [machine for machine in self._machines.iterdir() if _tags(machine).get("skyward-pool") == pool]
        return [self._instance(machine) for machine in found]

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        await self._point("before terminate")
        for each in instance_ids:
            shutil.rmtree(self._machines / each, ignore_errors=True)
            await self._point("among terminates")

    async def teardown(self, cluster: Cluster) -> None:
        await self._point("before teardown")
        shutil.rmtree(self._shared / cluster.pool, ignore_errors=True)
        await self._point("after teardown")


def _tags(machine: Path) -> dict[str, str]:
    try:
        tags: dict[str, str] = json.loads((machine / "tags").read_text())
    except FileNotFoundError:  # terminated meanwhile
        return {}
    return tags


def _note(hold: Path) -> None:
    with contextlib.suppress(FileNotFoundError), hold.open("r+") as file:
        file.write("held")
