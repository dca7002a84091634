"""Floor of a call without an engine: asyncio TCP and pickle 5. Run as a module, it is the serving process."""

import asyncio
import pickle
import struct
import sys
from collections.abc import Callable
from typing import Any, Self

from benchmarks.floors.process import Served

__all__ = ["TcpCalls"]

_HEAD = struct.Struct("!I")


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            function, args = pickle.loads(await _read(reader))
        except asyncio.IncompleteReadError:
            return
        _write(writer, pickle.dumps(function(*args), protocol=5))


async def _read(reader: asyncio.StreamReader) -> bytes:
    (length,) = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return await reader.readexactly(length)


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(_HEAD.pack(len(data)) + data)


class TcpCalls:
    """One process to call, and a loop on the calling thread, for a `with` block."""

    def __init__(self) -> None:
        self._served = Served("tcp")
        host, _, port = self._served.address.rpartition(":")
        self._runner = asyncio.Runner()
        self._reader, self._writer = self._runner.run(asyncio.open_connection(host, int(port)))

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function there, and wait."""
        return self._runner.run(self._call(function, args))

    def batch(self, function: Callable[..., Any], batch: int) -> list[float]:
        """Return the seconds of each of `batch` calls, one after another, on the loop itself."""
        return self._runner.run(self._batch(function, batch))

    async def _batch(self, function: Callable[..., Any], batch: int) -> list[float]:
        loop = asyncio.get_running_loop()
        times = []
        for _ in range(batch):
            start = loop.time()
            await self._call(function, ())
            times.append(loop.time() - start)
        return times

    async def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        _write(self._writer, pickle.dumps((function, args), protocol=5))
        return pickle.loads(await _read(self._reader))

    def many(self, function: Callable[..., Any], number: int) -> None:
        """Call it `count` times; all calls are sent before the last answer is read."""
        self._runner.run(self._many(function, number))

    async def _many(self, function: Callable[..., Any], number: int) -> None:
        async def send() -> None:
            for index in range(number):
                _write(self._writer, pickle.dumps((function, (index,)), protocol=5))
                await self._writer.drain()

        sending = asyncio.create_task(send())
        for _ in range(number):
            pickle.loads(await _read(self._reader))
        await sending

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        self._runner.close()
        self._served.__exit__()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"{host}:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
