"""RunPod: REST v1 for pods, REST v2 for the catalogue, GraphQL for prices and the official SDK."""

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.openapi import Description
from tests.fakes.server import Answer, FakeServer, Request
from tests.machines.machine import Machine, Network

__all__ = ["KEY", "NO_CAPACITY", "FakeRunPod"]

KEY = "rpa_key_of_the_tests"

NO_CAPACITY = Answer(
    500, {"error": "create pod: There are no longer any instances available with the requested specifications.",
          "status": 500}
)  # fmt: skip  # one sentence

GPUS: tuple[dict[str, Any], ...] = (
    {"id": "NVIDIA A100 80GB PCIe", "name": "A100 PCIe", "memory": 80, "secure": 1.64, "community": 1.19, "most": 8,
     "spot": 0.82},
    {"id": "NVIDIA A100-SXM4-80GB", "name": "A100 SXM", "memory": 80, "secure": 1.89, "community": None, "most": 8,
     "spot": None},
    {"id": "NVIDIA GeForce RTX 4090", "name": "RTX 4090", "memory": 24, "secure": 0.69, "community": 0.34, "most": 4,
     "spot": 0.35},
)  # fmt: skip  # a table

_RUNPODCTL = """#!/bin/sh
exec /usr/bin/python3 -c "
import urllib.request
urllib.request.urlopen(urllib.request.Request('{url}/v1/pods/$3', method='DELETE',
    headers={{'Authorization': 'Bearer {key}'}}))
"
"""


@dataclass
class _Pod:
    id: str
    created: dict[str, Any]
    status: str = "RUNNING"
    polls: int = 0
    machine: Machine | None = None

    def shown(self, price: float) -> dict[str, Any]:
        body = self.created
        up = self.status == "RUNNING" and self.polls <= 0
        address = "" if not up else self.machine.address if self.machine is not None else "100.65.0.119"
        return {
            "id": self.id,
            "name": body["name"],
            "image": body["imageName"],
            "desiredStatus": self.status,
            "interruptible": body.get("interruptible", False),
            "env": body.get("env", {}),
            "ports": body.get("ports", []),
            "publicIp": address,
            "portMappings": {"22": 22 if self.machine is not None else 10341} if up else {},
            "costPerHr": price,
            "adjustedCostPerHr": price,
            "containerDiskInGb": body["containerDiskInGb"],
            "volumeInGb": body.get("volumeInGb", 20),
            "dockerStartCmd": body.get("dockerStartCmd", []),
        }


@dataclass
class FakeRunPod(FakeServer):
    """RunPod.

    Args:
        v1, v2: the published descriptions; each request and answer is checked against them.
        network: a network for the machines of pods, which run their start command; without, pods are data only.
        uv: program that machines have as uv.
        boots_after: listings after which a new pod has its public address.

    Attributes:
        wrong: violations of the descriptions so far.
        out_of_stock: types that cannot be rented.
        volumes: the network volumes of the account. Pods that attach one find an empty folder at its mount.
        places: data centers of each type of GPU that is not in all of them.
    """

    def __init__(
        self,
        v1: Description,
        v2: Description,
        *,
        network: Network | None = None,
        boots_after: int = 1,
        uv: Path | None = None,
    ) -> None:
        super().__init__(network.address if network is not None else "127.0.0.1")
        self.wrong: list[str] = []
        self.out_of_stock: set[str] = set()
        self.volumes: list[dict[str, Any]] = []
        self.places: dict[str, list[str]] = {}
        self._v1, self._v2 = v1, v2
        self._network = network
        self._uv = uv
        self._boots_after = boots_after
        self._pods: dict[str, _Pod] = {}

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        """The requests of all pods that exist, by id."""
        with self.frozen():
            return {id: pod.created for id, pod in self._pods.items() if pod.status != "TERMINATED"}

    def machine(self, id: str) -> Machine:
        """Return the machine of a pod."""
        machine = self._pods[id].machine
        assert machine is not None
        return machine

    def reclaim(self, id: str) -> None:
        """End a pod without notice, as RunPod ends interruptible pods."""
        with self.frozen():
            pod = self._pods[id]
            pod.status = "EXITED"
            if pod.machine is not None:
                pod.machine.kill()

    def handle(self, request: Request) -> Answer:
        """Carry out a request."""
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return Answer(401, {"title": "Unauthorized", "status": 401, "detail": "invalid API key"})
        if request.path == "/graphql":
            return self._graphql(request)
        published = self._v1 if request.path.startswith("/v1/") else self._v2
        path = request.path.removeprefix("/v1")
        answer = self._rest(request, path)
        try:
            published.check_request(request.method, path, request.query, request.body)
            published.check_answer(request.method, path, answer.status, answer.body)
        except AssertionError as error:
            self.wrong.append(f"{request.method} {request.path}: {error}")
        return answer

    def _rest(self, request: Request, path: str) -> Answer:
        match request.method, path:
            case "GET", "/v2/catalog/gpus":
                return Answer(200, {"gpus": [self._gpu(each) for each in GPUS]})
            case "GET", "/v2/catalog/cpus":
                return Answer(200, {"cpus": [_CPU]})
            case "GET", "/networkvolumes":
                return Answer(200, self.volumes)
            case "GET", "/pods":
                return Answer(200, [self._shown(pod) for pod in self._pods.values()])
            case "POST", "/pods":
                return self._create(request.body)
            case "DELETE", _ if found := re.fullmatch(r"/pods/(\w+)", path):
                return self._delete(found[1])
            case "GET", _ if found := re.fullmatch(r"/pods/(\w+)", path):
                pod = self._pods.get(found[1])
                return Answer(404, {"error": "pod not found"}) if pod is None else Answer(200, self._shown(pod))
            case _:
                return Answer(404, {"error": "no such path"})

    def _gpu(self, gpu: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": gpu["id"],
            "name": gpu["name"],
            "pool": None,
            "manufacturer": "NVIDIA",
            "memory": gpu["memory"],
            "secure": gpu["secure"] is not None,
            "community": gpu["community"] is not None,
            "price": {"secure": gpu["secure"] or 0, "community": gpu["community"] or 0},
            "maxCount": {"secure": gpu["most"], "community": 1 if gpu["community"] else 0},
            "availability": "NONE" if gpu["id"] in self.out_of_stock else "HIGH",
            **({"dataCenters": [_place(each) for each in self.places[gpu["id"]]]} if gpu["id"] in self.places else {}),
        }

    def _shown(self, pod: _Pod) -> dict[str, Any]:
        pod.polls -= 1
        return pod.shown(self._price(pod.created))

    def _price(self, body: dict[str, Any]) -> float:
        if body.get("computeType") == "CPU":
            return float(0.04 * body["vcpuCount"])
        (kind,) = body["gpuTypeIds"]
        gpu = next(each for each in GPUS if each["id"] == kind)
        one = gpu["spot"] if body.get("interruptible") else gpu[body.get("cloudType", "SECURE").lower()]
        return float(one * body.get("gpuCount", 1))

    def _create(self, body: dict[str, Any]) -> Answer:
        if set(body.get("gpuTypeIds", ())) & self.out_of_stock:
            return NO_CAPACITY
        if (volume := body.get("networkVolumeId")) is not None:
            places = [each["dataCenterId"] for each in self.volumes if each["id"] == volume]
            if not places:
                return Answer(400, {"error": "network volume not found"})
            if body.get("dataCenterIds") != places or body["cloudType"] != "SECURE":
                return NO_CAPACITY
        pod = _Pod(secrets.token_hex(7), body, polls=self._boots_after)
        self._pods[pod.id] = pod
        if self._network is not None:
            pod.machine = self._boot(pod)
        return Answer(201, pod.shown(self._price(body)))

    def _boot(self, pod: _Pod) -> Machine:
        """Start a machine whose first process is the pod's start command."""
        assert self._network is not None
        shell, option, script = pod.created["dockerStartCmd"]
        assert (shell, option) == ("sh", "-c")
        control = _RUNPODCTL.format(url=self.url, key=KEY)
        start = f"cat >/usr/local/bin/runpodctl <<'RUNPODCTL'\n{control}RUNPODCTL\n"
        start += "chmod +x /usr/local/bin/runpodctl\n"
        start += f"ln -s {self._uv} /usr/local/bin/uv\n" if self._uv is not None else ""
        if "networkVolumeId" in pod.created:
            start += f"mkdir -p {pod.created['volumeMountPath']}\n"
        start += script
        return self._network.add(start, {**pod.created["env"], "RUNPOD_POD_ID": pod.id})

    def _delete(self, id: str) -> Answer:
        pod = self._pods.get(id)
        if pod is None or pod.status == "TERMINATED":
            return Answer(404, {"error": "pod not found"})
        pod.status = "TERMINATED"
        del self._pods[id]
        if pod.machine is not None:
            pod.machine.kill()
        return Answer(204)

    def _graphql(self, request: Request) -> Answer:
        query = request.body["query"]
        if "gpuTypes" in query:
            return Answer(200, {"data": {"gpuTypes": [_priced(each) for each in GPUS]}})
        if found := re.search(r'podTerminate\(input: ?\{ ?podId: ?"(\w+)"', query):
            self._delete(found[1])
            return Answer(200, {"data": {"podTerminate": None}})
        if "myself" in query and "networkVolumes" in query:
            return Answer(200, {"data": {"myself": {"id": "user", "pubKey": "", "networkVolumes": self.volumes}}})
        if "myself" in query and "pods" in query:
            shown = [{"id": pod.id, "name": pod.created["name"], "desiredStatus": pod.status}
                     for pod in self._pods.values()]  # fmt: skip  # as a table
            return Answer(200, {"data": {"myself": {"pods": shown}}})
        return Answer(200, {"errors": [{"message": "Cannot query field"}]})


_CPU: dict[str, Any] = {
    "id": "cpu3c-2-4",
    "name": "Compute-Optimized",
    "group": "Gen 3",
    "vcpu": {"min": 2, "max": 32},
    "ramGbPerVcpu": 2,
    "price": {"securePerVcpu": 0.04, "serverlessPerVcpu": 0.03},
    "availability": "HIGH",
}


def _place(id: str) -> dict[str, Any]:
    return {"id": id, "name": id, "availability": "HIGH"}


def _priced(gpu: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": gpu["id"],
        "displayName": gpu["name"],
        "memoryInGb": gpu["memory"],
        "securePrice": gpu["secure"],
        "communityPrice": gpu["community"],
        "secureSpotPrice": gpu["spot"],
        "communitySpotPrice": None,
    }
