"""ECS with Fargate: what moto lacks or does wrong, as far as a provider meets it, and faults.

Added: pairs of CPU and memory, at most ten tasks a call, capacity by market, states that take a few calls, tasks that
are not visible at once, reasons of stopped tasks, spot interruptions, public addresses, clusters that cannot be deleted
while they have tasks, and listings without what was stopped or deleted.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_api import state_manager

from tests.fakes.aws.forms import Answer, Request, error_answer

__all__ = ["NO_CAPACITY", "TaskShim"]

_PAIRS = {
    "256": (512, 1024, 2048),
    "512": tuple(range(1024, 4097, 1024)),
    "1024": tuple(range(2048, 8193, 1024)),
    "2048": tuple(range(4096, 16385, 1024)),
    "4096": tuple(range(8192, 30721, 1024)),
    "8192": tuple(range(16384, 61441, 4096)),
    "16384": tuple(range(32768, 122881, 8192)),
}
"""MiB by CPU units."""

NO_CAPACITY = "Capacity is unavailable at this time. Please try again later or in a different availability zone"
_OVERRIDES = 8192
_STARTING = ("PROVISIONING", "PENDING", "ACTIVATING")

type Moto = Callable[[dict[str, Any], bytes], Answer]


@dataclass
class _Life:
    """A task: its calls left until it is visible, its states to come, and why it was stopped."""

    task: Any
    region: str
    family: str
    market: str
    hidden: int
    states: list[str]
    stop_code: str = ""
    reason: str = ""
    state: str = "RUNNING"

    @property
    def now(self) -> str:
        return self.states[0] if self.states else self.state


@dataclass
class TaskShim:
    """The part of the shim for ECS.

    Attributes:
        moto: returns moto's answer to a body.
        failures: reason for which a launch fails, by market ("FARGATE", "FARGATE_SPOT") or "*".
        capacity: tasks left by market; any number without an entry.
        hidden_for: calls in which a new task is not visible yet.
        pending_for: descriptions in which a new task is still starting.
        lagging: listings of definitions that are still as if none had been deregistered.
        stopping_for: attempts at deleting a cluster that fail after its last task was stopped.
        address_of: starts the machine of a task, and returns its address; None for tasks without.
        has_ended: returns whether the first process of a task has ended.
        signal: announces the end to a task's first process; then it may go on, in "SpotInterruption" only.
    """

    moto: Moto
    failures: dict[str, str] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    hidden_for: int = 0
    pending_for: int = 0
    lagging: int = 0
    stopping_for: int = 0
    address_of: Callable[[Any, Mapping[str, str], str], str] | None = None
    has_ended: Callable[[str], bool] = field(default=lambda task: False)
    signal: Callable[[str, str], None] = field(default=lambda task, code: None)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything but the settings."""
        self.failures.clear()
        self.capacity.clear()
        self.hidden_for = self.pending_for = self.stopping_for = self.lagging = 0
        self._deregistered: list[str] = []
        self._lives: dict[str, _Life] = {}
        state_manager.set_transition("ecs::task", {"progression": "time", "seconds": 3600})

    def running(self, region: str) -> list[Any]:
        """Return moto's tasks that have not stopped."""
        self._let_end()
        return [each.task for each in self._lives.values() if each.region == region and each.state != "STOPPED"]

    def left(self, region: str) -> list[str]:
        """Return the tasks, definitions and clusters that exist."""
        backend = _ecs(region)
        return [
            *(each.task_arn for each in self.running(region)),
            *(each.arn for family in backend.task_definitions.values() for each in family.values()),
            *(each.name for each in backend.clusters.values() if each.status == "ACTIVE"),
        ]

    def users_of(self, group: str, region: str) -> list[Any]:
        """Return the tasks that use a security group."""
        return [
            each
            for each in self.running(region)
            if group in each.network_configuration["awsvpcConfiguration"]["securityGroups"]
        ]

    def interrupt(self, task: str) -> None:
        """Take a spot task back: its container goes on for a while."""
        self._stop(self._lives[task], "SpotInterruption", "Your Spot Task was interrupted.", "STOPPING")

    def fail_to_start(self, task: str, reason: str) -> None:
        """Let a task end before it runs."""
        self._stop(self._lives[task], "TaskFailedToStart", reason, "STOPPED")

    def answer(self, request: Request, environ: dict[str, Any], body: bytes) -> Answer:
        """Carry out a request."""
        self._let_end()
        own = getattr(self, f"_{request.action}", None)
        answer: Answer | None = own(request, environ) if own is not None else None
        return answer or self.moto(environ, body)

    def _stop(self, life: _Life, code: str, reason: str, state: str) -> None:
        life.states.clear()
        life.stop_code, life.reason, life.state = code, reason, state
        life.task.desired_status = "STOPPED"
        self.signal(life.task.id, code)
        if state == "STOPPED":
            self._release(life)

    def _release(self, life: _Life) -> None:
        life.state = "STOPPED"
        _ec2(life.region).enis.pop(_interface(life.task), None)

    def _let_end(self) -> None:
        for life in self._lives.values():
            if life.state != "STOPPED" and self.has_ended(life.task.id):
                life.stop_code = life.stop_code or "EssentialContainerExited"
                life.reason = life.reason or "Essential container in task exited"
                life.task.desired_status = "STOPPED"
                life.states.clear()
                self._release(life)

    def _CreateCluster(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        existing = _ecs(request.region).clusters.get(request.values["clusterName"])
        if existing is None or existing.status != "ACTIVE":
            return None
        described = self._asked(environ, {"clusters": [request.values["clusterName"]]}, "DescribeClusters")
        return _json({"cluster": described["clusters"][0]})

    def _DeleteCluster(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        cluster = _ecs(request.region).clusters.get(request.values["cluster"])
        if cluster is None or cluster.status != "ACTIVE":
            return error_answer(request, "ClusterNotFoundException", "Cluster not found.", 400)
        users = [each for each in self.running(request.region) if each.cluster_name == cluster.name]
        if users or (
            self.stopping_for and any(life.task.cluster_name == cluster.name for life in self._lives.values())
        ):
            self.stopping_for = max(0, self.stopping_for - (not users))
            message = "The Cluster cannot be deleted while Tasks are active."
            return error_answer(request, "ClusterContainsTasksException", message, 400)
        return None

    def _ListClusters(self, request: Request, environ: dict[str, Any]) -> Answer:
        active = [each.arn for each in _ecs(request.region).clusters.values() if each.status == "ACTIVE"]
        return _json({"clusterArns": active})

    def _RegisterTaskDefinition(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        values = dict(request.values)
        if int(values["memory"]) not in _PAIRS.get(values["cpu"], ()):
            message = (
                f"No Fargate configuration exists for given values: {values['cpu']} CPU, {values['memory']} memory."
            )
            return error_answer(request, "ClientException", message, 400)
        (container,) = values["containerDefinitions"]
        assert 0 <= container.get("stopTimeout", 30) <= 120
        sized = {**container, "cpu": int(values["cpu"]), "memory": int(values["memory"])}  # moto's launches need them
        return self.moto(environ, json.dumps({**values, "containerDefinitions": [sized]}).encode())

    def _DeregisterTaskDefinition(self, request: Request, environ: dict[str, Any]) -> None:
        self._deregistered.append(request.values["taskDefinition"])

    def _ListTaskDefinitionFamilies(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        if not (self.lagging and self._deregistered):
            return None
        return _json({"families": sorted({arn.rpartition("/")[2].partition(":")[0] for arn in self._deregistered})})

    def _ListTaskDefinitions(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        if not (self.lagging and self._deregistered):
            return None
        self.lagging -= 1
        active = self._deregistered if request.values["status"] == "ACTIVE" else []
        family = f"/{request.values['familyPrefix']}:"
        return _json({"taskDefinitionArns": [each for each in active if family in each]})

    def _RunTask(self, request: Request, environ: dict[str, Any]) -> Answer:
        values = dict(request.values)
        count = values.get("count", 1)
        cluster = _ecs(request.region).clusters.get(values["cluster"])
        if cluster is None or cluster.status != "ACTIVE":
            return error_answer(request, "ClusterNotFoundException", "Cluster not found.", 400)
        if not 1 <= count <= 10:
            return error_answer(request, "InvalidParameterException", "count must be between 1 and 10", 400)
        assert len(json.dumps(values.get("overrides", {}))) <= _OVERRIDES
        strategy = values.get("capacityProviderStrategy")
        market = strategy[0]["capacityProvider"] if strategy else values["launchType"]
        if strategy and market not in (cluster.capacity_providers or ()):
            message = f"The specified capacity provider '{market}' was not found. Specify a valid name."
            return error_answer(request, "InvalidParameterException", message, 400)
        free = min(count, self.capacity.get(market, count))
        if reason := self.failures.get(market, self.failures.get("*", "")):
            free = 0
        failures = [{"arn": cluster.arn, "reason": reason or NO_CAPACITY}] * (count - free)
        if not free:
            return _json({"tasks": [], "failures": failures})
        if market in self.capacity:
            self.capacity[market] -= free
        answer = self.moto(environ, json.dumps({**values, "count": free}).encode())
        if answer.status != 200:
            return answer
        tasks = json.loads(answer.body)["tasks"]
        for each in tasks:
            self._born(request, each["taskArn"], market)
        return _json({"tasks": [self._shown(each) for each in tasks], "failures": failures})

    def _born(self, request: Request, arn: str, market: str) -> None:
        (task,) = [
            each for some in _ecs(request.region).tasks.values() for each in some.values() if each.task_arn == arn
        ]
        family = task.task_definition_arn.rpartition("/")[2].rpartition(":")[0]
        states = [_STARTING[min(number, 2)] for number in range(self.pending_for)]
        self._lives[task.id] = _Life(task, request.region, family, market, self.hidden_for, states)
        network = request.values["networkConfiguration"]["awsvpcConfiguration"]
        interface = _ec2(request.region).enis[_interface(task)]
        (override,) = request.values["overrides"]["containerOverrides"]
        variables = {each["name"]: each["value"] for each in override["environment"]}
        revision = int(task.task_definition_arn.rpartition(":")[2])
        (container,) = _ecs(request.region).task_definitions[family][revision].container_definitions
        if self.address_of is not None:
            address = self.address_of(task, variables, container["command"][0])
            interface.private_ip_address = address
            for each in task.attachments[0]["details"]:
                if each["name"] == "privateIPv4Address":
                    each["value"] = address
        else:
            address = f"198.51.100.{len(self._lives) % 250 + 1}"
        if network["assignPublicIp"] == "ENABLED":
            interface.public_ip = address

    def _ListTasks(self, request: Request, environ: dict[str, Any]) -> Answer:
        values = request.values
        cluster = _ecs(request.region).clusters.get(values["cluster"])
        if cluster is None or cluster.status != "ACTIVE":
            return error_answer(request, "ClusterNotFoundException", "Cluster not found.", 400)
        if "startedBy" in values and len(values) > 2:
            return error_answer(request, "InvalidParameterException", "startedBy must be the only filter.", 400)
        wanted = values.get("desiredStatus", "RUNNING")
        arns = [
            life.task.task_arn
            for life in self._lives.values()
            if life.region == request.region
            and life.task.cluster_name == cluster.name
            and life.task.desired_status == wanted
            and not life.hidden
            and values.get("family", life.family) == life.family
            and values.get("startedBy", life.task.started_by) == life.task.started_by
        ]
        return _json({"taskArns": arns})

    def _DescribeTasks(self, request: Request, environ: dict[str, Any]) -> Answer:
        asked = [each.rpartition("/")[2] for each in request.values["tasks"]]
        cluster = _ecs(request.region).clusters.get(request.values["cluster"])
        if cluster is None:
            return error_answer(request, "ClusterNotFoundException", "Cluster not found.", 400)
        if not 0 < len(asked) <= 100:
            return error_answer(request, "InvalidParameterException", "Tasks cannot be empty.", 400)
        found = []
        for id in asked:
            life = self._lives.get(id)
            if life is not None and life.hidden:
                life.hidden -= 1
            elif life is not None and life.task.cluster_name == cluster.name:
                found.append(id)
        missing = [{"arn": each, "reason": "MISSING"} for each in asked if each not in found]
        if not found:
            return _json({"tasks": [], "failures": missing})
        answer = json.loads(self.moto(environ, json.dumps({**request.values, "tasks": found}).encode()).body)
        shown = [self._shown(each) for each in answer["tasks"]]
        for id in found:
            if self._lives[id].states:
                self._lives[id].states.pop(0)
        return _json({"tasks": shown, "failures": missing})

    def _shown(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return moto's description of a task as ECS has it."""
        life = self._lives[task["taskArn"].rpartition("/")[2]]
        shown = {**task, "lastStatus": life.now, "desiredStatus": life.task.desired_status}
        if life.market == "FARGATE_SPOT":
            shown["capacityProviderName"] = life.market
        if life.stop_code:
            shown |= {"stopCode": life.stop_code, "stoppedReason": life.reason}
        if life.now == "PROVISIONING":
            shown["attachments"] = []
        return shown

    def _StopTask(self, request: Request, environ: dict[str, Any]) -> Answer:
        life = self._lives.get(request.values["task"].rpartition("/")[2])
        cluster = _ecs(request.region).clusters.get(request.values["cluster"])
        if cluster is None or cluster.status != "ACTIVE":
            return error_answer(request, "ClusterNotFoundException", "Cluster not found.", 400)
        hidden = life is not None and life.hidden > 0
        if life is not None and hidden:
            life.hidden -= 1
        if life is None or hidden or life.task.cluster_name != cluster.name:
            return error_answer(request, "InvalidParameterException", "The referenced task was not found.", 400)
        if life.state != "STOPPED":
            self._stop(life, life.stop_code or "UserInitiated", request.values.get("reason", ""), "STOPPED")
        return _json({"task": {"taskArn": life.task.task_arn, "desiredStatus": "STOPPED"}})

    def _asked(self, environ: dict[str, Any], values: dict[str, Any], action: str) -> Any:
        """Return moto's answer to another call."""
        target = environ["HTTP_X_AMZ_TARGET"].rpartition(".")[0]
        answer = self.moto({**environ, "HTTP_X_AMZ_TARGET": f"{target}.{action}"}, json.dumps(values).encode())
        return json.loads(answer.body)


def _json(values: Mapping[str, Any]) -> Answer:
    return Answer(200, "application/x-amz-json-1.1", json.dumps(values).encode())


def _interface(task: Any) -> str:
    (interface,) = [each["value"] for each in task.attachments[0]["details"] if each["name"] == "networkInterfaceId"]
    return str(interface)


def _ecs(region: str) -> Any:
    return get_backend("ecs")[DEFAULT_ACCOUNT_ID][region]


def _ec2(region: str) -> Any:
    return get_backend("ec2")[DEFAULT_ACCOUNT_ID][region]
