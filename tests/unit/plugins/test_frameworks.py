"""The plugins of training frameworks, as values."""

import os
import pickle
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import skyward as sky
from skyward.accelerators import Accelerator
from skyward.bootstrap.plan import Plan
from skyward.plugins.accelerate_plugin import Accelerate
from skyward.plugins.jax_plugin import Jax
from skyward.plugins.keras_plugin import Keras
from skyward.plugins.nodes.accelerate_node import AccelerateNode
from skyward.plugins.nodes.collective_variables import (
    interface_towards,
    network_variables,
    proxy_variables,
    set_variables,
)
from skyward.plugins.nodes.torch_node import TorchNode
from skyward.plugins.torch_plugin import Torch
from skyward.specs import Image, Spec
from skyward.specs.plugin import Plugin, Requires
from skyward.specs.plugin_order import image_of
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode, TaskInfo

pytestmark = pytest.mark.unit

PLUGINS = (Accelerate(config={"fsdp": {"version": 2}}), Jax(), Keras(), Torch(backend="gloo"))


def _image(*plugins: Plugin, provider: object = "aws", accelerator: Any = None, image: Image | None = None) -> Image:
    """Return the environment of nodes with plugins."""
    spec = Spec(provider=provider, plugins=plugins, accelerator=accelerator, image=image or Image())
    made = image_of(spec.plugins, spec.image, spec)
    assert image_of(spec.plugins, made, spec) == made, "again, nothing changes"
    return made


def test_entry_points_name_the_plugins() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    entries = project["entry-points"]["skyward.plugins"]
    for name, path in entries.items():
        module, _, attribute = path.partition(":")
        assert getattr(import_module(module), attribute).name == name
    assert entries.keys() | {"around"} == {name for name in sky.plugins.__all__ if name.islower()}


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_plugin_is_a_value_whose_half_on_nodes_takes_its_settings(plugin: Plugin) -> None:
    again = pickle.loads(pickle.dumps(plugin))
    assert again == plugin
    assert hash(again) == hash(plugin)
    assert plugin.on_node is not None
    module, _, attribute = plugin.on_node.partition(":")
    half = getattr(import_module(module), attribute)(**plugin.settings())
    assert isinstance(half, OnNode)


def test_collectives_are_formed_by_one_framework() -> None:
    together = Requires(executor="process", together=True, same_devices=True)
    assert Torch().requires() == replace(together, procs_per_node="auto")
    assert Accelerate(restarts=2).requires() == replace(together, procs_per_node="auto", restarts=2)
    assert Jax().requires() == replace(together, procs_per_node=1)
    assert Keras().requires() == Requires()
    names = [plugin.name for plugin in Spec(plugins=[Keras(), Accelerate(), Torch()]).plugins]
    assert names.index("torch") < names.index("accelerate") < names.index("keras")
    assert _image(Keras(backend="torch"), Accelerate()).pip == ("torch", "accelerate", "keras")
    assert names.index("torch") < names.index("keras")


def _of_accelerate(**config: Any) -> Callable[[], object]:
    return lambda: Accelerate(config=config)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Spec(plugins=[Torch(), Jax()]), "plugins has 'torch' and 'jax', which exclude each other"),
        (lambda: Spec(plugins=[Accelerate(), Jax()]), "plugins has 'accelerate' and 'jax', which exclude each other"),
        (lambda: Torch(backend="nvcc"), "backend must be one of 'gloo', 'nccl' or None, but got 'nvcc'."),  # type: ignore[arg-type]
        (
            lambda: Torch(cuda="13.0"),
            "cuda must be a build of PyTorch, such as 'cu130', 'rocm7.1' or 'cpu', 'auto'",
        ),
        (lambda: Torch(version="newest"), "version must be a version, such as '2.13.0', a range, such as"),
        (lambda: Torch(vision="; rm"), "vision must be a version"),
        (lambda: Torch(procs_per_node=0), "procs_per_node must be a whole number of at least 1, but got 0."),
        (lambda: Torch(procs_per_node="all"), "procs_per_node must be a number of processes, 'auto' for"),  # type: ignore[arg-type]
        (lambda: Torch(restarts=-1), "restarts must be a whole number of at least 0, but got -1."),
        (lambda: Torch(timeout=0), "timeout must be a positive number, or None, but got 0."),
        (lambda: Jax(cuda="cu130"), "cuda must be one of 'auto', 'cuda12', 'cuda13' or None, but got 'cu130'."),  # type: ignore[arg-type]
        (lambda: Keras(backend="numpy"), "backend must be one of 'jax', 'tensorflow', 'torch', but got 'numpy'."),  # type: ignore[arg-type]
        (
            lambda: _image(Keras(backend="torch")),
            "Plugin 'keras' has the backend 'torch', which nodes would not have: add the plugin 'torch', or "
            "`image=sky.Image(pip=['torch'])`, or choose another backend.",
        ),
        (
            lambda: Accelerate(config="bf16"),  # type: ignore[arg-type]
            "config must be a dict, as in `config={'mixed_precision': 'bf16'}`, but got 'bf16'.",
        ),
        (
            _of_accelerate(mixed_precison="bf16"),
            "config has an unknown key 'mixed_precison'; did you mean 'mixed_precision'?",
        ),
        (
            _of_accelerate(mixed_precision="bf8"),
            "config must set 'mixed_precision' to one of 'no', 'fp16', 'bf16'",
        ),
        (_of_accelerate(use_cpu="yes"), "config must set 'use_cpu' to True or False, but got 'yes'."),
        (
            _of_accelerate(gradient_accumulation_steps=True),
            "config must set 'gradient_accumulation_steps' to a whole number, but got True.",
        ),
        (_of_accelerate(fsdp=True), "config must set 'fsdp' to a dict of its settings, but got True."),
        (_of_accelerate(fsdp={"versoin": 2}), "config has an unknown key 'versoin' in 'fsdp'; did you mean 'version'?"),
        (_of_accelerate(fsdp={"version": "2"}), "config must set 'fsdp.version' to one of 1, 2, but got '2'."),
        (
            _of_accelerate(fsdp={"version": 2, "sharding_strategy": "FULL_SHARD"}),
            "config has 'fsdp.sharding_strategy', which only version 1 of FSDP has: take it out, or set 'fsdp.version' "
            "to 1.",
        ),
        (
            _of_accelerate(fsdp={"reshard_after_forward": True}),
            "config has 'fsdp.reshard_after_forward', which only version 2 of FSDP has",
        ),
        (_of_accelerate(fsdp={}, deepspeed={}), "config has 'fsdp' and 'deepspeed', which exclude each other"),
    ],
)
def test_wrong_fields_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(sky.SpecError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("name", ["torch", "accelerate"])
@pytest.mark.parametrize(("worker", "gpus", "selected"), [(0, 4, []), (3, 4, [3]), (5, 4, [1]), (4, 4, []), (1, 0, [])])
def test_task_outside_of_a_collective_has_the_gpu_of_its_process(
    name: str, worker: int, gpus: int, selected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes of a node would use its first GPU."""
    found: list[int] = []

    @contextmanager
    def device(number: int) -> Iterator[None]:
        found.append(number)
        yield
        found.append(-1)

    cuda = SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus, device=device)
    for module in ("torch", "torch.distributed", "accelerate"):
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(cuda=cuda))
    node = {"torch": TorchNode, "accelerate": AccelerateNode}[name]()
    with node.around_process(InstanceInfo(node=0, worker=worker, total_nodes=1)):
        with node.around_task(TaskInfo(task=1)):
            assert found == selected
        assert found == [*selected, *([-1] if selected else [])], "it is left"
        with pytest.raises(ValueError, match="process group") as raised, node.around_task(TaskInfo(task=2)):
            raise ValueError("Default process group has not been initialized")
        assert "send the function with `@`" in raised.value.__notes__[0]


def test_torch_selects_its_build_by_the_driver_of_the_machine() -> None:
    image = _image(Torch(version="2.13.0", vision="latest"))
    assert image.pip == ("torch==2.13.0", "torchvision")
    assert dict(image.env) == {"UV_TORCH_BACKEND": "auto"}
    assert not Plan.of(image).is_same_everywhere, "no machine gets the environment of another"
    assert Plan.of(image).image_hash != Plan.of(_image(Torch(version="2.13.0", vision="latest", cuda="cpu"))).image_hash
    assert dict(_image(Torch(cuda=None)).env) == {}
    assert dict(_image(Torch(), image=Image(env={"UV_TORCH_BACKEND": "cu130"})).env) == {"UV_TORCH_BACKEND": "cu130"}


@pytest.mark.parametrize(
    ("accelerator", "cuda", "requirement"),
    [
        (None, "auto", "jax"),
        ("H100", "auto", "jax[cuda13]"),
        ("V100", "auto", "jax[cuda12]"),
        ("H100", "cuda12", "jax[cuda12]"),
        ("H100", None, "jax"),
        ("TPUv4", "auto", "jax[tpu]"),
        ("MI300X", "auto", "jax"),
        (Accelerator("X1", metadata={"cuda_min": "13.0"}), "auto", "jax[cuda13]"),
    ],
)
def test_jax_is_that_of_the_accelerator(accelerator: Any, cuda: Any, requirement: str) -> None:
    assert _image(Jax(cuda=cuda), accelerator=accelerator).pip == (requirement,)


def test_versions_are_pinned_or_ranges() -> None:
    assert _image(Jax(version=">=0.10,<1")).pip == ("jax>=0.10,<1",)
    assert _image(Jax(version="0.12.0"), accelerator="H100").pip == ("jax[cuda13]==0.12.0",)
    assert _image(Jax(version="0.12.0"), image=Image(pip=["jax==0.12.0"])).pip == ("jax==0.12.0",)


@pytest.mark.parametrize("provider", [None, "local", sky.Local()])
def test_local_nodes_have_the_packages_that_are_here(provider: object) -> None:
    assert _image(Torch(), Accelerate(), Keras(backend="tensorflow"), provider=provider) == Image()
    assert _image(Jax(), provider=provider) == Image()


def test_keras_takes_its_backend_from_a_plugin_or_from_the_image() -> None:
    assert _image(Keras(), Jax()).pip == ("jax", "keras")
    assert _image(Keras(backend="tensorflow"), image=Image(pip=["tensorflow-cpu==2.20"])).pip[1:] == ("keras",)
    assert Keras(backend="torch").settings() == {"backend": "torch"}


def test_accelerate_brings_torch_unless_it_is_there() -> None:
    assert _image(Accelerate()).pip == ("torch", "accelerate")
    assert dict(_image(Accelerate()).env) == {"UV_TORCH_BACKEND": "auto"}
    assert _image(Accelerate(), Torch(version="2.13.0", cuda=None)).pip == ("torch==2.13.0", "accelerate")
    assert _image(Accelerate(config={"deepspeed": {"zero_stage": 3}})).pip == ("torch", "accelerate", "deepspeed")


def test_configuration_of_accelerate_becomes_variables() -> None:
    plugin = Accelerate(
        config={
            "mixed_precision": "bf16",
            "gradient_accumulation_steps": 4,
            "cpu_affinity": False,
            "dynamo": {"backend": "inductor"},
            "fsdp": {"version": 2, "reshard_after_forward": True, "transformer_layer_cls_to_wrap": "BertLayer"},
        }
    )
    assert plugin.settings() == {
        "variables": {
            "ACCELERATE_MIXED_PRECISION": "bf16",
            "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
            "ACCELERATE_CPU_AFFINITY": "false",
            "ACCELERATE_DYNAMO_BACKEND": "inductor",
            "ACCELERATE_USE_FSDP": "true",
            "FSDP_VERSION": "2",
            "FSDP_RESHARD_AFTER_FORWARD": "true",
            "FSDP_TRANSFORMER_CLS_TO_WRAP": "BertLayer",
        }
    }
    clipped = Accelerate(config={"deepspeed": {"gradient_clipping": 1.0}})
    assert clipped.settings()["variables"] == {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_GRADIENT_CLIPPING": "1.0",
    }
    assert Accelerate().settings() == {"variables": {}}


def test_variables_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "before")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ValueError, match="inside"), set_variables({"RANK": "0", "WORLD_SIZE": "2"}):
        assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("0", "2")
        raise ValueError("inside")
    assert os.environ["RANK"] == "before"
    assert "WORLD_SIZE" not in os.environ


def test_network_of_the_meeting_is_selected_unless_the_user_has_selected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    loopback = interface_towards("127.0.0.1")
    assert loopback in ("lo", "lo0")
    assert network_variables("127.0.0.1") == {"GLOO_SOCKET_IFNAME": loopback}
    assert interface_towards("not an address") is None
    assert network_variables("not an address") == {}


def test_meeting_is_excepted_from_a_proxy_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert not proxy_variables("10.0.0.1"), "JAX warns of every such variable"
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert proxy_variables("10.0.0.1") == {"no_grpc_proxy": "10.0.0.1"}
    monkeypatch.setenv("no_proxy", "localhost")
    assert proxy_variables("10.0.0.1") == {"no_grpc_proxy": "localhost,10.0.0.1"}
