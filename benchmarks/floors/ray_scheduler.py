"""The scheduler of Ray's autoscaler v2 on our nodes and demands; needs PyPI `ray` >= 2.60."""

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["RayScheduler"]


class RayScheduler:
    """Plans a cluster of free, running nodes.

    Args:
        types: resources of each node type.
        nodes: the type of every node.
    """

    def __init__(self, types: Mapping[str, Mapping[str, float]], nodes: Sequence[str]) -> None:
        config = import_module("ray.autoscaler.v2.instance_manager.config")
        schema = import_module("ray.autoscaler.v2.schema")
        cluster = import_module("ray.core.generated.autoscaler_pb2")
        manager = import_module("ray.core.generated.instance_manager_pb2")
        self._configs = {
            name: config.NodeTypeConfig(
                name=name, min_worker_nodes=0, max_worker_nodes=10_000, resources=dict(owned), launch_config_hash="h"
            )
            for name, owned in types.items()
        }
        self._instances = [
            schema.AutoscalerInstance(
                cloud_instance_id=f"c{number}",
                ray_node=cluster.NodeState(
                    node_id=f"r{number}".encode(),
                    ray_node_type_name=kind,
                    available_resources=types[kind],
                    total_resources=types[kind],
                    idle_duration_ms=0,
                    status=cluster.NodeStatus.RUNNING,
                ),
                im_instance=manager.Instance(
                    instance_type=kind,
                    status=manager.Instance.RAY_RUNNING,
                    instance_id=f"i{number}",
                    launch_config_hash="h",
                    node_kind=manager.NodeKind.WORKER,
                ),
            )
            for number, kind in enumerate(nodes)
        ]

    def plan(self, demands: Sequence[Mapping[str, float]]) -> tuple[dict[str, int], float]:
        """Return the nodes to launch by type, and the seconds that the decision took."""
        scheduling = import_module("ray.autoscaler.v2.scheduler")
        requests = import_module("ray.autoscaler.v2.utils").ResourceRequestUtil
        events = import_module("ray.autoscaler.v2.event_logger").AutoscalerEventLogger(_Silent())
        request = scheduling.SchedulingRequest(
            node_type_configs=self._configs,
            resource_requests=requests.group_by_count([requests.make(dict(demand)) for demand in demands]),
            current_instances=self._instances,
            max_num_nodes=None,
            idle_timeout_s=None,
            disable_launch_config_check=True,
        )
        scheduler = scheduling.ResourceDemandScheduler(events)
        start = time.perf_counter()
        reply = scheduler.schedule(request)
        took = time.perf_counter() - start
        return {launch.instance_type: launch.count for launch in reply.to_launch}, took


class _Silent:
    """A logger of events that keeps none."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_kwargs: None
