"""Environments from node to node: has ready nodes send theirs to new nodes of the same group."""

import asyncio
import contextlib
import json
import logging
from typing import Any

from skyward.bootstrap.peers import EnvironmentOffer, EnvironmentRequest, MachineKind, can_offer_at
from skyward.control.act.nodes.node import Node
from skyward.control.decide.machines.environments import EnvironmentServers, TransferOutcome
from skyward.link.ssh.worker import EnvironmentSender
from skyward.process.background_tasks import BackgroundTasks

__all__ = ["EnvironmentPeers", "GroupEnvironments"]

_ANSWERS_WITHIN = 10.0
"""Seconds that a node has to answer a request; it looks at the files of its environment first."""

_BEYOND = 30.0
"""Seconds that a node may take longer than the new node waits for it."""

_WAITS = 60.0
"""Seconds for which a machine that cannot fetch packages waits for a node that sends them to others."""

_logger = logging.getLogger(__name__)


class GroupEnvironments:
    """The environments of the nodes of one group. Lives on the library's loop."""

    def __init__(self) -> None:
        self._servers = EnvironmentServers()
        self._nodes: dict[int, tuple[Node, EnvironmentSender]] = {}
        self._serving = BackgroundTasks()
        self._changed = asyncio.Event()

    def add(self, node: Node, network: str) -> None:
        """Add a ready node, if its environment can be sent to others."""
        sender = node.environment_sender
        if sender is not None and can_offer_at(node.instance.address):
            self._nodes[node.machine] = node, sender
            self._servers.add(node.machine, sender.environment, network)
            self._changed.set()

    def of(self, environment: str, network: str, within: float) -> "EnvironmentPeers":
        """Return the source of an environment for one new node, which takes at most `within` seconds to receive it."""
        return EnvironmentPeers(self, environment, network, within)

    def choose(self, environment: str, network: str, least: int = 0) -> int | None:
        """Return the machine whose node can send an environment now, if that has `least` bytes as far as is known."""
        self._remove_gone()
        return self._servers.choose(environment, network, unless_small=least > 0)

    def _remove_gone(self) -> None:
        for machine in [machine for machine, (node, _) in self._nodes.items() if not node.is_up]:
            del self._nodes[machine]
            self._servers.remove(machine)

    async def wait(self, environment: str, network: str) -> None:
        """Wait until a node can send an environment, for a while, if one will be able to."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAITS):
                while self.choose(environment, network) is None and self._servers.will_be_free(environment, network):
                    self._changed.clear()
                    await self._changed.wait()

    async def offer(
        self, environment: str, network: str, kind: MachineKind, within: float, least: int
    ) -> EnvironmentOffer | None:
        """Have a node wait for a machine of a kind; None if none can."""
        machine = self.choose(environment, network, least)
        if machine is None:
            return None
        node, sender = self._nodes[machine]
        request = EnvironmentRequest.new(node.instance.address, kind, within + _BEYOND, least)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._servers.started(machine)
        self._serving.spawn(self._serve(machine, network, sender, request, answer))
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN):
                return EnvironmentOffer.of(
                    request, await answer, f"node {node.rank}", sender.executable, sender.variables
                )
        except (TimeoutError, LookupError, TypeError, ValueError) as error:
            _logger.info("node %s does not send its environment: %s", node.rank, error or "no answer")
            return None

    async def _serve(
        self,
        machine: int,
        network: str,
        sender: EnvironmentSender,
        request: EnvironmentRequest,
        answer: "asyncio.Future[dict[str, Any]]",
    ) -> None:
        outcome: TransferOutcome = "broken"

        def on_line(line: str) -> None:
            nonlocal outcome
            match _read(line):
                case {"outcome": ("sent" | "unreached" | "broken") as said}:
                    outcome = said
                case {"small": _}:
                    outcome = "small"
                case {"refused": reason}:
                    outcome = "refused"
                    if not answer.done():
                        answer.set_exception(ValueError(reason))
                case {"port": _} as words if not answer.done():
                    answer.set_result(words)

        try:
            await sender.send(request.to_json(), on_line)
        except ConnectionError as error:
            _logger.info("the connection to a node that sends its environment was lost: %s", error)
        finally:
            late = answer.cancelled()  # then nobody was told where it waits
            self._servers.ended(machine, network, "broken" if late else outcome)
            self._changed.set()
            if not answer.done():
                answer.set_exception(ValueError("it ended without an answer"))
            if not answer.cancelled():
                answer.exception()  # retrieved, so that asyncio does not log it

    async def close(self) -> None:
        """End the transfers."""
        await self._serving.cancel()


class EnvironmentPeers:
    """The nodes of a group, as the source of the environment of one new node: see `EnvironmentSource`."""

    def __init__(self, group: GroupEnvironments, environment: str, network: str, within: float) -> None:
        self._group = group
        self._environment = environment
        self._network = network
        self._within = within

    def is_ready(self) -> bool:
        """Return whether a node could send its environment now."""
        return self._group.choose(self._environment, self._network) is not None

    async def offer(self, kind: MachineKind, least: int, *, patient: bool) -> EnvironmentOffer | None:
        """Have a node wait for a machine of a kind; None if none can, or it has less than `least` bytes to send."""
        if patient:
            await self._group.wait(self._environment, self._network)
        return await self._group.offer(self._environment, self._network, kind, self._within, least)


def _read(line: str) -> Any:
    """Return the JSON value in a line of output; None if it is something else, such as a greeting of the machine."""
    try:
        return json.loads(line)
    except ValueError:
        return None
