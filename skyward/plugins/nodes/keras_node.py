"""Keras on nodes: in a collective of JAX, models are replicated on all devices of all members."""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, Final

from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode, TaskInfo

__all__ = ["KerasNode"]

_METHODS: Final = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch")
"""Methods of models in which all members take part."""

_DATA: Final = ("x", "validation_data")
_NUMBERS: Final = (
    "batch_size",
    "epochs",
    "initial_epoch",
    "steps",
    "steps_per_epoch",
    "validation_batch_size",
    "validation_steps",
)
"""Their arguments that decide how many batches there are, and of which sizes."""

_UNKNOWN: Final = -1
"""Length of what has none, such as a generator."""


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
        with _comparing_data(keras.Model, replicated):
            yield
    finally:
        distribution.set_distribution(before)


@contextmanager
def _comparing_data(model: type[Any], replicated: object) -> Iterator[None]:
    """Refuse data of which the members have unequal amounts, while models are replicated on their devices.

    Neither Keras nor JAX compares it: batches of unequal sizes would be added up to a wrong gradient, and a member
    with more batches would wait for the others forever.
    """
    owners = {name: next(each for each in model.__mro__ if name in vars(each)) for name in _METHODS}
    before = {name: vars(owner)[name] for name, owner in owners.items()}
    for name, owner in owners.items():
        setattr(owner, name, _comparing(before[name], replicated))
    try:
        yield
    finally:
        for name, owner in owners.items():
            setattr(owner, name, before[name])


def _comparing(method: Callable[..., Any], replicated: object) -> Callable[..., Any]:
    """Return a method of models that first compares how much data the members give it.

    Raises:
        ValueError: they give it unequal amounts.
    """
    signature = inspect.signature(method)

    @wraps(method)
    def compared(*args: Any, **kwargs: Any) -> Any:
        import jax
        from keras import distribution

        if distribution.distribution() is replicated and jax.process_count() > 1:
            _compare(method.__name__, signature.bind(*args, **kwargs).arguments)
        return method(*args, **kwargs)

    return compared


def _compare(method: str, given: Mapping[str, Any]) -> None:
    import numpy
    from jax.experimental import multihost_utils

    mine = [*(_length(given.get(name)) for name in _DATA), *(_number(given.get(name)) for name in _NUMBERS)]
    halves = numpy.array(mine, numpy.int64).view(numpy.int32)  # JAX has no larger integers
    each = numpy.ascontiguousarray(multihost_utils.process_allgather(halves)).view(numpy.int64)
    for name, column in zip((*_DATA, *_NUMBERS), each.T, strict=True):
        least, most = int(column.argmin()), int(column.argmax())
        if column[least] != column[most]:
            texts = [f"{_told(int(column[rank]))} in rank {rank}" for rank in (least, most)]
            what = f"the length of {name}" if name in _DATA else name
            raise ValueError(
                f"{method}() needs the same number of batches, of the same sizes, in all members of a collective, but "
                f"{what} is {' and '.join(texts)}: divide data by `sky.shard(..., drop_last=True)`."
            )


def _length(data: object) -> int:
    """Return the number of samples of arrays, or of batches of a data set."""
    import keras

    first = next((each for each in keras.tree.flatten(data) if each is not None), None)
    shape = getattr(first, "shape", None)
    if shape:
        return int(shape[0])
    try:
        return len(first)  # type: ignore[arg-type]  # what has none raises
    except TypeError:
        return _UNKNOWN


def _number(given: object) -> int:
    return int(given) if isinstance(given, int) else _UNKNOWN


def _told(number: int) -> str:
    return "not known" if number == _UNKNOWN else str(number)
