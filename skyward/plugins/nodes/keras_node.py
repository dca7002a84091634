"""Keras on nodes: in a collective of JAX, models are replicated on all devices of all members."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode, TaskInfo

__all__ = ["KerasNode"]


class KerasNode(OnNode):
    """The part of the plugin `keras` that runs on nodes.

    Args:
        backend: backend of Keras, such as "jax".
    """

    def __init__(self, *, backend: str) -> None:
        self._backend = backend

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, str]:
        """Return the variable that selects the backend, which Keras reads as it is imported."""
        return {"KERAS_BACKEND": self._backend}

    @contextmanager
    def around_process(self, node: InstanceInfo) -> Iterator[None]:
        """Import Keras, which takes seconds, before the first task."""
        import keras  # noqa: F401  # for the tasks

        yield

    def around_task(self, task: TaskInfo) -> AbstractContextManager[Any]:
        """Return the context of the distribution; outside of a collective of JAX there is none."""
        return nullcontext() if task.meeting is None or self._backend != "jax" else _data_parallel(task)


@contextmanager
def _data_parallel(task: TaskInfo) -> Iterator[None]:
    """Replicate models on all devices, and begin with the same random numbers in all members, which that needs.

    Each member gives its own batches, so data sets are not divided again.
    """
    import jax
    import keras

    if not jax.distributed.is_initialized():  # the members have a collective of another framework
        yield
        return
    distribution = keras.distribution
    before = distribution.distribution()
    replicated = distribution.DataParallel(devices=distribution.list_devices(), auto_shard_dataset=False)
    distribution.set_distribution(replicated)
    keras.utils.set_random_seed(int.from_bytes(hashlib.sha256(task.generation.encode()).digest()[:4]))
    try:
        yield
    finally:
        distribution.set_distribution(before)
