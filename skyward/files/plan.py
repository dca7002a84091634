"""What becomes of a file, from its versions: here (the notebook's folder), there (a node's working folder), and those
that both are known to have had.

A version is None where there is no file. Nothing here touches a disk.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from skyward.files.patterns import aside

__all__ = ["Found", "Landing", "Placing", "bring", "land", "place", "spread", "sync"]

type Version = bytes | None
type Placing = Literal["keep", "write", "replace", "set aside", "remove"]
type Landing = Literal["same", "write", "set aside"]


def place(here: Version, there: Version, base: Version, taken: Collection[bytes] = ()) -> Placing:
    """Decide about a file that is to be on the node as it is here (`--file`).

    Args:
        here: the version here.
        there: the version there.
        base: the version that both had when it was placed last.
        taken: versions that nodes had, and that came here.

    Returns:
        "keep", "write", or "replace" where a version is lost that exists nowhere else: that is told.
    """
    if there == here:
        return "keep"
    return "write" if there is None or there == base or there in taken else "replace"


def sync(
    here: Version, there: Version, base: Version, taken: Collection[bytes] = (), *, is_gone: bool = False
) -> Placing:
    """Decide about a file of a folder that is the same on both sides (`--sync`), before the cell runs.

    Args:
        here, there, base, taken: as for `place`.
        is_gone: whether it was here once, and was deleted since.

    Returns:
        "keep" also for a version of the node that is to come home; "set aside" where both sides have changed: the
        version there gets another name, and that of here is written.
    """
    if there == here:
        return "keep"
    if here is None:
        deleted_here = (base is not None and there == base) or ((base is not None or is_gone) and there in taken)
        return "remove" if deleted_here else "keep"
    if there is None or there == base or there in taken:
        return "write"
    return "keep" if here == base else "set aside"


def bring(
    here: Version,
    there: bytes,
    base: Version,
    taken: Collection[bytes] = (),
    *,
    is_written: bool,
    only_written: bool = False,
) -> Literal["stay", "replace", "add"]:
    """Decide about a file of the node that is to come home, after the cell.

    Args:
        here: the version here when the cell was sent.
        there, base, taken: as for `place`.
        is_written: whether the cell wrote it.
        only_written: whether other files stay.

    Returns:
        "stay"; "replace" where it may take the place of the version here; "add" where it may not.
    """
    if there == here or (not is_written and (only_written or there in taken)):
        return "stay"
    return "replace" if is_written or here is None or here == base else "add"


def land(now: Version, then: Version, came: bytes, *, may_replace: bool, is_synced: bool = False) -> Landing:
    """Decide about a file that has come home.

    Args:
        now: the version here now.
        then: the version here when the cell was sent.
        came: the version that has come.
        may_replace: whether it may take the place of the version `then`.
        is_synced: whether a deletion here since then counts as a change.

    Returns:
        "set aside" where it gets another name, because the version here may be another change.
    """
    if now == came:
        return "same"
    if now is None:
        return "write"
    return "write" if may_replace and now == then else "set aside"


@dataclass(frozen=True, slots=True)
class Found:
    """One version of a file as one run of a cell left it.

    Attributes:
        run: which of the runs.
        node: rank of its node.
        began, ended: when the run did, on the clock of its node.
        version: its content.
        is_written: whether that run wrote it.
        is_synced: whether it is of a folder that is the same on both sides, so that only its latest version counts.
    """

    run: int
    node: int
    began: float
    ended: float
    version: bytes
    is_written: bool = True
    is_synced: bool = False


def spread(path: str, found: Sequence[Found], labels: Sequence[str]) -> Mapping[int, str]:
    """Name the versions of one file that several runs have left.

    Versions that are all the same have the name of the file, and so has the only one. Where they differ, each has the
    label of its run in its name.

    Args:
        path: of the file.
        found: what the runs left, at least one.
        labels: by run.

    Returns:
        The names, by run. Runs whose version is one of another run, or was written over on its node, are left out.
    """
    kept = [each for each in found if not any(_outdates(other, each) for other in found)]
    if any(each.is_written for each in kept):
        kept = [each for each in kept if each.is_written]
    if len({each.version for each in kept}) == 1:
        return {kept[0].run: path}
    synced = any(each.is_synced for each in kept)
    return {each.run: aside(path, f"node{each.node}" if synced else labels[each.run]) for each in kept}


def _outdates(later: Found, earlier: Found) -> bool:
    """Return whether `later` is the same file at a later time: as the two runs shared the folder."""
    if later.node != earlier.node or (later.ended, later.run) <= (earlier.ended, earlier.run):
        return False
    return later.is_synced or later.began < earlier.ended
