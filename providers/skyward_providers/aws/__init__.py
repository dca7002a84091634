"""`sky.AWS()`: nodes that are machines of Amazon EC2, launched by fleets over several types and zones."""

from skyward_providers.aws.settings import AWS

__all__ = ["AWS"]
