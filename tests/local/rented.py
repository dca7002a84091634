"""A cloud of files: each machine that was created is one, until it is terminated. Its machines are of this machine.

With `RENTED_KILL` in the environment, the process that asks is killed at that point, as a laptop that dies.
"""

import asyncio
import json
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyward.provider import Cluster, Instance, InstanceType, LocalAccess, Offer, Provider
from skyward.specs import Spec


def _point(name: str) -> None:
    if os.environ.get("RENTED_KILL") == name:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Rented:
    """The cloud, in a directory."""

    directory: str

    @property
    def name(self) -> str:
        return "rented"

    def create_provider(self) -> Provider:
        return _Cloud(Path(self.directory))

    @property
    def left(self) -> list[str]:
        """What is there: machines, and what they share."""
        root = Path(self.directory)
        return sorted(str(path.relative_to(root)) for kind in ("machines", "shared") for path in root.glob(f"{kind}/*"))


class _Cloud:
    def __init__(self, directory: Path) -> None:
        self._machines, self._shared = directory / "machines", directory / "shared"
        for each in (self._machines, self._shared):
            each.mkdir(exist_ok=True)

    async def offers(self) -> AsyncIterator[Offer]:
        yield Offer("rented", InstanceType("rented", 1, 1), on_demand_price=1.0)

    async def prepare(self, spec: Spec, offer: Offer, pool: str) -> Cluster:
        _point("before prepare")
        (self._shared / pool).mkdir(exist_ok=True)
        _point("after prepare")
        return Cluster(pool, pool, spec, offer)

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        _point("before create")
        created = []
        for _ in range(count):
            machine = self._machines / secrets.token_hex(4)
            (machine / "work").mkdir(parents=True)
            (machine / "tags").write_text(json.dumps(dict(cluster.tags)))
            created.append(self._instance(machine))
            _point("among creates")
        _point("after create")
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
        _point("before terminate")
        for each in instance_ids:
            shutil.rmtree(self._machines / each, ignore_errors=True)
            _point("among terminates")

    async def teardown(self, cluster: Cluster) -> None:
        _point("before teardown")
        shutil.rmtree(self._shared / cluster.pool, ignore_errors=True)
        _point("after teardown")


def _tags(machine: Path) -> dict[str, str]:
    tags: dict[str, str] = json.loads((machine / "tags").read_text())
    return tags
