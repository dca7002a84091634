"""Offers of environments by other nodes, as the runner of a bootstrap asks for them and passes them on."""

import hashlib
import json
from dataclasses import dataclass, field, replace

import pytest

from skyward.bootstrap import PackageSource, Plan
from skyward.bootstrap.peers import SMALL, EnvironmentOffer, EnvironmentRequest, MachineKind
from skyward.bootstrap.peers.offer import can_offer_at, seal
from skyward.bootstrap.script import made_of, script
from tests.unit.bootstrap.test_runner import READY, Step, phase, run

KIND = MachineKind("Linux", "x86_64", "glibc 2.36", "1 2")
PLAN = Plan(python="3.13", source=PackageSource("skyward-jupyter==0.1.0", ("casty>=0.30",)))


def unmade(tools: str = "") -> Step:
    words = {"type": "unmade", "system": "Linux", "machine": "x86_64", "libc": "glibc 2.36", "processors": "1 2"}
    return Step([json.dumps({**words, "tools": tools}, separators=(",", ":"))], 77)


def offer() -> EnvironmentOffer:
    request = EnvironmentRequest("10.0.0.5", "t" * 64, "k" * 64, KIND, 60)
    return EnvironmentOffer(request, "node 0", 4321, 5_000_000_000, "3.13.1", "", "/x/bin/python", {})


@dataclass
class Peers:
    """A source that answers each request with the next offer."""

    offers: list[EnvironmentOffer | None]
    ready: bool = True
    asked: list[tuple[MachineKind, int, bool]] = field(default_factory=list)

    def is_ready(self) -> bool:
        return self.ready

    async def offer(self, kind: MachineKind, least: int, *, patient: bool) -> EnvironmentOffer | None:
        self.asked.append((kind, least, patient))
        return self.offers.pop(0)


@pytest.mark.parametrize(("tools", "least"), [("", 0), ("yes", SMALL)])
def test_offer_is_asked_for_and_given_to_the_machine_once(tools: str, least: int) -> None:
    peers = Peers([offer()])
    fetching = (phase("started", "fetch"), phase("completed", "fetch", error="it is too slow"))
    _, events, fake = run(
        unmade(tools),
        Step(fetching, None, error=ConnectionError("cut")),
        Step([READY]),
        plan=replace(PLAN, peers=peers),
    )
    assert peers.asked == [(KIND, least, False)]
    assert [b"ask='yes'" in given for given in fake.given] == [True, False, False]
    assert [b"peer='node 0'" in given for given in fake.given] == [False, True, False]
    assert [event.lines for event in events] == [
        ("from node 0, 10.0.0.5: 4.7 GiB",),
        ("not received from node 0: it is too slow; it is made here",),
    ]


def test_without_a_ready_node_nothing_is_asked() -> None:
    peers = Peers([], ready=False)
    *_, fake = run(Step([READY]), plan=replace(PLAN, peers=peers))
    assert b"ask=''" in fake.given[0]


@pytest.mark.parametrize("ready", [False, True])
def test_machine_that_cannot_fetch_packages_is_offered_them_before_the_client_sends_any(ready: bool) -> None:
    """Also if it was not before, because it seemed to make them as quickly."""
    peers = Peers([None, offer()] if ready else [offer()], ready=ready)
    needs = Step(
        [
            '{"type":"needs","reason":"no route","system":"Linux","machine":"x86_64","libc":"glibc 2.36",'
            '"processors":"1 2","uv":"yes","python":"yes","packages":"","apt":"","project":"","requirements":""}'
        ],
        76,
    )
    steps = [unmade("yes")] * ready + [needs, Step([READY])]
    *_, fake = run(*steps, plan=replace(PLAN, peers=peers))
    assert peers.asked == [(KIND, SMALL, False)] * ready + [(KIND, 0, True)]
    assert b"peer='node 0'" in fake.given[-1]


def test_bootstrap_without_peers_does_not_ask() -> None:
    text = script(PLAN)
    assert "\nask=''\npeer=''\n" in text


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("10.0.0.5", True), ("172.31.4.4", True), ("192.168.1.2", True), ("100.64.0.1", True), ("fd00::5", True),
        ("8.8.8.8", False), ("2600::1", False), ("127.0.0.1", False), ("0.0.0.0", False), ("", False),
        ("ip-10-0-0-5.internal", False),
    ],
)  # fmt: skip  # a table
def test_environments_are_offered_on_private_networks_only(address: str, may: bool) -> None:
    assert can_offer_at(address) is may


def test_request_is_read_as_it_was_written_and_hides_its_secrets() -> None:
    request = EnvironmentRequest.new("10.0.0.5", KIND, 60.0, 7)
    assert EnvironmentRequest.read(request.to_json().decode()) == request
    assert request.token != request.key
    assert request.token not in repr(request)
    assert request.key not in repr(request)


def test_seal_depends_on_key_and_content() -> None:
    digest = hashlib.sha256(b"content").hexdigest()
    assert len({seal("a" * 64, digest), seal("b" * 64, digest), seal("a" * 64, digest[::-1])}) == 3


def test_identity_of_requirements_depends_on_the_values_of_variables() -> None:
    plan = replace(PLAN, pip=("torch==${TORCH}",), shell_vars={"TORCH": "echo 2", "OTHER": "hostname"})
    assert made_of(plan, {"TORCH": "2"}) != made_of(plan, {"TORCH": "3"})
    assert made_of(plan, {"TORCH": "2", "OTHER": "a"}) == made_of(plan, {"TORCH": "2", "OTHER": "b"})


def test_environment_that_depends_on_the_gpu_is_not_shared() -> None:
    chosen = {"UV_TORCH_BACKEND": "auto"}
    assert PLAN.is_same_everywhere
    for plan in (replace(PLAN, env=chosen), replace(PLAN, settings=chosen), replace(PLAN, shell_vars=chosen)):
        assert not plan.is_same_everywhere
