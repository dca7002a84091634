"""Uploads and downloads of objects, compared with obstore by itself and with `rclone copy`, at one store in memory."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figure import Aim, Figure, Peer, best, interleave, median, timed
from benchmarks.floors.process import Served
from benchmarks.settings import Settings
from skyward.storage.listing import list_objects
from skyward.storage.location import BucketLocation
from skyward.storage.trees import download_many, files_below, upload_many

__all__ = ["KEY", "MB", "SECRET", "emptied", "figures", "fill", "obstore_down", "obstore_up", "rclone", "remote_of"]

MB = 1_000_000
AT_ONCE = 16
KEY, SECRET = "key", "secret"

PEAK = """
import sys
from pathlib import Path
from skyward.storage.listing import list_objects
from skyward.storage.location import BucketLocation
from skyward.storage.trees import download_many, files_below, upload_many
endpoint, kind, source, target = sys.argv[1:]
location = BucketLocation("bucket", kind, endpoint, "us-east-1", True, "key", "secret")
def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
list(list_objects(location))  # loads everything
before = peak()
if target:
    download_many(location, list_objects(location), Path(target))
else:
    upload_many(location, files_below(Path(source)))
print(peak() - before)
"""
"""Program that prints the KiB by which a transfer raises the memory of its process."""


def figures(settings: Settings) -> Iterator[Figure]:
    """Return the throughput of one large object and of many small ones, up and down."""
    if importlib.util.find_spec("obstore") is None:
        yield Figure("objects", "MB/s", None, note="obstore is not installed")
        return
    rounds = 3 if settings.quick else 7
    with Served("object_store") as server, tempfile.TemporaryDirectory(prefix="sky-objects-") as name:
        endpoint, folder = f"http://127.0.0.1:{server.address}", Path(name)
        fill(folder / "large", 1, (200 if settings.quick else 500) * MB)
        fill(folder / "small", 500 if settings.quick else 2000, 20_000)
        for kind in ("large", "small"):
            yield from _both(kind, folder, endpoint, rounds, settings)
        for target in ("", str(folder / "back")):
            text = "more memory at the peak, one large object, " + ("down" if target else "up")
            arguments = (endpoint, "large", str(folder / "large"), target)
            done = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=True)
            yield Figure(text, "MB", int(done.stdout) * 1024 / MB, aim=Aim("value", 200))


def _both(kind: str, folder: Path, endpoint: str, rounds: int, settings: Settings) -> Iterator[Figure]:
    source, target = folder / kind, folder / "back"
    sizes = [path.stat().st_size for path, _ in files_below(source)]
    megabytes = sum(sizes) / MB
    location = BucketLocation("bucket", kind, endpoint, "us-east-1", True, KEY, SECRET)
    text = f"{megabytes:,.0f} MB in {len(sizes):,} object{'s' if len(sizes) > 1 else ''}"

    def up() -> None:
        upload_many(location, files_below(source))

    def down() -> None:
        download_many(location, list_objects(location), emptied(target))

    def floor_down() -> None:
        obstore_down(endpoint, kind, emptied(target))

    remote = remote_of(endpoint, kind)

    def rclone_down() -> None:
        rclone(remote, str(emptied(target)))

    floor_up = partial(obstore_up, endpoint, kind, source)
    for name, ours, floor, peer in (  # up first: it fills the store
        (f"{text}, up", up, floor_up, partial(rclone, str(source), remote)),
        (f"{text}, down", down, floor_down, rclone_down),
    ):
        mine, theirs = interleave((ours, floor), 1, rounds)
        yield Figure(
            name,
            "MB/s",
            megabytes / median(mine),
            megabytes / median(theirs),
            "obstore",
            quiet=best(theirs) / best(mine),
            aim=Aim("ratio", 0.9, at_least=True),
            peers=[_peer(peer, megabytes)] if settings.peers else (),
        )


def _peer(call: Callable[[], None], megabytes: float) -> Peer:
    if shutil.which("rclone") is None:
        return Peer("rclone", None, "is not installed")
    return Peer("rclone", megabytes / median([timed(call) for _ in range(3)]))


def remote_of(endpoint: str, kind: str) -> str:
    """Return a prefix as rclone takes it."""
    return f":s3,provider=Other,env_auth=true,endpoint='{endpoint}',force_path_style=true:bucket/{kind}"


def obstore_down(endpoint: str, kind: str, target: Path) -> None:
    """Download a prefix with obstore."""
    asyncio.run(_obstore_down(endpoint, kind, target))


def obstore_up(endpoint: str, kind: str, source: Path) -> None:
    """Upload a folder with obstore."""
    asyncio.run(_obstore_up(endpoint, kind, source))


async def _obstore_up(endpoint: str, kind: str, source: Path) -> None:
    """Upload in the way of obstore's documentation: large files by their paths, small ones at once."""
    store, room = _store(endpoint), asyncio.Semaphore(AT_ONCE)

    async def send(path: Path, key: str) -> None:
        async with room:
            await store.put_async(f"{kind}/{key}", path)

    await asyncio.gather(*(send(path, key) for path, key in files_below(source)))


async def _obstore_down(endpoint: str, kind: str, target: Path) -> None:
    """Download in the way of obstore's documentation: each object as a stream."""
    store, room = _store(endpoint), asyncio.Semaphore(AT_ONCE)

    async def fetch(key: str) -> None:
        path = target / key.removeprefix(f"{kind}/")
        async with room:
            reply = await store.get_async(key)
            with path.open("wb") as file:
                async for chunk in reply.stream():
                    file.write(chunk)

    async for page in store.list(kind, chunk_size=1000):
        await asyncio.gather(*(fetch(each["path"]) for each in page))


def _store(endpoint: str) -> Any:
    from obstore.store import S3Store

    return S3Store(
        "bucket",
        endpoint=endpoint,
        region="us-east-1",
        access_key_id=KEY,
        secret_access_key=SECRET,
        client_options={"allow_http": True},
    )


def rclone(source: str, target: str) -> None:
    """Copy with rclone."""
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    environment = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"} | keys
    command = ["rclone", "copy", "--config", "/dev/null", "--transfers", str(AT_ONCE), "--ignore-times", source, target]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def fill(folder: Path, count: int, size: int) -> None:
    """Make files with random content."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:05}").write_bytes(os.urandom(size))


def emptied(folder: Path) -> Path:
    """Return a folder without content."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
