"""Typed events of a pool: `for event in pool.events(): ...`. See docs/events.md."""

from skyward.events import kinds
from skyward.events.kinds import *  # noqa: F403  # each kind is listed once, in `kinds.__all__`
from skyward.events.stream import EventStream

__all__ = ["EventStream"]
__all__ += kinds.__all__
