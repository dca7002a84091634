"""`sky.Fargate()`: nodes that are tasks of AWS Fargate, launched through ECS."""

from skyward_providers.fargate.settings import Fargate

__all__ = ["Fargate"]
