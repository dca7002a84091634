"""State of a collective: a broadcast whose members run together. Decided without I/O.

Its members start at once, on nodes that all have room for them. They meet: each reports its arrival, and when all are
there, each is told the address of the first one. The time to meet begins once each has a process: one that replaces a
lost one may import a framework first. When one is lost, fails or is cancelled, the others are stopped. Once
all have ended, the collective ends, or runs again as a whole: after a loss, as often as its terms allow, or after an
exception that the retry policy covers.
"""

from dataclasses import dataclass, field
from typing import Literal

from skyward.control.decide.tasks.messages import SettleOutcome, Together
from skyward.formatting import joined

__all__ = ["CollectiveState", "MemberEnd"]


@dataclass(frozen=True, slots=True)
class MemberEnd:
    """End of one member.

    Attributes:
        outcome: "returned" if it did not run; "stopped" if it was stopped because of another member; "raised" if its
            value has an exception.
        retry: the exception, if the retry policy covers it; empty otherwise.
        follows_loss: True for an exception that another member's loss or failure caused.
    """

    outcome: SettleOutcome | Literal["returned", "stopped"]
    reason: str = ""
    retry: str = ""
    follows_loss: bool = False

    @property
    def is_result(self) -> bool:
        """True if the member returned a value."""
        return self.outcome == "value"


@dataclass(slots=True)
class CollectiveState:
    """The members of one collective, by their numbers.

    Attributes:
        terms: terms of the collective.
        ranks: node of each member, in order of their positions.
        generation: number of times that it has started.
        begun: members that have a process.
        due: time until which its members must have met; None while they need not.
        address: where they meet.
        arrived: members that wait for the others.
        ends: members that have ended.
        losses: times that it was run again after a loss.
        errors: times that it was run again after an exception.
        stopped_for: why its members are being stopped; empty if they are not.
        is_final: True if it must not run again.
        is_cancelled: True if its caller, or the budget, has ended it.
        unmet: why its members did not meet; empty if they did.
    """

    terms: Together
    ranks: dict[int, int] = field(default_factory=dict)
    generation: int = 0
    begun: set[int] = field(default_factory=set)
    due: float | None = None
    address: str = ""
    arrived: set[int] = field(default_factory=set)
    ends: dict[int, MemberEnd] = field(default_factory=dict)
    losses: int = 0
    errors: int = 0
    stopped_for: str = ""
    is_final: bool = False
    is_cancelled: bool = False
    unmet: str = ""

    def start(self) -> None:
        """Begin a new generation: all members are sent to their nodes."""
        self.generation += 1
        self.due, self.address, self.stopped_for = None, "", ""
        self.begun.clear()
        self.arrived.clear()
        self.ends.clear()

    def begin(self, task: int, now: float) -> None:
        """Record that a member has a process. The time to meet begins with the last one."""
        self.begun.add(task)
        has_met = len(self.arrived) == len(self.ranks)
        if self.due is None and not has_met and not self.stopped_for and len(self.begun) == len(self.ranks):
            self.due = now + self.terms.within

    def arrive(self, task: int, address: str, now: float) -> bool:
        """Record that a member has arrived; return whether all have."""
        self.begin(task, now)
        self.arrived.add(task)
        self.address = address or self.address
        is_complete = len(self.arrived) == len(self.ranks) and not self.stopped_for
        if is_complete:
            self.due = None
        return is_complete

    def missing(self) -> str:
        """Return the members that have not arrived, for a sentence."""
        absent = {
            f"{position} (node {rank})"
            for position, (task, rank) in enumerate(self.ranks.items())
            if task not in self.arrived
        }
        return f"{'rank' if len(absent) == 1 else 'ranks'} {joined(sorted(absent))}"

    @property
    def is_over(self) -> bool:
        """True if all members have ended."""
        return len(self.ends) == len(self.ranks)

    def again(self, retries: int) -> str:
        """Return why it runs again, now that all members have ended; empty if it does not.

        Args:
            retries: times that an exception is retried.
        """
        bad = [end for end in self.ends.values() if not end.is_result and end.outcome != "stopped"]
        if not bad or self.is_final:
            return ""
        own = [end for end in bad if end.outcome not in ("lost", "returned") and not end.follows_loss]
        if own:
            retried = next((end.retry for end in own if end.retry), "")
            if not retried or self.errors >= retries or not all(end.retry for end in own):
                return ""
            self.errors += 1
            return retried
        lost = next((end for end in bad if end.outcome == "lost" or end.follows_loss), None)
        if lost is None:
            return bad[0].reason or "its node returned it"
        if self.losses >= self.terms.restarts:
            return ""
        self.losses += 1
        return lost.reason or "a member lost another one"
