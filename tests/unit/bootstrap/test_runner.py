"""Events of a bootstrap, and the reactions of its runner."""

import asyncio
import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from skyward.bootstrap import (
    BootstrapError,
    Facts,
    Includes,
    PackageSource,
    PhaseEvent,
    Plan,
    Ready,
    bootstrap,
    read_events,
    runner,
    worker_environment,
)
from skyward.bootstrap.events import MachineNeeds, Missing, Waiting, read_event
from skyward.bootstrap.plan import Supplies, Supply
from skyward.errors import NodeStartError, ProvisioningError

PLAN = Plan(python="3.13", source=PackageSource("skyward.whl", (), b"a wheel"))
FACTS = {"python": "3.13.1", "executable": "/x/bin/python", "packages": {"numpy": "2.0"}, "variables": {"A": "b"}}
READY = json.dumps({"type": "ready", "directory": "/x", "facts": FACTS}, separators=(",", ":"))


def phase(event: str, name: str = "deps", **more: object) -> str:
    return json.dumps({"type": "phase", "event": event, "phase": name, **more}, separators=(",", ":"))


MISSING = f'{{"type":"missing","digest":"{PLAN.source.digest}"}}'


@dataclass(frozen=True)
class Done:
    status: int | None
    err: str = ""


@dataclass(frozen=True)
class Step:
    """Output and end of one command on the fake node; with `hangs`, it does not end."""

    lines: Sequence[str] = ()
    status: int | None = 0
    err: str = ""
    error: Exception | None = None
    hangs: bool = False


class LostError(ConnectionError):
    final = True


@dataclass
class Fake:
    """An `Executor` that replays a list of steps."""

    steps: list[Step]
    given: list[bytes] = field(default_factory=list)
    ended: int = 0

    async def run(self, command: str, given: bytes = b"", on_line: Callable[[str], None] | None = None) -> Done:
        self.given.append(given)
        step = self.steps.pop(0)
        for line in step.lines:
            assert on_line is not None
            on_line(line)
        try:
            if step.hangs:
                await asyncio.Event().wait()
        finally:
            self.ended += 1
        if step.error is not None:
            raise step.error
        return Done(step.status, step.err)


def run(*steps: Step, plan: Plan = PLAN) -> tuple[Ready, list[PhaseEvent], Fake]:
    events: list[PhaseEvent] = []
    fake = Fake(list(steps))
    ready = asyncio.run(bootstrap(fake, plan, events.append))
    assert not fake.steps
    return ready, events, fake


def failing(*steps: Step, plan: Plan = PLAN) -> BootstrapError:
    with pytest.raises(BootstrapError) as caught:
        run(*steps, plan=plan)
    return caught.value


def test_events_are_found_in_other_output() -> None:
    lines = [
        "Welcome to Ubuntu", "", phase("started", deadline=300), '{"type":"phase","event":"compl', '{"type":"phase"}',
        '{"a": 1}', f"no line break{phase('completed', elapsed=1.25)}", '{"type":"metric","value":1}',
        '{"type":"phase","event":"danced","phase":"deps"}', phase("started", "lunch"), '{"type":"ready","facts":3}',
        '{"type":"missing","digest":"ab"}\r\n', '{"type":"waiting"}', "[1]",
        '{"type":"phase","event":["a"],"phase":"env"}',
        phase("failed", "apt", elapsed=3, status=100, late=True, deadline=3, error="E: one\n\nE: two"), READY,
    ]  # fmt: skip  # as they come
    assert list(read_events(lines)) == [
        PhaseEvent("started", "deps", deadline=300.0),
        PhaseEvent("completed", "deps", 1.25),
        Missing("ab"),
        Waiting(),
        PhaseEvent("failed", "apt", 3.0, 3.0, late=True, status=100, lines=("E: one", "E: two")),
        Ready("/x", Facts("3.13.1", "/x/bin/python", {"numpy": "2.0"}, {"A": "b"})),
    ]


@pytest.mark.parametrize("line", [phase("started", deadline=300), READY, MISSING])
def test_truncated_line_is_no_event(line: str) -> None:
    assert read_event(line) is not None
    assert all(read_event(line[:end]) is None for end in range(len(line)))


def test_missing_files_are_sent_before_the_phases() -> None:
    ready, events, fake = run(Step([MISSING], 75), Step(), Step(["motd", phase("started"), phase("completed"), READY]))
    assert ready.directory == "/x"
    assert [event.event for event in events] == ["started", "completed"]
    assert fake.given[0] == fake.given[2] != fake.given[1]
    assert PLAN.source.digest.encode() in gzip.decompress(fake.given[1])


NEEDS = json.dumps(
    {
        "type": "needs", "reason": "no route", "system": "Linux", "machine": "x86_64", "libc": "glibc 2.36",
        "processors": "1 2", "uv": "", "python": "yes", "packages": "", "apt": "", "project": "",
        "requirements": "torchy\n",
    },
    separators=(",", ":"),
)  # fmt: skip  # a table


@dataclass
class Helping:
    """A helper with one wheel, or an error."""

    wheel: Path
    error: NodeStartError | None = None
    asked: list[MachineNeeds] = field(default_factory=list)

    async def index(self) -> str:
        return "https://index.invalid/simple"

    async def collect(self, plan: Plan, machine: MachineNeeds) -> Supplies:
        self.asked.append(machine)
        if self.error is not None:
            raise self.error
        return Supplies((Supply.of("wheel", self.wheel.name, self.wheel),), True, ("torchy==2.0",))


def test_machine_that_cannot_fetch_packages_is_helped(tmp_path: Path) -> None:
    wheel = tmp_path / "torchy-2.0-py3-none-any.whl"
    wheel.write_bytes(b"content")
    helper = Helping(wheel)
    missing = f'{{"type":"missing","digest":"{hashlib.sha256(b"content").hexdigest()}"}}'
    steps = (Step([NEEDS], 76), Step([missing], 75), Step(), Step([READY]))
    _, events, fake = run(*steps, plan=replace(PLAN, helper=helper))
    assert [(event.event, event.phase) for event in events] == [
        (event, phase) for phase in ("collect", "send") for event in ("started", "completed")
    ]
    assert events[0].lines == ("set up from this computer: it cannot fetch packages (no route)",)
    assert [each.requirements for each in helper.asked] == ["torchy\n"]
    assert b"index='https://index.invalid/simple'" in fake.given[0]
    assert b"supplied=''" in fake.given[0]
    assert b"supplied='all'" in fake.given[1] == fake.given[3]
    assert b"torchy==2.0" in fake.given[1]
    assert b"content" in gzip.decompress(fake.given[2])


def test_failed_help_is_an_error(tmp_path: Path) -> None:
    helper = Helping(tmp_path, NodeStartError("this computer cannot either:\nno such package", "the log"))
    error = failing(Step([NEEDS], 76), plan=replace(PLAN, helper=helper))
    assert (str(error), error.log) == ("this computer cannot either:\nno such package", "the log")
    error = failing(Step([NEEDS.replace('"apt":""', '"apt":"jq bc"')], 76), plan=replace(PLAN, helper=helper))
    assert str(error).endswith("(no route), and this computer only sends packages of Python: install jq bc on it")


def test_files_are_sent_while_the_script_runs() -> None:
    """It reports them, and continues with the phases that need none."""

    class Node(Fake):
        received: asyncio.Event

        async def run(self, command: str, given: bytes = b"", on_line: Callable[[str], None] | None = None) -> Done:
            if on_line is None:
                self.received.set()
                return Done(0)
            self.received = asyncio.Event()
            for line in (MISSING, phase("started", "env")):
                on_line(line)
            await self.received.wait()
            on_line(READY)
            return Done(0)

    assert asyncio.run(bootstrap(Node([]), PLAN)).directory == "/x"


def test_files_that_cannot_be_sent_end_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_ENDS_WITHIN", 0.0)
    error = failing(Step([MISSING, phase("started", "env")], hangs=True), Step(status=2, err="no space\n"))
    assert str(error) == "the node could not receive files (status 2):\nno space"


def test_files_still_missing_after_sending_are_an_error() -> None:
    error = failing(Step([MISSING], 75), Step(), Step([MISSING], 75))
    assert str(error) == "the node still lacks 1 of the files that were sent to it"


def test_node_that_cannot_receive_files_is_an_error() -> None:
    error = failing(Step([MISSING], 75), Step(status=2, err="tar: No space left on device\n"))
    assert str(error) == "the node could not receive files (status 2):\ntar: No space left on device"


def test_failed_phase_is_reported_with_its_log() -> None:
    lines = [phase("started", "apt"), phase("failed", "apt", elapsed=12.3, status=100, error="E: one\nE: two")]
    error = failing(Step(lines, 1, err="noise"), Step(["all", "of", "it"]))
    assert isinstance(error, NodeStartError)
    assert error.log == "all\nof\nit"
    assert isinstance(error, ProvisioningError)
    assert (error.phase, error.lines) == ("apt", ("E: one", "E: two"))
    assert str(error) == "bootstrap phase 'apt' failed (status 100) after 12 s:\nE: one\nE: two"


def test_phase_past_its_limit_is_reported() -> None:
    late = Step([phase("failed", elapsed=300.2, status=124, late=True, deadline=300)], 1)
    error = failing(late, Step(error=ConnectionError("gone")))
    assert error.log == ""
    assert str(error) == "bootstrap phase 'deps' exceeded its limit of 300 s"


def test_death_of_the_host_is_reported_with_the_phase() -> None:
    assert str(failing(Step([phase("started")], None))) == "the node died in phase 'deps'"
    assert str(failing(Step([], None))) == "the node died before its first phase"
    assert str(failing(Step([MISSING], 75), Step(status=None))) == "the node died while files were sent to it"
    assert "waited for another bootstrap" in str(failing(Step(['{"type":"waiting"}'], None)))


def test_ready_event_of_a_dead_node_does_not_count() -> None:
    assert str(failing(Step([READY], None))) == "the node died before its first phase"


def test_failure_before_the_first_event_shows_its_output() -> None:
    error = failing(Step(["no such thing"], 1, err="sh: 1: cannot create: Read-only file system\n\n"))
    assert error.lines == ("no such thing", "sh: 1: cannot create: Read-only file system")
    assert str(error).startswith("the bootstrap ended with status 1 before its first phase:\nno such thing")


def test_truncated_script_is_no_success() -> None:
    assert str(failing(Step([], 0))) == "the bootstrap ended with status 0 before its first phase"


def test_broken_connection_is_retried() -> None:
    broken = Step([phase("started")], error=ConnectionError("reset"))
    ready, events, fake = run(broken, broken, Step([phase("skipped"), READY]))
    assert ready.facts.packages == {"numpy": "2.0"}
    assert [event.event for event in events] == ["started", "started", "skipped"]
    assert len(set(fake.given)) == 1


def test_retries_end_after_four_attempts_or_a_final_error() -> None:
    broken = Step([phase("started")], error=ConnectionError("reset"))
    assert str(failing(*[broken] * 4)) == "the node was lost in phase 'deps': reset"
    lost = Step(error=LostError("lost permanently"))
    assert str(failing(broken, lost)) == "the node was lost in phase 'deps': lost permanently"


def test_endless_phase_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRACE", 0.0)
    fake = Fake([Step([phase("started", "uv", deadline=0)], hangs=True)])
    with pytest.raises(BootstrapError, match="^the bootstrap timed out after 300 s in phase 'uv'$") as caught:
        asyncio.run(bootstrap(fake, PLAN))
    assert caught.value.phase == "uv"
    assert fake.ended == 1


def test_whole_bootstrap_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRACE", 0.0)
    short = Plan(python="3.13", source=PLAN.source, timeout=0.01)
    error = failing(Step(['{"type":"waiting"}'], hangs=True), plan=short)
    assert str(error).startswith("the bootstrap timed out after 0 s while it waited for another")


def test_environment_of_a_worker_has_the_variables_of_the_image() -> None:
    ready, _, _ = run(Step([READY]))
    assert worker_environment(PLAN, ready) == {
        "A": "b",
        "SKYWARD_CACHES": f"{ready.directory}/caches",
        "SKYWARD_LOCKS": f"{ready.directory}/used/{PLAN.image_hash}",
    }
    assert PLAN.includes == Includes()
