"""Sentences on orphaned pools: the machines that ended processes of this user left, or that closed pools keep warm."""

from typing import TYPE_CHECKING

from skyward.errors import JournalError
from skyward.frontends.views import count_text, money_text

if TYPE_CHECKING:
    from skyward.frontends.pools import Orphan

__all__ = ["orphan_notes", "warm_notes"]


def orphan_notes(name: str | None = None) -> list[str]:
    """Return a sentence for each orphaned pool, or each of a name, that still costs money or can be attached to.

    One read of the journal: no provider is asked. A journal that cannot be read has none; whatever needs it says so.
    """
    return [_note(each) for each in _recorded(name) if _matters(each)]


def warm_notes(name: str | None = None) -> list[str]:
    """Return a sentence for each closed pool, or each of a name, that keeps machines warm. They cost money."""
    from skyward.frontends.pools import describe_orphan

    warm = (each for each in _recorded(name) if each.warm_until)
    return [f"{describe_orphan(each)}; `%sky reap {each.name}` ends that." for each in warm]


def _recorded(name: str | None) -> "list[Orphan]":
    from skyward.frontends.pools import orphans  # loads the engine, so it is imported late

    try:
        return orphans(name)
    except JournalError:
        return []


def _matters(orphan: "Orphan") -> bool:
    """Return whether the user should know; of warm machines another note tells."""
    if orphan.warm_until:
        return False
    return orphan.per_hour > 0 or orphan.unanswered > 0 or (orphan.attachable and not orphan.due)


def _note(orphan: "Orphan") -> str:
    counts = [count_text(orphan.machines, "machine")]
    if orphan.per_hour:
        counts.append(f"{money_text(orphan.per_hour)} per hour")
    if orphan.unanswered:
        counts.append(f"{count_text(orphan.unanswered, 'request')} unanswered")
    ways = [f"`%sky reap {orphan.name}` ends it"]
    if orphan.attachable and not orphan.due:
        ways.insert(0, f"`%sky attach {orphan.name}` returns to it")
    return f"Pool {orphan.name!r} of an ended process is still there ({', '.join(counts)}): {', '.join(ways)}."
