"""Tasks of the tests, which run in the processes of a group."""

import os
import signal
from collections.abc import Sequence
from typing import Any

__all__ = [
    "allgather",
    "compute",
    "env",
    "exchange",
    "fit",
    "fit_parts",
    "gather",
    "is_distributed",
    "is_grouped",
    "kill_itself",
    "listening",
    "raise_in",
    "sum_forever",
    "train",
    "train_model",
    "train_with_trainer",
]


def env(names: Sequence[str]) -> dict[str, str | None]:
    """Return variables."""
    return {name: os.environ.get(name) for name in names}


def listening() -> list[str]:
    """Return the addresses on which this process listens."""
    import psutil

    connections = psutil.Process().net_connections(kind="tcp")
    return sorted({each.laddr.ip.removeprefix("::ffff:") for each in connections if each.status == "LISTEN"})


def is_grouped() -> bool:
    """Return whether there is a process group."""
    from torch import distributed

    return bool(distributed.is_initialized())


def exchange() -> tuple[str, int, list[int], list[str]]:
    """Return the backend, the rank, the ranks of all members, and where this one listens."""
    import torch
    from torch import distributed

    rank = distributed.get_rank()
    each = [torch.zeros(1, dtype=torch.int64) for _ in range(distributed.get_world_size())]
    distributed.all_gather(each, torch.tensor([rank]))
    return distributed.get_backend(), rank, [int(one) for one in each], listening()


def train() -> tuple[list[float], list[float]]:
    """Train with other data in each member, by DistributedDataParallel; return the weights before and after."""
    import torch
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(distributed.get_rank())
    model = torch.nn.Linear(4, 1)
    before = model.weight.flatten().tolist()
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        parallel(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return before, model.weight.flatten().tolist()


def raise_in(position: int) -> None:
    """Raise in one member, while the others wait for it."""
    from torch import distributed

    distributed.barrier()
    if distributed.get_rank() == position:
        raise ValueError(f"raised by {position}")
    distributed.barrier()


def kill_itself(position: int) -> None:
    """Kill one member, while the others wait for it."""
    import torch
    from torch import distributed

    distributed.barrier()
    if distributed.get_rank() == position:
        os.kill(os.getpid(), signal.SIGKILL)
    distributed.all_reduce(torch.ones(1))


def compute() -> float:
    """Compute with JAX, after which it refuses to begin a distributed system."""
    import jax.numpy

    return float(jax.numpy.ones(3).sum())


def allgather() -> tuple[int, list[list[int]], list[str]]:
    """Return the number of devices, a number of each member, and where this one listens."""
    import jax
    import numpy
    from jax.experimental import multihost_utils

    gathered = multihost_utils.process_allgather(numpy.array([jax.process_index() * 10]))
    return jax.device_count(), gathered.tolist(), listening()


def sum_forever(position: int, how: str) -> None:
    """Add numbers of all members, until one of them is killed or raises."""
    import jax
    import numpy
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices("begun")
    if jax.process_index() == position and how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if jax.process_index() == position:
        raise ValueError(f"raised by {position}")
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("all",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("all"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    add = jax.jit(lambda each: each.sum(), out_shardings=whole)
    numbers = jax.make_array_from_process_local_data(split, numpy.array([1.0]))
    while True:
        add(numbers).block_until_ready()


def fit() -> tuple[list[float], list[float]]:
    """Train a model of Keras with other data in each member; return its losses and its weights."""
    import jax
    import keras
    import numpy

    layers = keras.layers
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dropout(0.5), layers.Dense(1)])
    model.compile("sgd", "mse")
    inputs = numpy.random.default_rng(jax.process_index()).normal(size=(16, 4))
    history = model.fit(inputs, inputs.sum(1, keepdims=True), epochs=3, batch_size=8, verbose=0)
    weights = numpy.concatenate([each.ravel() for each in model.get_weights()])
    return history.history["loss"], weights.tolist()


def fit_parts(method: str, lengths: list[int]) -> int:
    """Call a method of a model of Keras, with as many samples in each member as `lengths` has; return their number."""
    import jax
    import keras
    import numpy

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    length: int = lengths[jax.process_index()]
    inputs, outputs = numpy.ones((length, 4)), numpy.ones((length, 1))
    equal = inputs[:4], outputs[:4]
    match method:
        case "validation":
            model.fit(*equal, batch_size=2, verbose=0, validation_data=(inputs, outputs))
        case "epochs":
            model.fit(*equal, epochs=length, batch_size=2, verbose=0)
        case "predict":
            model.predict(inputs, batch_size=2, verbose=0)
        case "train_on_batch":
            model.train_on_batch(inputs, outputs)
        case _:
            getattr(model, method)(inputs, outputs, batch_size=2, verbose=0)
    return length


def is_distributed() -> bool:
    """Return whether Keras has a distribution."""
    import keras

    return keras.distribution.distribution() is not None


def gather() -> tuple[str, int, list[float]]:
    """Return what an Accelerator is, and what its `gather` returns."""
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator()
    gathered = accelerator.gather(torch.tensor([float(accelerator.process_index)]))
    return str(accelerator.distributed_type), accelerator.num_processes, gathered.tolist()


def train_model() -> tuple[str, str, list[float]]:
    """Train with an Accelerator; return what it made of the model, its precision, and the weights."""
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    data = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
    for (batch,) in data:
        optimizer.zero_grad()
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
    weights = accelerator.unwrap_model(model).weight.flatten().tolist()
    return type(model).__name__, accelerator.mixed_precision, weights


def train_with_trainer(folder: str) -> tuple[int, str, int, float, list[float]]:
    """Train a tiny BERT with the Trainer of Transformers.

    Returns the number of members, what became of the model, the steps, the loss, and the embedding of a word.
    """
    import torch
    from torch.utils.data import Dataset
    from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

    class Sentences(Dataset[dict[str, Any]]):  # type: ignore[misc]  # not typed here
        def __len__(self) -> int:
            return 32

        def __getitem__(self, index: int) -> dict[str, Any]:
            tokens = torch.arange(8) + index % 16
            return {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones(8, dtype=torch.int64)}

    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForMaskedLM(BertConfig(vocab_size=32, max_position_embeddings=16, **size))
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=4,
        per_device_train_batch_size=4,
        logging_steps=1,  # each gathers the loss of all members
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        save_strategy="no",
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Sentences())
    outcome = trainer.train()
    wrapper = type(trainer.model_wrapped).__name__
    word = model.get_input_embeddings().weight[3].tolist()
    return arguments.world_size, wrapper, outcome.global_step, float(outcome.training_loss), word
