"""A network of the browser's own: it drops its downloads when an address of its network comes or goes, as the machines
of other tests do. Needs root.
"""

import asyncio
import fcntl
import os
import shlex
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

__all__ = ["BrowserNetwork"]

_SET_FLAGS: Final = 0x8914  # SIOCSIFFLAGS
_UP: Final = 0x1  # IFF_UP
_CHUNK: Final = 65536


class BrowserNetwork:
    """A network namespace with a loopback interface, from which the browser reaches chosen ports of this host's.

    A socket belongs to the namespace of the thread that created it. So the relay listens in the namespace, and connects
    to this host's servers, from one event loop.
    """

    def __init__(self) -> None:
        self._namespace = _in_thread(_new_namespace)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser-relay")
        self._thread.start()
        self._servers: list[asyncio.Server] = []

    def program(self, folder: Path, command: str) -> Path:
        """Return an executable in `folder` that runs the command in this network."""
        path = folder / Path(command).name
        inside = f"nsenter --net=/proc/{os.getpid()}/fd/{self._namespace}"
        path.write_text(f'#!/bin/sh\nexec {inside} {shlex.quote(command)} "$@"\n')
        path.chmod(0o755)
        return path

    def connect(self, port: int) -> None:
        """Make a port of this host's loopback reachable, at the same port of the network's."""
        listener = _in_thread(lambda: self._listen(port))
        asyncio.run_coroutine_threadsafe(self._serve(listener, port), self._loop).result()

    def _listen(self, port: int) -> socket.socket:
        os.setns(self._namespace, os.CLONE_NEWNET)
        return socket.create_server(("127.0.0.1", port))

    async def _serve(self, listener: socket.socket, port: int) -> None:
        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with closing(writer), suppress(OSError):  # the server, or the page, may end at any time
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                with closing(far_writer):
                    await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

        self._servers.append(await asyncio.start_server(relay, sock=listener))

    def close(self) -> None:
        """End the relay. The namespace ends with the browser."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        os.close(self._namespace)

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        own = asyncio.current_task()
        open_relays = [task for task in asyncio.all_tasks() if task is not own]
        for task in open_relays:
            task.cancel()
        await asyncio.gather(*open_relays, return_exceptions=True)


def _new_namespace() -> int:
    """Give the calling thread a network namespace with a loopback interface, and return a descriptor of it."""
    os.unshare(os.CLONE_NEWNET)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh", b"lo", _UP))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of the stream, and pass that on."""
    with closing(writer):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()


def _in_thread[T](work: Callable[[], T]) -> T:
    """Return the result of `work` in a thread that ends with it, because it stays in the namespace that it enters."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()
