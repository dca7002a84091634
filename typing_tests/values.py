# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""The types of the values. Checked by mypy and pyright, never run."""

from collections.abc import Mapping
from typing import assert_type

import skyward as sky


def specs() -> None:
    spec = sky.Spec(
        provider=sky.Local(), nodes=(2, 16), accelerator="A100:4", image=sky.Image(pip=["numpy"], env={"A": "1"})
    )
    assert_type(spec.nodes, sky.Nodes)
    assert_type(spec.accelerator, sky.Accelerator | None)
    assert_type(spec.image.pip, tuple[str, ...])
    assert_type(spec.image.env, Mapping[str, str])
    assert_type(spec.volumes, tuple[sky.Volume, ...])
    assert_type(sky.Options(worker=sky.Worker(2, "process")).worker, sky.Worker)
    assert_type(sky.Nodes.of((2, 4)).threshold, int)
    sky.Spec(node=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    sky.Worker(executor="fork")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sky.Spec(allocation="spots")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def storages() -> None:
    storage = sky.Storage.r2("account", access_key=lambda: "key", secret_key="secret")
    assert_type(storage, sky.Storage)
    assert_type(storage.ls("bucket"), list[sky.ObjectEntry])
    assert_type(storage.upload("bucket", "folder", key="k"), int)
    assert_type(sky.Volume.parse("s3://b:/data"), sky.Volume)
    sky.Volume("b", "/data", storage=storage, mode="copy")
    sky.Volume("b", "/data", mode="stream")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sky.Storage.minio(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def groups(pool: sky.Compute) -> None:
    cpu, gpu = sky.Spec(vcpus=4, nodes=(0, 4)), sky.Spec(accelerator="T4", resources={"licence": 1}, idle_timeout=30)
    assert_type(gpu.resources, Mapping[str, float])
    assert_type(gpu.node_resources, Mapping[str, float])
    assert_type(gpu.node_capabilities, frozenset[str])
    sky.Compute(groups={"cpu": cpu, "gpu": [gpu, cpu]}, budget=20, policy="binpack", max_nodes=10)
    sky.Compute(capabilities={"fast"}, upscaling_speed=0.5, max_concurrent_launches=10)
    sky.Compute(groups=[cpu])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sky.Compute(policy=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sky.request_resources({"GPU": 1}, ({"CPU": 4}, 10), pool=pool)
    sky.request_resources(bundles=[{"GPU": 1}] * 4, pool=sky)
    sky.request_resources(pool=sky.sky)
    sky.request_resources("GPU")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def accelerators() -> None:
    assert_type(sky.accelerators.A100(count=4, memory="40GB"), sky.Accelerator)
    assert_type(sky.accelerators.RTX_4090(count=0.25), sky.Accelerator)
    assert_type(sky.accelerators.from_name("A100", count=2), sky.Accelerator)
    assert_type(sky.accelerators.Custom("Z1", memory="8GB"), sky.Accelerator)
    sky.accelerators.A100(memory="64GB")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sky.accelerators.A101()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def node_side(rows: list[int], labels: tuple[str, ...]) -> None:
    assert_type(sky.instance_info(), sky.InstanceInfo)
    assert_type(sky.shard(rows), list[int])
    assert_type(sky.shard(rows, labels, shuffle=True, seed=42), tuple[list[int], tuple[str, ...]])
    assert_type(sky.shard(rows, labels, rows, drop_last=True), tuple[list[int], tuple[str, ...], list[int]])
    assert_type(sky.shard(rows, node=0, total_nodes=2), list[int])
    assert_type(sky.is_head(sky.instance_info()), bool)


def names() -> None:
    _ = sky.nothing  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
