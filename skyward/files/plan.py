"""Decisions about a file from its versions on both sides and the base version that both once had.

"Here" is the notebook's folder, "there" a node's working folder.

A version is None where there is no file. Nothing here touches a disk.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from skyward.files.patterns import version_name

__all__ = [
    "FilePlacement",
    "FileVersions",
    "Landing",
    "decide_fetch",
    "decide_landing",
    "decide_placement",
    "decide_sync",
    "version_names",
]

type Version = bytes | None
type FilePlacement = Literal["keep", "write", "replace", "set aside", "remove"]
type Landing = Literal["same", "write", "set aside"]


def decide_placement(here: Version, there: Version, base: Version, taken: Collection[bytes] = ()) -> FilePlacement:
    """Decide about a file that the node should have as it is here (`--file`).

    Args:
        here: the version here.
        there: the version there.
        base: the version that both sides had when it was last placed.
        taken: versions that nodes had and that were copied here.

    Returns:
        "keep"; "write"; or "replace" where the only copy of a version is lost, which is reported.
    """
    if there == here:
        return "keep"
    return "write" if there is None or there == base or there in taken else "replace"


def decide_sync(
    here: Version, there: Version, base: Version, taken: Collection[bytes] = (), *, is_gone: bool = False
) -> FilePlacement:
    """Decide about a file of a synced folder (`--sync`), before the cell runs.

    Args:
        here, there, base, taken: as for `decide_placement`.
        is_gone: True if the file existed here and was deleted since.

    Returns:
        "keep", also for a version of the node that is to be copied here; "write"; "remove"; "set aside" where both
        sides
        have changed: the version there gets another name, and the version here is written.
    """
    if there == here:
        return "keep"
    if here is None:
        deleted_here = (base is not None and there == base) or ((base is not None or is_gone) and there in taken)
        return "remove" if deleted_here else "keep"
    if there is None or there == base or there in taken:
        return "write"
    return "keep" if here == base else "set aside"


def decide_fetch(
    here: Version,
    there: bytes,
    base: Version,
    taken: Collection[bytes] = (),
    *,
    is_written: bool,
    only_written: bool = False,
) -> Literal["stay", "replace", "add"]:
    """Decide about a file of the node that may be copied to the notebook's folder, after the cell.

    Args:
        here: the version here when the cell was sent.
        there, base, taken: as for `decide_placement`.
        is_written: True if the cell wrote it.
        only_written: True if files that the cell did not write stay.

    Returns:
        "stay"; "replace" if it may replace the version here; "add" if it may not.
    """
    if there == here or (not is_written and (only_written or there in taken)):
        return "stay"
    return "replace" if is_written or here is None or here == base else "add"


def decide_landing(now: Version, then: Version, came: bytes, *, may_replace: bool, is_synced: bool = False) -> Landing:
    """Decide about a file that has arrived in the notebook's folder.

    Args:
        now: the version here now.
        then: the version here when the cell was sent.
        came: the version that arrived.
        may_replace: True if it may replace the version `then`.
        is_synced: True if a deletion here since then counts as a change.

    Returns:
        "same"; "write"; "set aside" if it gets another name, because the version here may be another change.
    """
    if now == came:
        return "same"
    if now is None:
        return "write"
    return "write" if may_replace and now == then else "set aside"


@dataclass(frozen=True, slots=True)
class FileVersions:
    """One version of a file, as one run of a cell left it.

    Attributes:
        run: index of the run.
        node: rank of its node.
        began, ended: start and end of the run, on the clock of its node.
        version: identifies the content.
        is_written: True if that run wrote the file.
        is_synced: True for a file of a synced folder, of which only the latest version counts.
    """

    run: int
    node: int
    began: float
    ended: float
    version: bytes
    is_written: bool = True
    is_synced: bool = False


def version_names(path: str, found: Sequence[FileVersions], labels: Sequence[str]) -> Mapping[int, str]:
    """Name the versions of one file that several runs have left.

    A single version, or equal versions, keep the name of the file. Otherwise each name includes the label of its run.

    Args:
        path: of the file.
        found: the versions, at least one.
        labels: label of each run.

    Returns:
        The names, by run. Runs whose version equals that of another run, or was overwritten on its node, are left out.
    """
    kept = [each for each in found if not any(_outdates(other, each) for other in found)]
    if any(each.is_written for each in kept):
        kept = [each for each in kept if each.is_written]
    if len({each.version for each in kept}) == 1:
        return {kept[0].run: path}
    synced = any(each.is_synced for each in kept)
    return {each.run: version_name(path, f"node{each.node}" if synced else labels[each.run]) for each in kept}


def _outdates(later: FileVersions, earlier: FileVersions) -> bool:
    """Return whether `later` is the same file at a later time, because both runs used the same folder."""
    if later.node != earlier.node or (later.ended, later.run) <= (earlier.ended, earlier.run):
        return False
    return later.is_synced or later.began < earlier.ended
