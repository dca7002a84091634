"""The largest numbers that the library takes. Each bounds what a slip of the keyboard can start, store or wait for."""

from typing import Final

__all__ = [
    "ACCELERATORS",
    "AMOUNT",
    "ATTEMPTS",
    "CONCURRENCY",
    "GB",
    "INTERVAL",
    "NODES",
    "SECONDS",
    "SEED",
    "USD",
    "VCPUS",
]

NODES: Final = 10_000
"""Nodes of a pool or a group."""

CONCURRENCY: Final = 4_096
"""Tasks at a time on one node."""

SECONDS: Final = 10 * 365 * 86_400
"""Seconds of any timeout, lifetime or pause: ten years. Timers of the system overflow beyond 292 years."""

INTERVAL: Final = 0.01
"""The fewest seconds between two rounds of what is done again and again."""

VCPUS: Final = 100_000
"""Virtual CPUs of one node."""

GB: Final = 1_000_000
"""GB of memory or disk of one node."""

ACCELERATORS: Final = 10_000
"""Accelerators of one node."""

AMOUNT: Final = 10**12
"""Any other amount, such as that of a resource."""

USD: Final = 10**9
"""Dollars of a price or a budget."""

ATTEMPTS: Final = 1_000_000
"""Attempts of one thing."""

SEED: Final = 2**63 - 1
"""The seed of a random generator."""
