"""`sky.Kubernetes()`: nodes that are pods of a Kubernetes cluster."""

from skyward_providers.kubernetes.settings import Kubernetes

__all__ = ["Kubernetes"]
