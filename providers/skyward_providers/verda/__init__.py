"""`sky.Verda()`: nodes that are virtual machines of Verda."""

from skyward_providers.verda.settings import Verda

__all__ = ["Verda"]
