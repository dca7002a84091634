"""Volumes of a node in each mode, compared with obstore by itself and with `rclone copy`, at one store in memory."""

import importlib.util
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.figure import Aim, Figure, Peer, best, median, timed
from benchmarks.floors.process import Served
from benchmarks.objects import KEY, MB, SECRET, emptied, fill, obstore_down, obstore_up, rclone, remote_of
from benchmarks.settings import Settings
from skyward.storage.location import BucketLocation
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes.copied import CopiedVolume
from skyward.worker.volumes.mounted import MountedVolume
from skyward.worker.volumes.peers import SharedFiles
from skyward.worker.volumes.places import Space
from skyward.worker.volumes.store import StoreFetcher
from skyward.worker.volumes.synced import SyncedVolume
from skyward.worker.volumes.tools import find_tool, fuse_problem

__all__ = ["figures"]

READERS = 16
PIECE = 1 << 20


def figures(settings: Settings) -> Iterator[Figure]:
    """Return the throughput of reading and writing one large file and many small ones, by mode."""
    if importlib.util.find_spec("obstore") is None:
        yield Figure("volumes", "MB/s", None, note="obstore is not installed")
        return
    with Served("object_store") as server, tempfile.TemporaryDirectory(prefix="sky-volumes-") as name:
        endpoint, folder = f"http://127.0.0.1:{server.address}", Path(name)
        fill(folder / "large", 1, (100 if settings.quick else 300) * MB)
        fill(folder / "small", 200 if settings.quick else 1000, 20_000)
        for kind in ("large", "small"):
            yield from _of_kind(_Bench(kind, folder, endpoint, 2 if settings.quick else 5, settings.peers))


class _Bench:
    """Files of one kind, and the volumes that read and write them."""

    def __init__(self, kind: str, folder: Path, endpoint: str, rounds: int, peers: bool) -> None:
        self.kind = kind
        self.folder = folder
        self.endpoint = endpoint
        self.rounds = rounds
        self.peers = peers
        self.files = sorted((folder / kind).iterdir())
        self.megabytes = sum(each.stat().st_size for each in self.files) / MB
        self.text = f"{self.megabytes:,.0f} MB in {len(self.files):,} file{'s' if len(self.files) > 1 else ''}"
        self._number = itertools.count()

    def volume(self, *, read_only: bool) -> NodeVolume:
        """Return the volume of the files, or an empty one to write to."""
        prefix = self.kind if read_only else f"{self.kind}-{next(self._number)}"
        return NodeVolume("/data", "auto", read_only, BucketLocation(
            "bucket", prefix, self.endpoint, "us-east-1", True, KEY, SECRET
        ))  # fmt: skip

    def figure(
        self, name: str, ours: Callable[[], float], floor: Callable[[], object], peer: Callable[[], None]
    ) -> Figure:
        """Return a figure. `ours` returns the seconds that it took, without its preparation."""
        seconds = [(ours(), timed(floor)) for _ in range(self.rounds)]
        mine, theirs = [each for each, _ in seconds], [each for _, each in seconds]
        return Figure(
            f"{self.text}, {name}",
            "MB/s",
            self.megabytes / median(mine),
            self.megabytes / median(theirs),
            "obstore",
            quiet=best(theirs) / best(mine),
            aim=Aim("ratio", 0.9, at_least=True),
            peers=[self._peer(peer)] if self.peers else (),
        )

    def _peer(self, call: Callable[[], None]) -> Peer:
        if shutil.which("rclone") is None:
            return Peer("rclone copy", None, "is not installed")
        return Peer("rclone copy", self.megabytes / median([timed(call) for _ in range(3)]))

    def together(self, work: Callable[[Path], object], paths: list[Path]) -> None:
        """Work on files, on several threads."""
        with ThreadPoolExecutor(READERS) as threads:
            list(threads.map(work, paths))


def _of_kind(bench: _Bench) -> Iterator[Figure]:
    target = bench.folder / "back"
    up = partial(obstore_up, bench.endpoint, bench.kind, bench.folder / bench.kind)
    up()
    down = partial(_obstore_down, bench, target)
    peer_down = partial(_rclone_down, bench, target)
    peer_up = partial(rclone, str(bench.folder / bench.kind), remote_of(bench.endpoint, f"{bench.kind}-rclone"))
    yield bench.figure("copy", partial(_copy, bench), down, peer_down)
    yield bench.figure("sync, written", partial(_sync, bench), up, peer_up)
    if problem := fuse_problem():
        yield Figure(f"{bench.text}, mount", "MB/s", None, note=problem)
        return
    yield bench.figure("mount, read", partial(_read_mount, bench), down, peer_down)
    yield bench.figure("mount, written", partial(_write_mount, bench), up, peer_up)


def _obstore_down(bench: _Bench, target: Path) -> None:
    obstore_down(bench.endpoint, bench.kind, emptied(target))


def _rclone_down(bench: _Bench, target: Path) -> None:
    rclone(remote_of(bench.endpoint, bench.kind), str(emptied(target)))


def _copy(bench: _Bench) -> float:
    volume, cache = bench.volume(read_only=True), emptied(bench.folder / "cache")
    copied = CopiedVolume(volume, cache, StoreFetcher(volume.location), _as_it_is, _nothing, SharedFiles(), print)
    seconds = timed(copied.attach)
    copied.detach()
    return seconds


def _sync(bench: _Bench) -> float:
    volume, folder = bench.volume(read_only=False), emptied(bench.folder / "synced")
    synced = SyncedVolume(volume, folder, StoreFetcher(volume.location), _as_it_is, _nothing, print, lambda _: None)
    synced.attach()
    for path in bench.files:
        shutil.copyfile(path, folder / path.name)
    seconds = timed(lambda: synced.save(60.0))
    synced.detach()
    return seconds


def _read_mount(bench: _Bench) -> float:
    return _in_mount(bench, read_only=True, work=lambda folder: bench.together(_read, list(folder.iterdir())))


def _write_mount(bench: _Bench) -> float:
    def write(folder: Path) -> None:
        bench.together(lambda path: shutil.copyfile(path, folder / path.name), bench.files)

    return _in_mount(bench, read_only=False, work=write)


def _in_mount(bench: _Bench, *, read_only: bool, work: Callable[[Path], None]) -> float:
    """Return the seconds that work in a mount takes, until all is in the store."""
    volume, tool = bench.volume(read_only=read_only), find_tool(read_only=read_only)
    assert tool is not None
    space = Space(f"benchmark-{bench.folder.name}-{next(bench._number)}")
    mounted = MountedVolume(volume, tool, space, bench.folder / "waiting", _as_it_is, _nothing)
    try:
        folder = mounted.attach()

        def all_of_it() -> None:
            work(folder)
            assert not mounted.save(60.0)

        return timed(all_of_it)
    finally:
        mounted.detach()
        space.clear()


def _read(path: Path) -> None:
    piece = bytearray(PIECE)
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass


def _as_it_is(folder: Path) -> Path:
    return folder


def _nothing() -> None:
    """Do nothing."""
