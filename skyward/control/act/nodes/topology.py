"""The topology of a pool, as the tasks of one of its nodes see it."""

import re
from collections.abc import Mapping

from skyward.control.act.nodes.node import Node
from skyward.specs import Spec, Worker
from skyward.task.instance import AcceleratorInfo, InstanceInfo, NetworkInfo, Peer

__all__ = ["accelerator_info", "topology"]


def topology(
    node: Node,
    nodes: Mapping[int, Node],
    total: int,
    *,
    spec: Spec,
    resources: Mapping[str, float],
    worker: Worker,
    job: str,
) -> str:
    """Return the value of `instance_info()` on `node`, as JSON.

    Args:
        node: the node that the value is for.
        nodes: nodes of the pool, by rank.
        total: number of nodes of the pool.
        spec: the node's spec.
        resources: resources that the node's spec or offer states; the others are those measured.
        worker: options of the workers.
        job: id of the cluster of the node's machine, at its provider.
    """
    has = {**node.measured, **resources}
    accelerator = accelerator_info(spec)
    accelerators = node.measured.get("GPU", 0) if accelerator is None else accelerator.count
    info = InstanceInfo(
        node=node.rank,
        total_nodes=total,
        workers_per_node=worker.concurrency if worker.resolved_executor == "process" else 1,
        vcpus=has.get("CPU", 0),
        memory_gb=has.get("memory", 0),
        accelerators=accelerators,
        total_accelerators=accelerators * total,
        head_addr=nodes.get(0, node).instance.address,
        job_id=job,
        peers=tuple(
            Peer(node=rank, private_ip=peer.instance.address, public_ip=peer.instance.public_address)
            for rank, peer in sorted(nodes.items())
        ),
        accelerator=accelerator,
        network=NetworkInfo(interface=node.instance.interface),
    )
    return info.to_json()


def accelerator_info(spec: Spec) -> AcceleratorInfo | None:
    """Return the accelerators of a node of `spec`; None if it has none."""
    accelerator = spec.accelerator
    if accelerator is None:
        return None
    size = re.fullmatch(r"(\d+(?:\.\d+)?)GB", accelerator.memory)
    return AcceleratorInfo(
        type=accelerator.name,
        count=accelerator.count,
        memory_gb=float(size[1]) if size else 0,
        is_trainium=accelerator.name.startswith("Trainium"),
    )
