"""`sky.RunPod()`: nodes that are pods of RunPod."""

from skyward_providers.runpod.settings import RunPod

__all__ = ["RunPod"]
