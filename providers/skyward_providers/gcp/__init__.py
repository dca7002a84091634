"""`sky.GCP()`: nodes that are virtual machines of Google Compute Engine."""

from skyward_providers.gcp.settings import GCP

__all__ = ["GCP"]
