"""The collectives of a pool while they run: their start, their meeting, and their common end. Decides only; no I/O."""

from collections import Counter

from skyward.control.decide.tasks.collectives import CollectiveState, MemberEnd
from skyward.control.decide.tasks.messages import MeetingOpened, Requeue, Stop, TaskManagerEffect
from skyward.control.decide.tasks.state import TaskBook, TaskState

__all__ = ["CollectiveRuns"]


class CollectiveRuns:
    """Starts, stops and ends the members of each collective together."""

    def __init__(self, book: TaskBook) -> None:
        self._book = book

    def end_those_of(self, rank: int) -> None:
        """Let no collective run again that has a member on a node which is gone for good."""
        for _, collective in self._book.collectives():
            if rank in collective.ranks.values():
                collective.is_final = True

    def arrive(self, task: int, rank: int, address: str, effects: list[TaskManagerEffect]) -> None:
        """Record that a member is ready to meet the others; once all are, tell them where."""
        record = self._book.tasks.get(task)
        if record is None or record.node != rank or (collective := self._book.collective_of(record)) is None:
            return
        if collective.arrive(task, address, self._book.now):
            for each, where in collective.ranks.items():
                effects.append(MeetingOpened(each, where, collective.address, cause=self._book.cause))

    def end_meetings(self, now: float, effects: list[TaskManagerEffect]) -> None:
        """Stop the collectives whose members have not met in time."""
        for _, collective in self._book.collectives():
            if collective.due is not None and now >= collective.due:
                collective.is_final = True
                collective.unmet = (
                    f"{collective.missing()} did not meet the others within {collective.terms.within:g} s"
                )
                self.stop_members(collective, collective.unmet, effects)

    def stop_members(self, collective: CollectiveState, why: str, effects: list[TaskManagerEffect]) -> None:
        """Stop the members of a collective that have not ended."""
        if collective.stopped_for:
            return
        collective.stopped_for, collective.due = why, None
        for task in collective.ranks:
            record = self._book.tasks.get(task)
            if record is None or not collective.stopped_for:
                return  # the last one has ended
            if task in collective.ends or record.status in ("withheld", "cancelling"):
                continue
            if record.node is None:
                self._book.queue.discard((task,))
                self.end_member(record, MemberEnd("stopped"), effects)
            else:
                record.life.move("cancelling", self._book.now, why, cause=self._book.cause)
                effects.append(Stop(task, record.node, cause=self._book.cause))

    def end_member(self, record: TaskState, end: MemberEnd, effects: list[TaskManagerEffect]) -> None:
        """Record the end of a member. The first one that did not return a value ends the others."""
        collective = self._book.collective_of(record)
        assert collective is not None  # callers have checked
        if collective.unmet:
            was_there = record.number in collective.arrived
            end = MemberEnd("cancelled") if was_there else MemberEnd("unmet", collective.unmet)
        elif collective.is_cancelled and (end.follows_loss or end.outcome == "lost"):
            end = MemberEnd("cancelled")
        elif end.outcome == "cancelled" and collective.stopped_for and not collective.is_final:
            end = MemberEnd("stopped")
        record.life.move("finished", self._book.now, end.reason, cause=self._book.cause)
        self._book.withheld.discard(record.number)
        self._book.finished.add(record.number)
        collective.ends[record.number] = end
        if not end.is_result:
            self.stop_members(collective, end.reason or f"a member ended: {end.outcome}", effects)
        if collective.is_over and record.number in self._book.finished:
            self._conclude(record, collective, effects)

    def _conclude(self, last: TaskState, collective: CollectiveState, effects: list[TaskManagerEffect]) -> None:
        """End a collective whose members have all ended, or queue all of them again."""
        assert last.broadcast is not None  # a member has one
        members = [self._book.tasks[task] for task in collective.ranks]
        can_again = all(member.replayable for member in members)
        why = collective.again(self._book.broadcasts[last.broadcast].retries) if can_again else ""
        collective.due = None
        if why:
            for member in reversed(members):
                self._book.finished.discard(member.number)
                times = collective.losses + collective.errors
                if member.node is not None:
                    effects.append(Requeue(member.number, member.node, times, why, cause=self._book.cause))
                self._book.requeue(member.number, why)
            collective.stopped_for = ""
            collective.ends.clear()
            return
        for task, end in tuple(collective.ends.items()):  # in the order in which they ended
            if end.outcome == "stopped" or end.outcome == "returned":
                self._book.settle(task, "cancelled", collective.stopped_for, effects)
            else:
                self._book.settle(task, "value" if end.outcome == "raised" else end.outcome, end.reason, effects)

    def may_start(self, collective: CollectiveState) -> bool:
        """Return whether each member is next on its node, and all of them fit there."""
        for rank, count in Counter(collective.ranks.values()).items():
            node = self._book.table.nodes.get(rank)
            ahead = self._book.queue.pinned_to(rank)[:count]
            if node is None or node.spare < count or any(task not in collective.ranks for task in ahead):
                return False
            needs = [self._book.tasks[task].needs for task in ahead]
            if not node.fits_all(needs):
                return False
            if (aside := self._book.set_aside.get(rank)) is not None and not node.fit_beside(needs, aside):
                return False
        return True

    def start(self, collective: CollectiveState, now: float, effects: list[TaskManagerEffect]) -> None:
        """Send all members of a collective to their nodes."""
        collective.start()
        self._book.queue.discard(collective.ranks)
        for task, rank in collective.ranks.items():
            self._book.send(task, rank, now, effects)
