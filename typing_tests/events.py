"""Types of `pool.events()`: the filter decides what comes, and a `match` over all kinds is exhaustive."""

from typing import assert_never, assert_type

import skyward as sky
from skyward.events import EventsDropped, EventStream, NodeLost, NodeReady, TaskEnded

pool = sky.Compute(nodes=2)

assert_type(pool.events(NodeLost), EventStream[NodeLost])
assert_type(pool.events(NodeLost, NodeReady, replay=True), EventStream[NodeLost | NodeReady])
assert_type(pool.events(TaskEnded).get(1), TaskEnded | EventsDropped | None)

for lost in pool.events(NodeLost):
    assert_type(lost, NodeLost | EventsDropped)
    match lost:
        case NodeLost(node=node, reason=reason):
            assert_type((node, reason), tuple[int, str])
        case EventsDropped(count=count):
            assert_type(count, int)
        case _:
            assert_never(lost)

for event in pool.events():
    assert_type(event.number, int)
    match event:
        case sky.events.TaskCompleted(name=name, elapsed=elapsed):
            assert_type((name, elapsed), tuple[str, float | None])
        case sky.events.ScalingDecided(decision=decision):
            assert_type(decision.reason, str)
        case _:
            pass


async def read() -> list[int]:
    return [event.number async for event in pool.events(TaskEnded)]


pool.events(int)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue]  # no kind of event
