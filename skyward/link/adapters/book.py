"""What a controller knows of worker adapters and of the groups it has from them. Decides only: no clock, no sockets.

An adapter is known by its id, over however many connections. One that is silent, or away, for longer than `silence` is
lost, and so are its groups; they are back when it is back with them. A command is sent again until it is answered.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from skyward.providers.protocol import Instance
from skyward.values.needs import NOTHING, Needs, held
from skyward.wire.protocol.adapter import (
    Answer,
    Goodbye,
    Heartbeat,
    HeartbeatEcho,
    Message,
    ShutdownWorkerGroup,
    StartWorkerGroup,
    UnknownCommand,
)

__all__ = [
    "AdapterBook",
    "AdapterJoined",
    "AdapterLost",
    "Close",
    "Effect",
    "GroupEnded",
    "GroupLost",
    "GroupRefused",
    "GroupReturned",
    "GroupStarted",
    "SendFrame",
    "Wanted",
]

SILENCE = 10.0
"""Seconds without a heartbeat after which an adapter is lost."""

RESEND = 5.0
"""Seconds after which a command that has no answer is sent again."""


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send a message over a connection."""

    link: int
    message: Message


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection, saying why."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class AdapterJoined:
    """An adapter is there that was not, or was lost."""

    adapter: str


@dataclass(frozen=True, slots=True)
class AdapterLost:
    """An adapter is gone, and with it its groups."""

    adapter: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupStarted:
    """A request has its group."""

    request: str
    instance: Instance


@dataclass(frozen=True, slots=True)
class GroupRefused:
    """A request gets no group."""

    request: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupEnded:
    """A group that was given back is gone."""

    group: str


@dataclass(frozen=True, slots=True)
class GroupLost:
    """A group is gone that was not given back."""

    group: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupReturned:
    """A group that was lost is there again, with its adapter."""

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
class Wanted:
    """What a group must be like. `most`: the highest hourly price, USD; None for any."""

    needs: Needs = NOTHING
    most: float | None = None

    def fits(self, adapter: Heartbeat) -> bool:
        """Whether the groups of an adapter are like that."""
        dear = self.most is not None and adapter.hourly_price > self.most
        return not dear and self.needs.fit(adapter.resources, adapter.capabilities)


@dataclass(slots=True)
class _Adapter:
    said: Heartbeat
    heard: float
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


class AdapterBook:
    """The adapters of one controller. Messages go in, effects come out, and `now` is said with each.

    Args:
        session: begins the ids of requests; different for each controller that there ever was.
        silence: seconds without a heartbeat after which an adapter is lost.
    """

    def __init__(self, session: str, silence: float = SILENCE) -> None:
        self._session = session
        self._silence = silence
        self._numbers = itertools.count(1)
        self._adapters: dict[str, _Adapter] = {}
        self._links: dict[int, str | None] = {}
        self._unnamed: dict[int, float] = {}
        self._groups: dict[str, _Group] = {}

    # What is known.

    def adapters(self, wanted: Wanted | None = None) -> Sequence[Heartbeat]:
        """What the connected adapters said last: those with groups as wanted, the cheapest first."""
        here = [each.said for each in self._adapters.values() if each.link is not None]
        return sorted(
            (said for said in here if wanted is None or wanted.fits(said)),
            key=lambda said: (said.hourly_price, said.adapter_id),
        )

    def instance(self, group: str) -> Instance | None:
        """The machine of a group that was handed out and is not lost."""
        found = self._groups.get(group)
        return None if found is None or found.lost else found.instance

    def why_none(self, wanted: Wanted) -> str:
        """Why no group as wanted can be had now, in half a sentence."""
        here, fitting = self.adapters(), self.adapters(wanted)
        if not here:
            return "no adapter is connected"
        if not fitting:
            have = "; ".join(
                f"{said.adapter_id} has {held(said.resources, said.capabilities)} at ${said.hourly_price:g}/h"
                for said in here
            )
            price = "" if wanted.most is None else f" for at most ${wanted.most:g}/h"
            return f"no adapter has nodes with {wanted.needs}{price} ({have})"
        full = ", ".join(f"{said.adapter_id} has {said.max_worker_groups} at most" for said in fitting)
        return f"the adapters have no room ({full})"

    def next_tick(self) -> float | None:
        """When `tick` has something to do, at the earliest."""
        return min(self._deadlines(), default=None)

    def _deadlines(self) -> Iterator[float]:
        yield from (since + self._silence for since in self._unnamed.values())
        for adapter in self._adapters.values():
            yield adapter.heard + self._silence
            if adapter.link is not None:
                yield from (request.sent + RESEND for request in adapter.requests.values())

    # What the pool wants.

    def start(self, wanted: Wanted, now: float) -> tuple[str | None, list[Effect]]:
        """Ask for one group; the id of the request, or None if no adapter with such groups has room."""
        for said in self.adapters(wanted):
            adapter = self._adapters[said.adapter_id]
            if said.max_worker_groups < 0 or self._taken(said) + adapter.starting() < said.max_worker_groups:
                command = StartWorkerGroup(self._request_id(), capabilities=wanted.needs.capabilities)
                return command.request, self._ask(adapter, command, now)
        return None, []

    def _taken(self, said: Heartbeat) -> int:
        """Groups that an adapter has, those included that it has not yet said it has."""
        own = (name for name, group in self._groups.items() if group.adapter == said.adapter_id)
        return len({*own, *said.worker_group_ids})

    def abandon(self, request: str) -> None:
        """A group that was asked for is not wanted any more: it is ended when it comes."""
        for adapter in self._adapters.values():
            if request in adapter.requests:
                adapter.requests[request].wanted = False

    def shutdown(self, group: str, now: float) -> list[Effect]:
        """Give a group back. One that is gone, or never was, has ended already."""
        found = self._groups.pop(group, None)
        adapter = None if found is None else self._adapters.get(found.adapter)
        if adapter is not None:
            return self._ask(adapter, ShutdownWorkerGroup(self._request_id(), group), now)
        if any(_ending(request) == group for each in self._adapters.values() for request in each.requests.values()):
            return []  # its answer is on the way
        return [GroupEnded(group)]

    def _request_id(self) -> str:
        return f"{self._session}-{next(self._numbers)}"

    def _ask(self, adapter: _Adapter, command: StartWorkerGroup | ShutdownWorkerGroup, now: float) -> list[Effect]:
        adapter.requests[command.request] = _Request(command, now)
        return [] if adapter.link is None else [SendFrame(adapter.link, command)]

    # What the adapters say.

    def connected(self, link: int, now: float) -> list[Effect]:
        """Someone who knows the token is there; who it is, the first heartbeat says."""
        self._links[link] = None
        self._unnamed[link] = now
        return []

    def disconnected(self, link: int) -> list[Effect]:
        """A connection ended. Its adapter has until its deadline to come back."""
        self._unnamed.pop(link, None)
        adapter = self._adapters.get(self._links.pop(link, None) or "")
        if adapter is not None and adapter.link == link:
            adapter.link = None
        return []

    def heard(self, link: int, message: Message | UnknownCommand, now: float) -> list[Effect]:
        """A message came in. One over a connection that has ended does nothing."""
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
        return self._close(link, f"an adapter does not say {type(message).__name__} here")

    def _heartbeat(self, link: int, said: Heartbeat, now: float) -> list[Effect]:
        name = said.adapter_id
        if self._links[link] not in (None, name):
            return self._close(link, "a connection is one adapter's, and this one changed its id")
        effects: list[Effect] = []
        adapter = self._adapters.get(name)
        if adapter is None:
            adapter = self._adapters[name] = _Adapter(said, now)
            effects.append(AdapterJoined(name))
        if adapter.link != link:
            if adapter.link is not None:
                effects += self._close(adapter.link, "the adapter has connected anew")
            adapter.link, self._links[link] = link, name
            self._unnamed.pop(link, None)
            effects += self._send_again(adapter, now, every=True)
        adapter.said, adapter.heard = said, now
        return [*effects, SendFrame(link, HeartbeatEcho()), *self._compare(adapter, now)]

    def _compare(self, adapter: _Adapter, now: float) -> list[Effect]:
        """What an adapter has against what it should have."""
        effects: list[Effect] = []
        name, has = adapter.said.adapter_id, set(adapter.said.worker_group_ids)
        for group, record in self._groups.items():
            if record.adapter != name:
                continue
            if record.lost and group in has:
                record.lost = False
                effects.append(GroupReturned(group))
            elif not record.lost and group not in has:
                record.lost = True
                effects.append(GroupLost(group, f"adapter {name} has it no more"))
        if not adapter.starting():  # else it may be the one that was asked for, its answer lost
            ending = {_ending(request) for request in adapter.requests.values()}
            for group in sorted(has - ending):
                if group not in self._groups:
                    effects += self._ask(adapter, ShutdownWorkerGroup(self._request_id(), group), now)
        return effects

    def _answer(self, link: int, adapter: _Adapter, answer: Answer, now: float) -> list[Effect]:
        request = adapter.requests.pop(answer.request, None)
        if request is None:
            return []  # of a command that was sent twice
        if isinstance(request.command, ShutdownWorkerGroup):
            if answer.status == "unknown_action":
                request.sent = now
                adapter.requests[answer.request] = request  # it could not; it will be asked again
                return []
            return [GroupEnded(request.command.worker_group_id)]
        group = answer.worker_group_id
        if answer.status != "success":
            why = answer.reason or answer.status.replace("_", " ")
            return _refused(request, f"adapter {adapter.said.adapter_id}: {why}")
        if len(answer.workers) != 1 or not group or group in self._groups:
            refused = _refused(request, f"adapter {adapter.said.adapter_id} gave no group of its own")
            return [*refused, *self._close(link, "a group is one machine, with an id of its own")]
        if not request.wanted:
            return self._ask(adapter, ShutdownWorkerGroup(self._request_id(), group), now)
        self._groups[group] = record = _Group(adapter.said.adapter_id, replace(answer.workers[0], id=group))
        return [GroupStarted(answer.request, record.instance)]

    # Time.

    def tick(self, now: float) -> list[Effect]:
        """What the time brings: adapters that are lost, commands to send again."""
        effects: list[Effect] = []
        for link, since in tuple(self._unnamed.items()):
            if now >= since + self._silence:
                effects += self._close(link, "it never said which adapter it is")
        for adapter in tuple(self._adapters.values()):
            if now >= adapter.heard + self._silence:
                effects += self._lose(adapter, f"it was silent for {self._silence:g} s")
                effects += [] if adapter.link is None else self._close(adapter.link, "no heartbeat came")
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
        name = adapter.said.adapter_id
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
    """The group that a request ends."""
    return request.command.worker_group_id if isinstance(request.command, ShutdownWorkerGroup) else None
