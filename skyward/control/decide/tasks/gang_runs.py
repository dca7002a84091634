"""The gangs of a pool while they run: their start, and their common end or restart. Decides only; no I/O."""

from skyward.control.decide.tasks.collectives import MemberEnd
from skyward.control.decide.tasks.gangs import GangState, has_slots, seats_left
from skyward.control.decide.tasks.messages import Requeue, SettleOutcome, Stop, TaskManagerEffect
from skyward.control.decide.tasks.state import TaskBook, TaskState
from skyward.scaling.snapshot.gang_placement import place_gang
from skyward.wire.protocol.messages import GangMember

__all__ = ["GangRuns"]


class GangRuns:
    """Starts the members of each gang together, and runs all of them again after a loss."""

    def __init__(self, book: TaskBook) -> None:
        self._book = book

    def end_waiting(
        self, gang: GangState, outcome: SettleOutcome, reason: str, effects: list[TaskManagerEffect]
    ) -> None:
        self._book.waiting_gangs.remove(gang)
        for task in gang.members:
            self._book.settle(task, outcome, reason, effects)

    def start(self, gang: GangState, now: float, effects: list[TaskManagerEffect]) -> bool:
        """Send all members of a gang to nodes, if they fit now; return whether they do."""
        nodes = [self._book.table.nodes[rank] for rank in self._book.table.open]
        if not has_slots(gang, nodes):
            return False
        reserved, aside = self._book.reserved, self._book.set_aside
        seats = [seats_left(node, reserved.get(node.rank, 0), aside.get(node.rank)) for node in nodes]
        places = place_gang(seats, gang.demand.needs, gang.demand.placement)
        if places is None:
            return False
        self._book.waiting_gangs.remove(gang)
        gang.start()
        ranks = tuple(nodes[place].rank for place in places)
        member = GangMember(ranks, gang.starts)
        for task, rank in zip(gang.members, ranks, strict=True):
            self._book.send(task, rank, now, effects, member)
        return True

    def member_ended(
        self, gang: GangState, record: TaskState, end: MemberEnd, effects: list[TaskManagerEffect]
    ) -> None:
        """Record the end of a member of a gang that runs."""
        task = record.number
        gang.active.discard(task)
        why = ""
        if gang.is_whole and not gang.again and not end.is_result:
            why = self._why_again(gang, record, end)
            if not why:
                self.break_up(gang, effects)
        if not gang.is_whole:
            outcome: SettleOutcome = "value" if end.outcome == "raised" else _outcome_alone(record, end)
            self._book.settle(task, outcome, end.reason, effects)
            return
        record.life.move("finished", self._book.now, end.reason, cause=self._book.cause)
        self._book.finished.add(task)
        if why:
            self._stop_gang(gang, why, effects)
        if not gang.active:
            self._conclude_gang(gang, effects)

    def _why_again(self, gang: GangState, record: TaskState, end: MemberEnd) -> str:
        """Return why a whole gang runs again, one of whose members has ended in this way; empty if it does not."""
        match end.outcome:
            case "lost":
                gang.losses += 1
                return end.reason if gang.losses <= self._book.retries else ""
            case "returned":
                return end.reason or "its node returned it"
            case _ if end.retry and record.errors < record.retries:
                record.errors += 1
                return end.retry
            case _:
                return ""

    def _stop_gang(self, gang: GangState, why: str, effects: list[TaskManagerEffect]) -> None:
        """Stop the members of a gang that run, so that all of them run again."""
        if gang.again:
            return
        gang.again = why
        for task in gang.members:
            record = self._book.tasks[task]
            node = None if record.node is None else self._book.table.nodes.get(record.node)
            if task in gang.active and node is not None and task in node.tasks and not record.is_cancelled:
                record.life.move("cancelling", self._book.now, why, cause=self._book.cause)
                effects.append(Stop(task, node.rank, cause=self._book.cause))

    def break_up(self, gang: GangState, effects: list[TaskManagerEffect]) -> None:
        """Let each member of a gang end by itself, and end those whose values were held back."""
        stopped, gang.again = gang.again, ""
        gang.is_whole = False
        for task in gang.members:
            if task in self._book.finished:
                self._book.settle(task, "cancelled" if stopped else "value", stopped, effects)

    def _conclude_gang(self, gang: GangState, effects: list[TaskManagerEffect]) -> None:
        """End a whole gang, all members of which have ended, or let it wait again."""
        if not gang.again:
            for task in gang.members:
                self._book.settle(task, "value", "", effects)
            return
        for task in gang.members:
            record = self._book.tasks[task]
            assert record.node is not None  # it was sent
            self._book.finished.discard(task)
            times = gang.losses + record.errors
            effects.append(Requeue(task, record.node, times, gang.again, cause=self._book.cause))
            record.life.move("queued", self._book.now, gang.again, cause=self._book.cause)
            record.node, record.since = None, self._book.now
            record.attempt += 1
        gang.again, gang.is_waiting = "", True
        self._book.waiting_gangs.add(gang)


def _outcome_alone(record: TaskState, end: MemberEnd) -> SettleOutcome:
    """Return how a member ends that does not run again."""
    match end.outcome:
        case "returned" | "stopped":
            return "cancelled"
        case "lost" if record.is_cancelled:
            return "cancelled"
        case outcome:
            return outcome
