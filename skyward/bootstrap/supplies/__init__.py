"""Supplies for machines that cannot fetch packages: uv, Python and wheels, collected on the client."""

from skyward.bootstrap.supplies.platforms import Platform
from skyward.bootstrap.supplies.supplier import Supplier

__all__ = ["Platform", "Supplier"]
