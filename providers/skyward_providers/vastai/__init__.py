"""`sky.VastAI()`: nodes that are containers on the marketplace Vast.ai."""

from skyward_providers.vastai.settings import VastAI

__all__ = ["VastAI"]
