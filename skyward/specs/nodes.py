"""Number of nodes, and the worker of a node."""

import re
from dataclasses import dataclass
from typing import Literal

from skyward.errors import SpecError
from skyward.values import limits
from skyward.values.validation import Value, choice, number, shown, whole

__all__ = ["Executor", "Nodes", "NodesLike", "Worker"]

type Executor = Literal["auto", "thread", "process"]
type NodesLike = int | tuple[int, int] | Nodes
"""Accepted forms of a number of nodes: N, (MIN, MAX), or `Nodes`."""

_TEXT = re.compile(r"(?:(?P<desired>[0-9]{1,99})/)?(?P<min>[0-9]{1,99})(?::(?P<max>[0-9]{1,99}))?")


@dataclass(frozen=True, slots=True)
class Nodes(Value):
    """Number of nodes of a pool, and the number that must be ready before work starts.

    Attributes:
        min: nodes to provision at the start, and the minimum. 0 only with `max`.
        max: maximum of an elastic pool; None for a fixed pool.
        desired: nodes that must be ready before work starts; None for `min`. At most `min` in a fixed pool and `max`
            in an elastic one.

    Raises:
        SpecError: the three are inconsistent.

    Example:
        >>> sky.Compute(nodes=sky.Nodes(min=0, max=8))
    """

    min: int
    max: int | None = None
    desired: int | None = None

    def __post_init__(self) -> None:
        whole(self.min, "Nodes min", least=0 if self.min == 0 else 1, most=limits.NODES)
        if self.max is not None:
            whole(self.max, "Nodes max", least=1, most=limits.NODES)
        elif self.min == 0:
            raise SpecError("Nodes min can be 0 only in an elastic pool: give `max` too, as in `Nodes(min=0, max=4)`.")
        if self.max is not None and self.max < self.min:
            raise SpecError(f"Nodes max ({self.max}) must not be less than min ({self.min}): swap them or raise max.")
        if self.desired is None:
            return
        whole(self.desired, "Nodes desired", least=0 if self.min == 0 else 1, most=limits.NODES)
        if self.desired > self.ceiling:
            bound, fix = ("min", "give `max` to let the pool grow") if self.max is None else ("max", "raise max")
            raise SpecError(
                f"Nodes desired ({self.desired}) must not be more than {bound} ({self.ceiling}): lower it, or {fix}."
            )

    @property
    def elastic(self) -> bool:
        """True if the number of nodes follows the load."""
        return self.max is not None and self.max > self.min

    @property
    def threshold(self) -> int:
        """Number of nodes that must be ready before work starts."""
        return self.min if self.desired is None else self.desired

    @property
    def ceiling(self) -> int:
        """Maximum number of nodes."""
        return self.min if self.max is None else self.max

    @classmethod
    def of(cls, value: NodesLike) -> "Nodes":
        """Return `value` as `Nodes`.

        Raises:
            SpecError: it is not a number of nodes.
        """
        match value:
            case Nodes():
                return value
            case bool():
                pass
            case 0:
                raise SpecError(
                    "nodes cannot be 0, because a fixed pool has at least one: give (minimum, maximum), as in "
                    "`(0, 4)`, for nodes that start when tasks need them."
                )
            case int():
                whole(value, "nodes", least=1, most=limits.NODES)
                return cls(value)
            case (least, most):  # a list of two as well
                return cls(least, most)
        hint = f"; write `Nodes.parse({value!r})`" if isinstance(value, str) and cls._is_parsed(value) else ""
        raise SpecError(f"nodes must be a number, (min, max) or `sky.Nodes(...)`, but got {shown(value)}{hint}.")

    @classmethod
    def _is_parsed(cls, text: str) -> bool:
        """Return whether `parse` takes this text."""
        try:
            cls.parse(text)
        except SpecError:
            return False
        return True

    @classmethod
    def parse(cls, text: str) -> "Nodes":
        """Parse `N`, `MIN:MAX`, `DESIRED/MIN:MAX` or `DESIRED/N`.

        Raises:
            SpecError: `text` has another form, or its numbers are inconsistent.
        """
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise SpecError(
                f"nodes must be N, MIN:MAX or DESIRED/MIN:MAX, such as 4, 2:16 or 3/2:16, but got {shown(text)}."
            )
        least, most, desired = (None if part is None else int(part) for part in found.group("min", "max", "desired"))
        least = least or 0
        bound = least if most is None else most
        if most is None and not least:
            raise SpecError("a pool without nodes has to grow: give a maximum after the minimum, such as 0:4.")
        if bound < least:
            raise SpecError(f"the maximum, {most}, is less than the minimum, {least}: write {most}:{least}.")
        if desired == 0 and least:
            raise SpecError(f"the number of nodes that must be ready is 0, but the minimum is {least}: leave it out.")
        if desired is not None and desired > bound:
            raise SpecError(
                f"the number of nodes that must be ready, {desired}, is more than the pool may have, {bound}: write "
                f"{bound}/{least}:{bound}, or {desired}/{least}:{desired}."
            )
        return cls(least, most, desired)

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        desired = "" if self.desired is None else f"{self.desired}/"
        return f"{desired}{self.min}{'' if self.max is None else f':{self.max}'}"


@dataclass(frozen=True, slots=True)
class Worker(Value):
    """Settings of the worker process of each node.

    Attributes:
        concurrency: number of tasks that a node runs at a time.
        executor: "thread" for threads of one process, "process" for one process per slot; "auto" is "thread".
        backlog_gb: GiB of task output that a node buffers on its disk while no client is connected, at most half of the
            free space. Beyond that, the oldest output is dropped.

    Raises:
        SpecError: `concurrency` is less than 1, `executor` is unknown, or `backlog_gb` is less than 0.

    Example:
        >>> sky.Compute(worker=sky.Worker(concurrency=4, executor="process"))
    """

    concurrency: int = 1
    executor: Executor = "auto"
    backlog_gb: float = 1.0

    def __post_init__(self) -> None:
        whole(self.concurrency, "Worker concurrency", least=1, most=limits.CONCURRENCY)
        choice(self.executor, "Worker executor", Executor)
        number(self.backlog_gb, "Worker backlog_gb", zero=True, most=limits.GIB)

    @property
    def resolved_executor(self) -> Literal["thread", "process"]:
        """Requested executor, with "auto" resolved."""
        return "process" if self.executor == "process" else "thread"
