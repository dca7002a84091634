"""`sky.Hyperstack()`: nodes that are virtual machines of Hyperstack."""

from skyward_providers.hyperstack.settings import Hyperstack

__all__ = ["Hyperstack"]
