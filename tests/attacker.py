"""An unauthenticated client at the ports of a pool: opens connections and sends invalid data. Needs no part of Skyward.

`python tests/attacker.py --frames 20000 --idle 500 --slow 20 HOST:PORT ...` becomes another user if possible, spreads
these over the ports, prints the number of frames sent, and then keeps the idle and slow connections open until its
standard input ends.
"""

import argparse
import contextlib
import os
import pickle
import random
import socket
import ssl
import struct
import sys
import threading
import time

NOBODY = 65534


class Bomb:
    """An object that creates the file that it names when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (self.path,))


def frames(random: random.Random, bomb: bytes) -> bytes:
    """Return a malformed frame: noise, a pickle, a huge length, the start of a handshake, or an invalid request."""
    noise = random.randbytes(random.choice((1, 7, 36, 64, 500, 4096)))
    return random.choice(
        (
            noise,
            bomb,
            struct.pack("!I", len(bomb)) + bomb,
            struct.pack("<Q", 2**62) + noise,
            b"\xff" * 16 + noise,
            b"SKY1" + noise,
            b"SKY1" + bytes(32) + bytes(32) + bomb,
            b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + noise,
            b"\x16\x03\x01\xff\xff" + noise,
            b"GET / HTTP/1.1\r\n\r\n",
            b"t" * 32 + b"P" + b"k" * 32 + struct.pack("!Q", 2**40),
        )
    )


def reset(connection: socket.socket) -> None:
    """Close a connection so that its port is free at once."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def connect(address: tuple[str, int]) -> socket.socket | None:
    """Return a connection; None if it was refused."""
    connection = socket.socket()
    connection.settimeout(0.5)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        return None
    return connection


def send_frames(addresses: list[tuple[str, int]], count: int, bomb: bytes, seed: int) -> int:
    """Send so many malformed frames, each over a separate connection; return the number sent."""
    chance, sent = random.Random(seed), 0
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    for number in range(count):
        connection = connect(addresses[number % len(addresses)])
        if connection is None:
            continue
        with contextlib.suppress(OSError):
            if number % 200 == 0:
                with anyone.wrap_socket(connection) as spoken:
                    spoken.sendall(bomb)
                    spoken.recv(1)
            else:
                connection.sendall(frames(chance, bomb))
            sent += 1
        reset(connection)
    return sent


def hold(address: tuple[str, int], count: int, said: bytes, begun: threading.Event) -> None:
    """Keep so many connections open, reopened as they end; on each, `said` is sent one byte at a time, if given."""
    held: list[socket.socket] = []
    while True:
        for connection in tuple(held):
            try:
                connection.setblocking(False)
                if said:
                    connection.send(said[:1])
                ended = connection.recv(4096) == b""
            except BlockingIOError:
                ended = False
            except OSError:
                ended = True
            if ended:
                held.remove(connection)
                reset(connection)
        held += [each for _ in range(count - len(held)) if (each := connect(address)) is not None]
        begun.set()
        time.sleep(0.3)


def main() -> None:
    """Run the command line."""
    words = argparse.ArgumentParser()
    words.add_argument("--frames", type=int, default=0)
    words.add_argument("--idle", type=int, default=0)
    words.add_argument("--slow", type=int, default=0)
    words.add_argument("--bomb", default="/nonexistent/bomb")
    words.add_argument("addresses", nargs="+")
    asked = words.parse_args()
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    addresses = [(each.rpartition(":")[0], int(each.rpartition(":")[2])) for each in asked.addresses]
    holding: list[threading.Event] = []
    for address in addresses:
        for count, said in ((asked.idle // len(addresses), b""), (asked.slow, b"\x16")):
            if count:
                holding.append(threading.Event())
                threading.Thread(target=hold, args=(address, count, said, holding[-1]), daemon=True).start()
    sent = send_frames(addresses, asked.frames, pickle.dumps(Bomb(asked.bomb)), os.getpid())
    for each in holding:
        each.wait()
    print(sent, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
