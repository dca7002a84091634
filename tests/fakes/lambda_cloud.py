"""A fake of the Lambda Cloud API 1.10.0 (the GPU cloud).

Each request and each answer is validated against the models of `lambda-ai-cloud-api-client`, which are generated from
the vendor's description, and against the lengths and patterns of that description, which is in the public repository
api-evangelist/lambda-labs.
"""

import itertools
import re
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.fakes.server import Answer, FakeServer, Request
from tests.fakes.vendor_models import VendorModels

if TYPE_CHECKING:
    from tests.fakes.booted import Booted

__all__ = ["KEY", "FakeLambda"]

KEY = "secret_tests_0123456789abcdef.QWERTY"
"""The API key that the fake accepts."""

_REGIONS = {"us-west-1": "California, USA", "us-east-1": "Virginia, USA", "us-south-1": "Texas, USA"}

type _Handler = Callable[[Request, str], Answer]


class FakeLambda(FakeServer):
    """The fake.

    Attributes:
        types: instance types by name.
        stock: machines left by type and region; a region without stock is not listed.
        quota: number of instances that the account may have.
        polls_to_boot, polls_to_appear, polls_to_go: number of times that an instance is listed, or could be, before it
            is active, before it is visible, and after its termination.
        without_ip: True if active instances have no address.
        booted: the machines that its instances are; None for instances that are data only.
        wrong: differences of requests and answers from the models.
    """

    def __init__(self, models: VendorModels) -> None:
        super().__init__()
        self._models = models
        self.types = dict(_types())
        self.stock = {(name, region): 100 for name in self.types for region in ("us-west-1", "us-east-1")}
        self.stock["gpu_8x_h100_sxm5", "us-west-1"] = 0
        self.quota = 100
        self.polls_to_boot = 1
        self.polls_to_appear = 0
        self.polls_to_go = 1
        self.without_ip = False
        self.instances: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.rulesets: dict[str, dict[str, Any]] = {}
        self.user_data: dict[str, str] = {}
        self.booted: Booted | None = None
        self.wrong: list[str] = []
        self._polls: dict[str, int] = {}
        self._addresses: dict[str, str] = {}
        self._numbers = itertools.count(10)

    @property
    def left(self) -> list[str]:
        """Names of the instances, keys and rulesets that the account has."""
        alive = [each["name"] for each in self.instances.values() if each["status"] not in _GONE]
        return [
            *alive,
            *(key["name"] for key in self.keys.values()),
            *(each["name"] for each in self.rulesets.values()),
        ]

    def end(self, instance: str, status: str) -> None:
        """Change the status of an instance, as the cloud does."""
        self.instances[instance]["status"] = status

    def handle(self, request: Request) -> Answer:
        """Carry out a request."""
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return self._checked(request, _error(401, "global/invalid-api-key"), "ListInstancesResponse")
        for method, pattern, handler, asked, answers in self._routes():
            found = re.fullmatch(pattern, request.path)
            if found is None or method != request.method:
                continue
            wrong = self._differences(asked, request.body)
            if wrong:
                self.wrong += [f"{request.method} {request.path}: {each}" for each in wrong]
                answer = _error(400, "global/invalid-parameters")
            else:
                answer = handler(request, found[1] if found.groups() else "")
            return self._checked(request, answer, answers)
        return _error(404, "global/not-found")

    def _checked(self, request: Request, answer: Answer, model: str) -> Answer:
        found = self._models.differences(f"{model}{answer.status}", answer.body)
        self.wrong += [f"answer to {request.method} {request.path}: {each}" for each in found]
        return answer

    def _differences(self, model: str, body: Any) -> list[str]:
        if not model:
            return ["it has a body"] if body is not None else []
        return self._models.differences(model, body) or list(_mismatches(model, body))

    def _routes(self) -> Iterator[tuple[str, str, _Handler, str, str]]:
        yield "GET", "/api/v1/instance-types", self._list_types, "", "ListInstanceTypesResponse"
        yield "GET", "/api/v1/instances", self._list, "", "ListInstancesResponse"
        yield "GET", "/api/v1/instances/([^/]+)", self._get, "", "GetInstanceResponse"
        launch = "/api/v1/instance-operations/launch"
        yield "POST", launch, self._launch, "InstanceLaunchRequest", "LaunchInstanceResponse"
        terminate = "/api/v1/instance-operations/terminate"
        yield "POST", terminate, self._terminate, "InstanceTerminateRequest", "TerminateInstanceResponse"
        yield "GET", "/api/v1/ssh-keys", self._list_keys, "", "ListSSHKeysResponse"
        yield "POST", "/api/v1/ssh-keys", self._add_key, "AddSSHKeyRequest", "AddSSHKeyResponse"
        yield "DELETE", "/api/v1/ssh-keys/([^/]+)", self._delete_key, "", "DeleteSSHKeyResponse"
        rulesets = "/api/v1/firewall-rulesets"
        yield "GET", rulesets, self._list_rulesets, "", "FirewallRulesetsListResponse"
        yield "POST", rulesets, self._add_ruleset, "FirewallRulesetCreateRequest", "CreateFirewallRulesetResponse"
        yield "DELETE", f"{rulesets}/([^/]+)", self._delete_ruleset, "", "DeleteFirewallRulesetResponse"

    def _list_types(self, request: Request, _: str) -> Answer:
        return _data({
            name: {
                "instance_type": kind,
                "regions_with_capacity_available": [
                    _region(region) for (of, region), left in self.stock.items() if of == name and left
                ],
            }
            for name, kind in self.types.items()
        })  # fmt: skip  # one row a type

    def _list(self, request: Request, _: str) -> Answer:
        for id in list(self.instances):
            self._age(id)
        return _data([each for id, each in self.instances.items() if self._is_listed(id)])

    def _get(self, request: Request, id: str) -> Answer:
        if id in self.instances:
            self._age(id)
        if id not in self.instances or not self._is_visible(id):
            return _error(404, "global/object-does-not-exist")
        return _data(self.instances[id])

    def _is_visible(self, id: str) -> bool:
        return self._polls[id] > self.polls_to_appear

    def _is_listed(self, id: str) -> bool:
        return self._is_visible(id) and self.instances[id]["status"] not in ("terminated", "preempted")

    def _age(self, id: str) -> None:
        instance = self.instances[id]
        self._polls[id] += 1
        if instance["status"] == "booting" and self._polls[id] > self.polls_to_boot + self.polls_to_appear:
            number = next(self._numbers)
            public = self._addresses[id] or f"198.51.100.{number}"
            private = self._addresses[id] or f"10.19.60.{number}"
            addresses = {} if self.without_ip else {"ip": public, "private_ip": private}
            token = secrets.token_hex(16)
            instance |= addresses | {"status": "active", "hostname": f"host-{number}", "jupyter_token": token}
            instance["jupyter_url"] = f"https://jupyter-{id}.lambdaspaces.com/?token={token}"
        elif instance["status"] == "terminating" and self._polls[id] > self.polls_to_go:
            instance["status"] = "terminated"

    def _launch(self, request: Request, _: str) -> Answer:
        asked = request.body
        kind, region = asked["instance_type_name"], asked["region_name"]
        keys = {key["name"] for key in self.keys.values()}
        rulesets = [each["id"] for each in asked.get("firewall_rulesets", ())]
        unknown = [name for name in asked["ssh_key_names"] if name not in keys]
        unknown += [id for id in rulesets if id not in self.rulesets or self.rulesets[id]["region"]["name"] != region]
        if kind not in self.types or unknown:
            return _error(404, "global/object-does-not-exist")
        alive = [each for each in self.instances.values() if each["status"] not in _GONE]
        if len(alive) >= self.quota:
            return _error(400, "global/quota-exceeded")
        if not self.stock.get((kind, region)):
            code = "instance-operations/launch/insufficient-capacity"
            return _error(400, code)
        self.stock[kind, region] -= 1
        id = secrets.token_hex(16)
        address = self.booted.boot(id, asked["user_data"]) if self.booted is not None else ""
        actions = {name: {"available": True} for name in ("migrate", "rebuild", "restart", "cold_reboot", "terminate")}
        self.instances[id] = {
            "id": id,
            "name": asked.get("name", ""),
            "status": "booting",
            "ssh_key_names": asked["ssh_key_names"],
            "file_system_names": [],
            "region": _region(region),
            "instance_type": self.types[kind],
            "actions": actions,
            "tags": asked.get("tags", []),
            "firewall_rulesets": asked.get("firewall_rulesets", []),
        }
        self._addresses[id] = address
        self._polls[id] = 0
        self.user_data[id] = asked.get("user_data", "")
        for ruleset in rulesets:
            self.rulesets[ruleset]["instance_ids"].append(id)
        return _data({"instance_ids": [id]})

    def _terminate(self, request: Request, _: str) -> Answer:
        ids = request.body["instance_ids"]
        if any(id not in self.instances or self.instances[id]["status"] == "terminated" for id in ids):
            return _error(404, "global/object-does-not-exist")
        for id in ids:
            if self.booted is not None:
                self.booted.end(id)
            self.instances[id]["status"] = "terminating"
            self._polls[id] = 0
        return _data({"terminated_instances": [self.instances[id] for id in ids]})

    def _list_keys(self, request: Request, _: str) -> Answer:
        return _data(list(self.keys.values()))

    def _add_key(self, request: Request, _: str) -> Answer:
        if any(key["name"] == request.body["name"] for key in self.keys.values()):
            return _error(400, "global/invalid-parameters")
        key = {"id": secrets.token_hex(16), **request.body}
        self.keys[key["id"]] = key
        return _data(key)

    def _delete_key(self, request: Request, id: str) -> Answer:
        if self.keys.pop(id, None) is None:
            return _error(400, "global/invalid-parameters")
        return _data({})

    def _list_rulesets(self, request: Request, _: str) -> Answer:
        return _data(list(self.rulesets.values()))

    def _add_ruleset(self, request: Request, _: str) -> Answer:
        body = request.body
        ruleset = {
            "id": secrets.token_hex(16),
            "name": body["name"],
            "region": _region(body["region"]),
            "rules": body["rules"],
            "created": datetime.now(UTC).isoformat(),
            "instance_ids": [],
        }
        self.rulesets[ruleset["id"]] = ruleset
        return _data(ruleset)

    def _delete_ruleset(self, request: Request, id: str) -> Answer:
        if id not in self.rulesets:
            missing = "global/object-does-not-exist"
            return _error(404, missing)
        if any(self.instances[each]["status"] != "terminated" for each in self.rulesets[id]["instance_ids"]):
            for each in self.rulesets[id]["instance_ids"]:
                self._age(each)
            in_use = "firewall-rulesets/firewall-ruleset-in-use"
            return _error(400, in_use)
        del self.rulesets[id]
        return _data({})


_GONE = ("terminating", "terminated", "preempted")


def _data(data: object) -> Answer:
    return Answer(200, {"data": data})


def _error(status: int, code: str) -> Answer:
    return Answer(status, {"error": {"code": code, "message": "It was refused.", "suggestion": "Ask support."}})


def _region(name: str) -> dict[str, str]:
    return {"name": name, "description": _REGIONS[name]}


def _types() -> Iterator[tuple[str, dict[str, Any]]]:
    rows = (
        ("gpu_1x_a10", 1, "A10 (24 GB PCIe)", 75, 30, 200, 1400),
        ("gpu_1x_gh200", 1, "GH200 (96 GB)", 149, 64, 432, 4096),
        ("gpu_8x_a100_80gb_sxm4", 8, "A100 (80 GB SXM4)", 1432, 240, 1800, 19968),
        ("gpu_8x_h100_sxm5", 8, "H100 (80 GB SXM5)", 2392, 208, 1800, 24780),
        ("cpu_4x_general", 0, "N/A", 12, 4, 16, 512),
    )
    for name, gpus, gpu, cents, vcpus, memory, storage in rows:
        specs = {"vcpus": vcpus, "memory_gib": memory, "storage_gib": storage, "gpus": gpus}
        yield (
            name,
            {
                "name": name,
                "description": f"{gpus}x {gpu}",
                "gpu_description": gpu,
                "price_cents_per_hour": cents,
                "specs": specs,
            },
        )


_TEXTS = {
    "InstanceLaunchRequest": {"name": r".{0,64}", "hostname": r"[a-z0-9][0-9a-z-]{0,62}"},
    "AddSSHKeyRequest": {"name": r".{1,64}", "public_key": r".{1,4096}"},
    "FirewallRulesetCreateRequest": {"name": r".{0,64}"},
}
_ITEMS = {
    "tags": {"key": r"[a-z][a-z0-9-:]{1,54}", "value": r".{0,128}"},
    "rules": {"description": r".{0,128}", "source_network": r"\d+\.\d+\.\d+\.\d+(/\d+)?"},
}
"""Patterns and lengths of the description, which the models have not."""


def _mismatches(model: str, body: dict[str, Any]) -> Iterator[str]:
    yield from _unlike(_TEXTS.get(model, {}), body, "$")
    for name, patterns in _ITEMS.items():
        for each in body.get(name, ()):
            yield from _unlike(patterns, each, f"$.{name}")
    if model == "InstanceLaunchRequest":
        if len(body["ssh_key_names"]) != 1:
            yield "$.ssh_key_names must have one name"
        if len(body.get("user_data", "").encode()) > 10**6:
            yield "$.user_data is over 1 MB"
    for rule in body.get("rules", ()):
        ports = rule.get("port_range")
        if (ports is None) != (rule["protocol"] == "icmp") or (ports and (len(ports) != 2 or ports[0] > ports[1])):
            yield "$.rules.port_range must be two ports, and is not allowed for icmp"


def _unlike(patterns: dict[str, str], body: dict[str, Any], where: str) -> Iterator[str]:
    for name, pattern in patterns.items():
        if name in body and not re.fullmatch(pattern, body[name]):
            yield f"{where}.{name} is {body[name]!r}, which does not match {pattern}"
