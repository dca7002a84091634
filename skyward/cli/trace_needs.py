"""Check that some group can run each task of a trace."""

from collections import Counter
from collections.abc import Iterable, Sequence

from skyward.errors import SpecError
from skyward.formatting import count_text, joined
from skyward.scaling.snapshot import Group
from skyward.simulator.workload import Task
from skyward.values.needs import Needs

__all__ = ["check_needs"]


def check_needs(name: str, tasks: Iterable[Task], groups: Sequence[Group]) -> None:
    """Check the needs of the tasks in a trace.

    Args:
        name: of the trace's file.

    Raises:
        SpecError: no node of any group can hold a task; the message has a group that could.
    """
    for needs, count in Counter(task.needs for task in tasks).items():
        if not any(group.can_hold(needs) for group in groups):
            who = f"{count_text(f'{count:,}', 'task')} of {name} {'needs' if count == 1 else 'need'} {needs}"
            raise SpecError(f"{who}, but {_why(needs, groups)}: add a group that has it, as in `{_example(needs)}`.")


def _why(needs: Needs, groups: Sequence[Group]) -> str:
    unknown = [each for each in needs.resources if not any(each in group.resources for group in groups)]
    if unknown:
        known = sorted({each for group in groups for each in group.resources})
        has = f" (its nodes have {joined(known)})" if known else ""
        other = "and each column but at, seconds, count and capabilities is a resource of the nodes"
        return f"no node has {joined(map(repr, unknown))}{has}, {other}"
    able = frozenset[str]().union(*(group.capabilities for group in groups))
    if lacking := sorted(needs.capabilities - able):
        return f"no node has the capability {joined(map(repr, lacking))}"
    return "no node has as much, or all of it together"


def _example(needs: Needs) -> str:
    amounts = [f"{name}={amount:g}" for name, amount in needs.resources.items()]
    able = [f"can={'+'.join(sorted(needs.capabilities))}"] if needs.capabilities else []
    return f"--group {','.join(['more=0:100', *amounts, *able])}"
