"""What lives in a kernel from cell to cell: its pools."""

from skyward_kernel.pools import DEFAULT_POOL, PoolManager, resident

__all__ = ["DEFAULT_POOL", "PoolManager", "resident"]
