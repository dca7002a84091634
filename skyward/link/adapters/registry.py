"""State of a controller's worker adapters and of their groups. Decides only: no clock, no sockets.

An adapter is identified by its id, over any number of connections. One that is silent, or away, for longer than
`silence` is lost, and so are its groups; they return with it. A command is sent again until it is answered.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from skyward.providers.protocol import Instance
from skyward.values.needs import NOTHING, Needs, describe_resources
from skyward.wire.protocol.adapter import (
    AdapterMessage,
    Answer,
    Goodbye,
    Heartbeat,
    HeartbeatEcho,
    ShutdownWorkerGroup,
    StartWorkerGroup,
    UnknownCommand,
)

__all__ = [
    "AdapterJoined",
    "AdapterLost",
    "AdapterRegistry",
    "Close",
    "Effect",
    "GroupEnded",
    "GroupLost",
    "GroupRefused",
    "GroupRequirements",
    "GroupReturned",
    "GroupStarted",
    "SendFrame",
]

SILENCE = 10.0
"""Seconds without a heartbeat after which an adapter is lost."""

RESEND = 5.0
"""Seconds after which an unanswered command is sent again."""


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send a message over a connection."""

    link: int
    message: AdapterMessage


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection, with a reason."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class AdapterJoined:
    """A new adapter, or one that was lost, has connected."""

    adapter: str


@dataclass(frozen=True, slots=True)
class AdapterLost:
    """An adapter is lost, and its groups with it."""

    adapter: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupStarted:
    """A requested group has started."""

    request: str
    instance: Instance


@dataclass(frozen=True, slots=True)
class GroupRefused:
    """A request for a group was refused."""

    request: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupEnded:
    """A group that was shut down has ended."""

    group: str


@dataclass(frozen=True, slots=True)
class GroupLost:
    """A group was lost without a shutdown."""

    group: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupReturned:
    """A lost group is available again, with its adapter."""

    group: str


type Effect = (
    SendFrame
    | Close
    | AdapterJoined
    | AdapterLost
    | GroupStarted
    | GroupRefused
    | GroupEnded
    | GroupLost
    | GroupReturned
)


@dataclass(frozen=True, slots=True)
class GroupRequirements:
    """Requirements on a group. `most`: the highest hourly price, USD; None for any."""

    needs: Needs = NOTHING
    most: float | None = None

    def fits(self, adapter: Heartbeat) -> bool:
        """Return whether the groups of an adapter meet the requirements."""
        too_expensive = self.most is not None and adapter.hourly_price > self.most
        return not too_expensive and self.needs.fit(adapter.resources, adapter.capabilities)


@dataclass(slots=True)
class _Adapter:
    heartbeat: Heartbeat
    last_seen: float
    link: int | None = None
    requests: dict[str, "_Request"] = field(default_factory=dict)

    def starting(self) -> int:
        return sum(isinstance(each.command, StartWorkerGroup) for each in self.requests.values())


@dataclass(slots=True)
class _Request:
    command: StartWorkerGroup | ShutdownWorkerGroup
    sent: float
    wanted: bool = True


@dataclass(slots=True)
class _Group:
    adapter: str
    instance: Instance
    lost: bool = False


class AdapterRegistry:
    """The adapters of one controller. Messages go in, effects come out; each call gets the time `now`.

    Args:
        session: prefix of request ids; unique to each controller.
        silence: seconds without a heartbeat after which an adapter is lost.
    """

    def __init__(self, session: str, silence: float = SILENCE) -> None:
        self._session = session
        self._silence = silence
        self._numbers = itertools.count(1)
        self._adapters: dict[str, _Adapter] = {}
        self._links: dict[int, str | None] = {}
        self._unidentified: dict[int, float] = {}
        self._groups: dict[str, _Group] = {}

    # Queries.

    def adapters(self, wanted: GroupRequirements | None = None) -> Sequence[Heartbeat]:
        """Return the last heartbeats of the connected adapters with groups as wanted, the cheapest first."""
        connected = [each.heartbeat for each in self._adapters.values() if each.link is not None]
        return sorted(
            (heartbeat for heartbeat in connected if wanted is None or wanted.fits(heartbeat)),
            key=lambda heartbeat: (heartbeat.hourly_price, heartbeat.adapter_id),
        )

    def instance(self, group: str) -> Instance | None:
        """Return the machine of a started group that is not lost, or None."""
        found = self._groups.get(group)
        return None if found is None or found.lost else found.instance

    def why_none(self, wanted: GroupRequirements) -> str:
        """Explain in half a sentence reason no wanted group can be started now."""
        connected, fitting = self.adapters(), self.adapters(wanted)
        if not connected:
            return "no adapter is connected"
        if not fitting:
            have = "; ".join(
                f"{each.adapter_id} has {describe_resources(each.resources, each.capabilities)} "
                f"at ${each.hourly_price:g}/h"
                for each in connected
            )
            price = "" if wanted.most is None else f" for at most ${wanted.most:g}/h"
            return f"no adapter has nodes with {wanted.needs}{price} ({have})"
        full = ", ".join(f"{heartbeat.adapter_id} has {heartbeat.max_worker_groups} at most" for heartbeat in fitting)
        return f"the adapters have no room ({full})"

    def next_tick(self) -> float | None:
        """Return the earliest time at which `tick` has something to do; None for never."""
        return min(self._deadlines(), default=None)

    def _deadlines(self) -> Iterator[float]:
        yield from (since + self._silence for since in self._unidentified.values())
        for adapter in self._adapters.values():
            yield adapter.last_seen + self._silence
            if adapter.link is not None:
                yield from (request.sent + RESEND for request in adapter.requests.values())

    # Requests of the pool.

    def start(self, wanted: GroupRequirements, now: float) -> tuple[str | None, list[Effect]]:
        """Request one group; return the id of the request, or None if no adapter with such groups has room."""
        for each in self.adapters(wanted):
            adapter = self._adapters[each.adapter_id]
            if each.max_worker_groups < 0 or self._taken(each) + adapter.starting() < each.max_worker_groups:
                command = StartWorkerGroup(self._request_id(), capabilities=wanted.needs.capabilities)
                return command.request, self._ask(adapter, command, now)
        return None, []

    def _taken(self, heartbeat: Heartbeat) -> int:
        """Return the number of an adapter's groups, including those that its heartbeats do not list yet."""
        own = (name for name, group in self._groups.items() if group.adapter == heartbeat.adapter_id)
        return len({*own, *heartbeat.worker_group_ids})

    def abandon(self, request: str) -> None:
        """Mark a requested group as no longer wanted: it is shut down when it starts."""
        for adapter in self._adapters.values():
            if request in adapter.requests:
                adapter.requests[request].wanted = False

    def shutdown(self, group: str, now: float) -> list[Effect]:
        """Shut a group down. One that is gone, or never existed, has ended already."""
        found = self._groups.pop(group, None)
        adapter = None if found is None else self._adapters.get(found.adapter)
        if adapter is not None:
            return self._ask(adapter, ShutdownWorkerGroup(self._request_id(), group), now)
        if any(_ending(request) == group for each in self._adapters.values() for request in each.requests.values()):
            return []  # its answer is pending
        return [GroupEnded(group)]

    def _request_id(self) -> str:
        return f"{self._session}-{next(self._numbers)}"

    def _ask(self, adapter: _Adapter, command: StartWorkerGroup | ShutdownWorkerGroup, now: float) -> list[Effect]:
        adapter.requests[command.request] = _Request(command, now)
        return [] if adapter.link is None else [SendFrame(adapter.link, command)]

    # Messages of the adapters.

    def connected(self, link: int, now: float) -> list[Effect]:
        """Note an authenticated connection; its first heartbeat identifies the adapter."""
        self._links[link] = None
        self._unidentified[link] = now
        return []

    def disconnected(self, link: int) -> list[Effect]:
        """Note the end of a connection. Its adapter may reconnect until its deadline."""
        self._unidentified.pop(link, None)
        adapter = self._adapters.get(self._links.pop(link, None) or "")
        if adapter is not None and adapter.link == link:
            adapter.link = None
        return []

    def handle(self, link: int, message: AdapterMessage | UnknownCommand, now: float) -> list[Effect]:
        """Handle a message. A message from a connection that has ended is ignored."""
        if link not in self._links:
            return []
        if isinstance(message, Heartbeat):
            return self._heartbeat(link, message, now)
        adapter = self._adapters.get(self._links[link] or "")
        match message:
            case Answer() if adapter is not None:
                return self._answer(link, adapter, message, now)
            case Goodbye(reason, ends_groups):
                lost = self._lose(adapter, reason) if adapter is not None and ends_groups else []
                return [*lost, *self._close(link, "goodbye")]
        return self._close(link, f"unexpected {type(message).__name__} from an adapter")

    def _heartbeat(self, link: int, heartbeat: Heartbeat, now: float) -> list[Effect]:
        name = heartbeat.adapter_id
        if self._links[link] not in (None, name):
            return self._close(link, "the adapter changed its id on an open connection")
        effects: list[Effect] = []
        adapter = self._adapters.get(name)
        if adapter is None:
            adapter = self._adapters[name] = _Adapter(heartbeat, now)
            effects.append(AdapterJoined(name))
        if adapter.link != link:
            if adapter.link is not None:
                effects += self._close(adapter.link, "the adapter has opened a new connection")
            adapter.link, self._links[link] = link, name
            self._unidentified.pop(link, None)
            effects += self._send_again(adapter, now, every=True)
        adapter.heartbeat, adapter.last_seen = heartbeat, now
        return [*effects, SendFrame(link, HeartbeatEcho()), *self._compare(adapter, now)]

    def _compare(self, adapter: _Adapter, now: float) -> list[Effect]:
        """Compare the groups of an adapter with those that it should have."""
        effects: list[Effect] = []
        name, has = adapter.heartbeat.adapter_id, set(adapter.heartbeat.worker_group_ids)
        for group, record in self._groups.items():
            if record.adapter != name:
                continue
            if record.lost and group in has:
                record.lost = False
                effects.append(GroupReturned(group))
            elif not record.lost and group not in has:
                record.lost = True
                effects.append(GroupLost(group, f"adapter {name} no longer has it"))
        if not adapter.starting():  # otherwise it may be the requested one, whose answer was lost
            ending = {_ending(request) for request in adapter.requests.values()}
            for group in sorted(has - ending):
                if group not in self._groups:
                    effects += self._ask(adapter, ShutdownWorkerGroup(self._request_id(), group), now)
        return effects

    def _answer(self, link: int, adapter: _Adapter, answer: Answer, now: float) -> list[Effect]:
        request = adapter.requests.pop(answer.request, None)
        if request is None:
            return []  # the answer to a repeated command
        if isinstance(request.command, ShutdownWorkerGroup):
            if answer.status == "unknown_action":
                request.sent = now
                adapter.requests[answer.request] = request  # the adapter could not yet: ask again later
                return []
            return [GroupEnded(request.command.worker_group_id)]
        group = answer.worker_group_id
        if answer.status != "success":
            reason = answer.reason or answer.status.replace("_", " ")
            return _refused(request, f"adapter {adapter.heartbeat.adapter_id}: {reason}")
        if len(answer.workers) != 1 or not group or group in self._groups:
            refused = _refused(request, f"adapter {adapter.heartbeat.adapter_id} answered without a new worker group")
            return [*refused, *self._close(link, "a worker group must be one machine, with an id of its own")]
        if not request.wanted:
            return self._ask(adapter, ShutdownWorkerGroup(self._request_id(), group), now)
        self._groups[group] = record = _Group(adapter.heartbeat.adapter_id, replace(answer.workers[0], id=group))
        return [GroupStarted(answer.request, record.instance)]

    # Time.

    def tick(self, now: float) -> list[Effect]:
        """Return the effects of time: lost adapters, commands to send again."""
        effects: list[Effect] = []
        for link, since in tuple(self._unidentified.items()):
            if now >= since + self._silence:
                effects += self._close(link, "no heartbeat identified the adapter")
        for adapter in tuple(self._adapters.values()):
            if now >= adapter.last_seen + self._silence:
                effects += self._lose(adapter, f"it was silent for {self._silence:g} s")
                effects += [] if adapter.link is None else self._close(adapter.link, "no heartbeat arrived")
            else:
                effects += self._send_again(adapter, now)
        return effects

    def _send_again(self, adapter: _Adapter, now: float, *, every: bool = False) -> list[Effect]:
        effects: list[Effect] = []
        for request in adapter.requests.values():
            if adapter.link is not None and (every or now >= request.sent + RESEND):
                request.sent = now
                effects.append(SendFrame(adapter.link, request.command))
        return effects

    def _lose(self, adapter: _Adapter, reason: str) -> list[Effect]:
        name = adapter.heartbeat.adapter_id
        del self._adapters[name]
        effects: list[Effect] = [AdapterLost(name, reason)]
        for request in adapter.requests.values():
            ended = _ending(request)
            effects += _refused(request, f"adapter {name} is gone: {reason}") if ended is None else [GroupEnded(ended)]
        for group, record in self._groups.items():
            if record.adapter == name and not record.lost:
                record.lost = True
                effects.append(GroupLost(group, f"adapter {name} is gone: {reason}"))
        return effects

    def _close(self, link: int, reason: str) -> list[Effect]:
        self.disconnected(link)
        return [Close(link, reason)]


def _refused(request: _Request, reason: str) -> list[Effect]:
    return [GroupRefused(request.command.request, reason)] if request.wanted else []


def _ending(request: _Request) -> str | None:
    """Return the group that a request shuts down, or None."""
    return request.command.worker_group_id if isinstance(request.command, ShutdownWorkerGroup) else None
