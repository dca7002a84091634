"""`sky.Lambda()`: nodes that are instances of Lambda, the GPU cloud."""

from skyward_providers.lambda_cloud.settings import Lambda

__all__ = ["Lambda"]
