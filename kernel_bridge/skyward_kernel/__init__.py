"""State of a kernel that outlives a cell: its pools, and the bridge to the panel."""

from skyward_kernel.pools import DEFAULT_POOL, PoolManager, resident

__all__ = ["DEFAULT_POOL", "PoolManager", "resident"]
