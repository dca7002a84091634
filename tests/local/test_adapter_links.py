"""Worker adapters and their controller on one loop, with broken connections and unauthenticated clients."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest

import skyward as sky
from skyward.link.adapters.registry import GroupRequirements
from skyward.link.adapters.server import AdapterServer
from skyward.providers.protocol import Instance
from skyward.values.needs import Needs
from skyward_providers.adapter_serve import serve
from tests.free_port import free_port
from tests.identity import identity
from tests.local.test_adapters import TOKEN, directories
from tests.waiting import wait_for_async

pytestmark = pytest.mark.local


@contextlib.asynccontextmanager
async def controller(silence: float = 10.0) -> AsyncIterator[tuple[AdapterServer, str]]:
    server, listening = AdapterServer(TOKEN, silence), socket.create_server(("127.0.0.1", 0))
    host, port = listening.getsockname()
    await server.open(listening)
    try:
        yield server, f"{host}:{port}"
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def serving(connect: str, **options: object) -> AsyncIterator[list[str]]:
    """An adapter over local machines, which records its log lines."""
    log_lines: list[str] = []
    stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(sky.Local(), connect=connect, token=TOKEN, stop=stop, say=log_lines.append, **options)  # type: ignore[arg-type]  # as a test passes them
    )
    try:
        yield log_lines
    finally:
        stop.set_result("the test is over")
        await task


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_adapter_without_capacity_starts_only_what_fits(tmp_path: Path) -> None:
    async def test() -> None:
        settings = sky.Adapter(f"127.0.0.1:{free_port()}", connect_timeout=20, token=TOKEN)
        provider = settings.create_provider()
        async with serving(settings.listen, max_groups=2):
            offers = [offer async for offer in provider.offers()]
            cluster = await provider.prepare(sky.Spec(), offers[0], identity("pool", tmp_path))
            cluster, machines = await provider.provision(cluster, 3)
            assert len(machines) == 2
            with pytest.raises(sky.ProvisioningError, match=r"no room \(local-\w+ has 2 at most\)"):
                await provider.provision(cluster, 1)
            assert await provider.get_instance(cluster, machines[0].id) == (cluster, machines[0])
            await provider.terminate(cluster, [machines[0].id, "nothing"])
            assert await provider.get_instance(cluster, machines[0].id) == (cluster, None)
            cluster, (again,) = await provider.provision(cluster, 2)
            assert again.id not in {each.id for each in machines}
            await provider.teardown(cluster)
            await provider.teardown(cluster)

    run(test)


def test_only_adapters_with_the_requested_capabilities_are_asked() -> None:
    async def test() -> None:
        gpu = sky.Spec(capabilities={"gpu"}, resources={"GPU": 2})
        async with controller() as (server, address), serving(address, spec=gpu), serving(address):
            wanted = GroupRequirements(Needs({"GPU": 2}, {"gpu"}))
            (log_lines,) = await server.adapters(wanted, 20)
            assert (set(log_lines.capabilities), log_lines.resources["GPU"]) == ({"gpu"}, 2.0)
            instance = await server.start(wanted)
            assert instance.id.startswith(log_lines.adapter_id)
            with pytest.raises(sky.ProvisioningError, match="no adapter has nodes with 3 GPU"):
                await server.start(GroupRequirements(Needs({"GPU": 3})))
            await server.shutdown(instance.id)

    run(test)


class Cable:
    """A relay between adapters and a controller, until its connections are broken."""

    def __init__(self, address: str) -> None:
        self._to = address.rsplit(":", 1)
        self._writers: set[asyncio.StreamWriter] = set()
        self.plugged = asyncio.Event()
        self.plugged.set()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.plugged.set()
        self._server.close()
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer}
        try:
            await self.plugged.wait()
            with contextlib.suppress(OSError):
                far, near = await asyncio.open_connection(*self._to)
                ends.add(near)
                self._writers |= ends
                await asyncio.gather(self._pass(reader, near), self._pass(far, writer), return_exceptions=True)
        except asyncio.CancelledError:  # the test is over
            for end in ends:
                end.transport.abort()
            raise
        finally:
            self._writers -= ends

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()


def test_broken_connection_loses_no_group_and_no_command() -> None:
    async def test() -> None:
        async with controller() as (server, address):
            cable = Cable(address)
            async with cable as through, serving(through) as log_lines:
                await server.adapters(None, 20)
                kept = await server.start(GroupRequirements())
                cable.plugged.clear()
                cable.cut()
                await wait_for_async(lambda: any("ended" in each for each in log_lines), "a connection to end")
                ending = asyncio.create_task(server.shutdown(kept.id))
                await asyncio.sleep(0)
                assert server.instance(kept.id) is None
                cable.plugged.set()
                await ending
                assert there()
                another = await server.start(GroupRequirements())
                cable.cut()
                await wait_for_async(lambda: connections(log_lines) == 3, "the third connection")
                assert server.instance(another.id) == another
                await server.shutdown(another.id)

    run(test)


def connections(log_lines: list[str]) -> int:
    return sum("is connected" in each for each in log_lines)


def there(*instances: Instance) -> bool:
    """Return whether exactly these machines are running, of all that an adapter has launched here."""
    found = {machine for directory in directories() for machine in directory.glob("machine-*")}
    return found == {Path(getattr(instance.access, "directory", "")) for instance in instances}


def test_adapter_that_is_silent_too_long_is_lost_and_may_return() -> None:
    async def test() -> None:
        async with controller(silence=2.0) as (server, address):
            cable = Cable(address)
            async with cable as through, serving(through, heartbeat=0.05):
                await server.adapters(None, 20)
                kept = await server.start(GroupRequirements())
                cable.plugged.clear()
                cable.cut()
                await wait_for_async(lambda: server.instance(kept.id) is None, "the group to be lost")
                with pytest.raises(sky.ProvisioningError, match="no adapter is connected"):
                    await server.start(GroupRequirements())
                cable.plugged.set()
                await wait_for_async(lambda: server.instance(kept.id) == kept, "the group to return")
                await server.shutdown(kept.id)

    run(test)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * 200_000,
        b'{"v":2,"type":"heartbeat_echo"}\n',
        b"[" * 60_000 + b"\n",
    ],
)
def test_unauthenticated_connections_are_closed_without_effect(sent: bytes) -> None:
    async def test() -> None:
        async with controller() as (server, address), serving(address):
            reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
            writer.write(sent)
            if not sent:
                writer.write_eof()
            with contextlib.suppress(ConnectionError):
                assert len(await reader.read()) < 1000
            writer.close()
            await server.adapters(None, 20)
            await server.shutdown((await server.start(GroupRequirements())).id)

    run(test)


def test_line_that_a_relay_adds_ends_the_connection() -> None:
    """The relay is in between from the start and forwards the proofs; it cannot forge a line of either side."""

    async def test() -> None:
        async with controller() as (server, address):
            cable = Cable(address)
            async with cable as through, serving(through, heartbeat=0.05) as log_lines:
                await server.adapters(None, 20)
                kept = await server.start(GroupRequirements())
                for writer in tuple(cable._writers):
                    writer.write(b'{"v":2,"type":"goodbye","reason":"go","ends_groups":true}\n')
                await wait_for_async(lambda: connections(log_lines) == 2, "the second connection")
                assert server.instance(kept.id) == kept, "no group was terminated"
                await server.shutdown(kept.id)

    run(test)


def test_adapter_connects_past_many_silent_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has more time for its proof than this test takes."""
    monkeypatch.setattr("skyward.link.adapters.server._HANDSHAKE", 1000.0)

    async def test() -> None:
        async with controller() as (server, address), contextlib.AsyncExitStack() as strangers:
            for _ in range(100):
                _, writer = await asyncio.open_connection(*address.rsplit(":", 1))
                strangers.callback(writer.close)
            async with serving(address):
                assert await server.adapters(None, 20)
                await server.shutdown((await server.start(GroupRequirements())).id)

    run(test)


def test_abandoned_start_leaves_no_machine() -> None:
    async def test() -> None:
        async with controller() as (server, address), serving(address):
            await server.adapters(None, 20)
            for turns in range(12):  # abandoned at each step
                start = asyncio.create_task(server.start(GroupRequirements()))
                for _ in range(turns):
                    await asyncio.sleep(0)
                start.cancel()
                await asyncio.wait([start])
            last = await server.start(GroupRequirements())
            await wait_for_async(lambda: there(last), "the last machine")
            await server.shutdown(last.id)

    run(test)
