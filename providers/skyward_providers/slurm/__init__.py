"""`sky.Slurm()`: nodes that are jobs of a Slurm cluster."""

from skyward_providers.slurm.settings import Slurm

__all__ = ["Slurm"]
