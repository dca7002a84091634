"""Fixtures and checks for every test: its tier, a temporary directory for the run, and no leaks."""

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from hypothesis import settings
from jupyter_client.connect import LocalPortCache
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from skyward.pool.hooks import opened
from skyward.wire.payloads.modules import OUR_PACKAGES
from tests.free_port import free_port

_TIERS = Path(__file__).parent
_PATIENCE = 20.0
"""Seconds that resources of a test have to disappear after its end."""

_SEQUENCES = ("ui", "containers", "slurm", "kubernetes")
"""Tiers that share a server for the whole run: one process runs all of their tests, and begins with the longest."""

_STAYS = (
    "skyward-loop",  # the library's only loop, a daemon for the life of the process
    "skyward-reaper",  # daemons of a kernel, for the life of the process
    "skyward-sweeper",
    "skyward-io",  # that loop's executor: a bounded number of threads, which live as long as it does
)
"""Prefixes of names of threads that may outlive the test that started them."""


# A machine that pauses for a moment is no failure; each run has new seeds, in CI too.
settings.register_profile("skyward", settings.get_profile("default"), deadline=None)
settings.load_profile("skyward")

sys.dont_write_bytecode = False  # collection keeps the rewritten tests, whatever the environment says

LocalPortCache.find_available_port = lambda self, ip: free_port(ip)  # type: ignore[method-assign]  # for kernels


def pytest_configure() -> None:
    # A separate directory: files of other runs, or of the user, in the temporary directory are not leaks of this one.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="sky-test-")
    os.environ["SKYWARD_DATA_DIR"] = str(Path(tempfile.tempdir, "data"))
    os.environ["SKYWARD_CACHE_DIR"] = str(Path(tempfile.tempdir, "cache"))
    os.environ["SKYWARD_DEFAULTS"] = ""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def pytest_unconfigure() -> None:
    own, tempfile.tempdir = tempfile.gettempdir(), None
    for name in ("TMPDIR", "SKYWARD_DATA_DIR", "SKYWARD_CACHE_DIR", "SKYWARD_DEFAULTS"):
        del os.environ[name]
    shutil.rmtree(own, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the tier of a test from its folder; put long sequences first, so that none is left when all else is done."""
    for item in items:
        item.add_marker(_tier(item))
    order = {tier: place for place, tier in enumerate((*_SEQUENCES, "machines", "package"))}
    items.sort(key=lambda item: order.get(_tier(item), len(order)))


def _tier(item: pytest.Item) -> str:
    return item.path.relative_to(_TIERS).parts[0] if item.path.is_relative_to(_TIERS) else "notebooks"


class _Together(LoadScopeScheduling):  # type: ignore[misc]  # no types
    """Assigns the tests of a file to one of the parallel processes, and those of a sequence too."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((tier for tier in _SEQUENCES if f"tests/{tier}/" in file), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Together:
    return _Together(config, log)


def pytest_collection_finish() -> None:
    """Write no more bytecode: that of a module which a test changes twice in a second would be outdated."""
    sys.dont_write_bytecode = True


@pytest.fixture(autouse=True)
def _signals_are_not_ignored() -> Iterator[None]:
    """Make SIGINT raise `KeyboardInterrupt`, and reset SIGHUP in child processes: `nohup make test &` ignores both."""
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler)}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: None)  # a handler is not inherited
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


_our_modules: dict[str, ModuleType] = {}
"""Modules of ours that are loaded."""

_test_modules: dict[str, ModuleType] = {}
"""Modules of the tests that are loaded."""

_loaded = 0
"""Number of all modules when the last test began: looking at thousands of names before each test takes a while."""


@pytest.fixture(autouse=True)
def _modules_stay() -> Iterator[None]:
    """Fail a test that imports one of our modules twice: a patch in a later test would miss the one in use.

    A cell that runs in this process removes the tests, which are local modules to it, so that they are imported again.
    They are put back: a test whose functions are not those of the module by its name cannot pickle them.
    """
    global _loaded
    if len(sys.modules) != _loaded:
        _loaded = len(sys.modules)
        _our_modules.clear()
        _test_modules.clear()
        for name, module in [*sys.modules.items()]:
            package = name.partition(".")[0]
            if package in OUR_PACKAGES:
                _our_modules[name] = module
            elif package == "tests":
                _test_modules[name] = module
    yield
    for name, module in _test_modules.items():
        if sys.modules.get(name) is not module:
            _loaded = 0
            sys.modules[name] = module
            parent, _, own = name.rpartition(".")
            if parent:
                setattr(_test_modules[parent], own, module)
    replaced = sorted(name for name, module in _our_modules.items() if sys.modules.get(name) is not module)
    if replaced:
        _loaded = 0
    assert not replaced, f"the test replaced {', '.join(replaced)} in sys.modules"


@dataclass(frozen=True, slots=True)
class Traces:
    """Resources that this process has open, each with its description for a failure."""

    threads: dict[object, str]
    processes: dict[object, str]
    ports: dict[object, str]
    files: dict[object, str]

    @classmethod
    def now(cls) -> "Traces":
        """Take a snapshot of the resources."""
        me = psutil.Process()
        return cls(
            threads={t: f"thread {t.name}" for t in threading.enumerate() if not t.name.startswith(_STAYS)},
            processes={key: f"process {process.pid}: {key[1]}" for key, process in _processes().items()},
            ports={
                (c.laddr.ip, c.laddr.port): f"listening port {c.laddr.ip}:{c.laddr.port}"
                for c in me.net_connections(kind="inet")
                if c.status == psutil.CONN_LISTEN
            },
            files={path: f"file {path}" for path in _own_files()},
        )

    def since(self, before: "Traces") -> list[str]:
        """Return the resources that exist now and not in `before`."""
        kinds = ((getattr(self, kind), getattr(before, kind)) for kind in self.__slots__)
        return [words for now, then in kinds for key, words in now.items() if key not in then]


def _processes() -> dict[tuple[int, str, int], psutil.Process]:
    """Return the descendants of this process: by parent, command, and how many such there are.

    So the next `sleep` of a script that outlives a test does not count as a leak. Neither does the process of a slot
    while its worker runs: one that a test has killed is started again after the test.
    """
    if _is_childless():
        return {}
    found: dict[tuple[int, str, int], psutil.Process] = {}
    count: Counter[tuple[int, str]] = Counter()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # has just ended
            if process.status() != psutil.STATUS_ZOMBIE and not _is_of_a_worker(process):
                kind = process.ppid(), " ".join(process.cmdline())
                found[*kind, count[kind]] = process
                count[kind] += 1
    return found


def _is_childless() -> bool:
    """Return whether this process has no children, if the kernel says so without a look at every process."""
    try:
        return not any(Path("/proc/self/task", task, "children").read_bytes() for task in os.listdir("/proc/self/task"))
    except OSError:  # a thread has ended, or this is another system
        return False


def _is_of_a_worker(process: psutil.Process) -> bool:
    parent = process.parent()
    return (
        "skyward.worker.tasks.child" in process.cmdline()
        and parent is not None
        and "skyward.worker.supervisor" in parent.cmdline()  # not on the command line of a supervisor
    )


def _own_files() -> Iterator[Path]:
    """Return the files of a pool, which exist only while it is open."""
    yield from Path(tempfile.gettempdir()).glob("skyward-*")
    yield from Path(os.environ["SKYWARD_DATA_DIR"], "pools").glob("*")


def end_processes_since(before: Traces) -> None:
    """End what a failure has named, so that no later test and no end of the run waits for it."""
    for key, process in _processes().items():
        if key not in before.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


_told: set[str] = set()
"""Leaks that a failure has named: a leak fails the test that made it, and not the fixtures around it too."""


def _leaves_nothing(who: str) -> Iterator[None]:
    before = Traces.now()
    yield
    deadline = time.monotonic() + _PATIENCE
    while left := [words for words in Traces.now().since(before) if words not in _told]:
        if time.monotonic() > deadline:
            _told.update(left)
            end_processes_since(before)
            pytest.fail(f"{who} left behind, {_PATIENCE:.0f} s after its end:\n  " + "\n  ".join(left), pytrace=False)
        time.sleep(0.01)


@pytest.fixture(scope="session", autouse=True)
def _session_leaves_nothing() -> Iterator[None]:
    yield from _leaves_nothing("the session")


@pytest.fixture(scope="module", autouse=True)
def _module_leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from _leaves_nothing(f"the fixtures of {request.module.__name__}")


@pytest.fixture(scope="module", autouse=True)
def _fast_collections() -> None:
    """Leave older objects out of garbage collections: each IPython shell ends with a full one, of 0.2 s and more."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _test_leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    # What a pool or kernel that tests share starts is its own, when it is first asked to, or later, when it replaces a
    # node: the module's check is for it.
    fixtures = request.node._fixtureinfo.name2fixturedefs.items()
    shares = any(name[0] != "_" and made[-1].baseid and made[-1].scope != "function" for name, made in fixtures)
    if shares or any(compute.is_open for compute in opened):
        yield
    else:
        yield from _leaves_nothing(request.node.name)
