"""Access to the nodes of recorded pools, also of those that another process owns."""

import shlex
from typing import TYPE_CHECKING

from skyward.errors import SpecError, UsageError
from skyward.providers.protocol import ExecAccess, LocalAccess, SSHAccess

if TYPE_CHECKING:
    from skyward.pool.reaping.recorded_pools import RecordedMachine, RecordedPool

__all__ = ["find_pool", "nodes_of_pool", "reading", "refuse_ended", "terminal", "unreachable"]


def find_pool(name: str) -> "RecordedPool":
    """Return the newest recorded pool of a name, or the one of an id, that has not been closed.

    Raises:
        SpecError: there is none.
    """
    from skyward.pool.reaping.recorded_pools import recorded_pools

    found = [each for each in recorded_pools() if name in (each.name, each.id) and not each.warm_until]
    if not found:
        raise SpecError(f"There is no pool {name!r}; `skyward status` lists all pools.")
    return found[-1]


def refuse_ended(pool: "RecordedPool") -> None:
    """Refuse a pool whose nodes were processes on this computer, and have ended.

    Raises:
        SpecError: they have.
    """
    if pool.ended and not pool.owner:
        raise SpecError(
            f"The nodes of pool {pool.name!r} have ended: `skyward down {pool.name} -y` clears it, and then "
            f"`skyward up {pool.name} --detach` opens it anew."
        )


def nodes_of_pool(pool: "RecordedPool", rank: int | None) -> "list[RecordedMachine]":
    """Return the nodes of a pool by rank; only the one of this rank, if it is given.

    Raises:
        SpecError: there is no such node.
        UsageError: no other process can reach its nodes.
    """
    if reason := unreachable(pool):
        raise UsageError(reason)
    nodes = [each for each in pool.machines if each.rank is not None]
    chosen = [each for each in nodes if rank in (None, each.rank)]
    if not chosen:
        known = ", ".join(str(each.rank) for each in nodes)
        what = "node" if rank is None else f"node {rank}"
        raise SpecError(f"Pool {pool.name!r} has no {what}; it has {known or 'none yet'}.")
    return chosen


def unreachable(pool: "RecordedPool") -> str:
    """Return why another process cannot reach the nodes of a pool; empty if it can reach some."""
    machines = pool.machines
    if not machines or not all(isinstance(each.access, LocalAccess) for each in machines):
        return ""
    owner = pool.owner or "a process that is gone"
    return (
        f"The nodes of pool {pool.name!r} belong to {owner}, and end with it: no other process can read their logs or "
        "open a shell on them."
    )


def terminal(machine: "RecordedMachine", pool: str) -> list[str]:
    """Return the words of a command that opens a shell on a machine.

    Raises:
        UsageError: it has no terminal access.
    """
    match machine.access:
        case SSHAccess() as access:
            from skyward.link.ssh.openssh import login

            return login(access)
        case ExecAccess(terminal=words) if words:
            return list(words)
        case _:
            raise UsageError(f"Node {machine.rank} of pool {pool!r} has no terminal access.")


def reading(machine: "RecordedMachine", script: str) -> list[str]:
    """Return the words of a command that runs a script of `sh` in the directory of a machine's worker.

    In the script, `$node` is that directory.
    """
    match machine.access:
        case SSHAccess() as access:
            from skyward.link.ssh.openssh import batch

            return [*batch(access), f"exec sh -c {shlex.quote(f'{machine.directory}\n{script}')}"]
        case ExecAccess(command=command, shell=quoted):
            words = ["sh", "-c", f"{machine.directory}\n{script}"]
            return [*command, *(map(shlex.quote, words) if quoted else words)]
        case _:
            raise UsageError(f"Node {machine.rank} has no access.")
