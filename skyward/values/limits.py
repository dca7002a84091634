"""Upper limits of the numbers that the library accepts, so that a typo cannot start, store or wait for too much."""

from typing import Final

__all__ = [
    "ACCELERATORS",
    "AMOUNT",
    "ATTEMPTS",
    "CONCURRENCY",
    "GIB",
    "INTERVAL",
    "NODES",
    "SECONDS",
    "SEED",
    "USD",
    "VCPUS",
    "WARM",
]

NODES: Final = 10_000
"""Nodes of a pool or a group."""

CONCURRENCY: Final = 4_096
"""Concurrent tasks on one node."""

SECONDS: Final = 10 * 365 * 86_400
"""Seconds of any timeout, lifetime or pause: ten years. System timers overflow beyond 292 years."""

INTERVAL: Final = 0.01
"""Minimum seconds between two rounds of a periodic action."""

VCPUS: Final = 100_000
"""Virtual CPUs of one node."""

GIB: Final = 1_000_000
"""GiB of memory or disk of one node."""

ACCELERATORS: Final = 10_000
"""Accelerators of one node."""

AMOUNT: Final = 10**12
"""Any other amount, such as the amount of a resource."""

USD: Final = 10**9
"""Dollars of a price or a budget."""

ATTEMPTS: Final = 1_000_000
"""Attempts at any operation."""

SEED: Final = 2**63 - 1
"""Seed of a random generator."""

WARM: Final = 86_400
"""Seconds for which machines are kept warm: a day, since they cost money."""
