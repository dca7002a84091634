"""Google Cloud on 127.0.0.1: Compute Engine, the Cloud Billing catalogue, Resource Manager's permissions, and OAuth.

Every request and every answer is checked against Google's own discovery documents; a request that they do not allow is
answered with 400 and the field's name, and a wrong answer of the fake fails its test. Operations go PENDING, RUNNING,
DONE, one step each time that anything of the project is read; `FakeGoogleCloud.failures` lets them fail.
"""

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.fakes.discovery import Call, Discovery, discovery
from tests.fakes.gcp_catalogue import ACCELERATORS, IMAGES, MACHINES, ZONES, skus
from tests.fakes.server import Answer, FakeServer, Request

__all__ = ["PROJECT", "Failure", "FakeGoogleCloud", "Machine", "refusal"]

PROJECT = "moonlit-sky-1234"
_ROBOT = f"robot@{PROJECT}.iam.gserviceaccount.com"
_AUDIENCE = "https://oauth2.googleapis.com/token"

_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_TERM = re.compile(r"""\(?\s*([a-zA-Z.\-_]+)\s*(!=|=|eq)\s*"?([^")\s]*)"?\s*\)?""")
_WHEN = "2026-11-23T08:00:00.000-08:00"


def refusal(status: int, reason: str, message: str, *, detail: str = "", retry_after: str = "") -> Answer:
    """Return an error as the API answers with it."""
    errors = [{"message": message, "domain": "global", "reason": reason}]
    error: dict[str, Any] = {"code": status, "message": message, "errors": errors}
    if detail:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        error["details"] = [{"@type": kind, "reason": detail, "domain": "googleapis.com"}]
    return Answer(status, {"error": error}, {"retry-after": retry_after} if retry_after else {})


class _RefusedError(Exception):
    """The request is answered with an error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.answer = refusal(status, reason, message)


@dataclass
class Failure:
    """An operation that fails after it was accepted.

    Attributes:
        code: such as "ZONE_RESOURCE_POOL_EXHAUSTED".
        message: its text.
        status: HTTP status in the operation.
        details: its `errorDetails`.
        times: number of operations it happens to.
        zone: only in this zone; "" for any.
        stays: True if the machine stays, as STOPPING, until it is looked at three times.
    """

    code: str
    message: str = "It failed."
    status: int = 400
    details: list[dict[str, Any]] = field(default_factory=list)
    times: int = 1
    zone: str = ""
    stays: bool = False


@dataclass
class Machine:
    """A machine.

    Attributes:
        resource: what the API says about it.
        hidden: number of reads that do not see it yet.
        looks: number of reads until it is gone; None if it stays.
    """

    resource: dict[str, Any]
    hidden: int = 0
    looks: int | None = None


@dataclass
class _Operation:
    resource: dict[str, Any]
    done: Callable[[dict[str, Any]], None]
    steps: int


class FakeGoogleCloud(FakeServer):
    """One project.

    Attributes:
        failures: what goes wrong with the next inserts, after they were accepted.
        machines: by zone and name.
        firewalls: by name.
        images: by name.
        calls: every request that was understood, in order.
        wrong: what the fake answered against the descriptions.
        steps: number of reads until an operation is done.
        hidden: number of reads that do not see a new machine.
        granted: the permissions that the caller has; None for all.
        os_login: True if a policy of the organisation forces OS Login.
        addresses: returns the internal and the external address of a new machine.
        page: number of items of a page.
        tokens: access tokens that are valid.
        rules_fail: True if firewall rules are accepted, and refused then.
        quotas: limit and usage of quotas of every region.
        history: spot price and preemption rate by zone, for `advice.capacityHistory`.
    """

    def __init__(self) -> None:
        self._apis = [discovery(name) for name in ("compute.v1", "cloudbilling.v1", "cloudresourcemanager.v1")]
        super().__init__()
        self.failures: list[Failure] = []
        self.machines: dict[tuple[str, str], Machine] = {}
        self.firewalls: dict[str, dict[str, Any]] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self.calls: list[Call] = []
        self.wrong: list[str] = []
        self.steps = 2
        self.hidden = 0
        self.granted: set[str] | None = None
        self.os_login = False
        self.rules_fail = False
        self.addresses: Callable[[], tuple[str, str]] = self._next_addresses
        self.page = 500
        self.tokens: set[str] = set()
        self.quotas: dict[str, tuple[float, float]] = {}
        self.history: dict[str, tuple[float, float]] = {}
        self.key = _key()
        self._operations: dict[str, _Operation] = {}
        self._requests: dict[str, str] = {}
        self._count = 0

    @property
    def service_account(self) -> dict[str, str]:
        """The content of a service account's key file, whose tokens this fake gives out."""
        private = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "1",
            "private_key": private.decode(),
            "client_email": _ROBOT,
            "client_id": "1",
            "token_uri": f"{self.url}/token",
        }

    def machine(self, name: str) -> dict[str, Any]:
        """Return the resource of the only machine called `name`."""
        (found,) = (each.resource for (_, other), each in self.machines.items() if other == name)
        return found

    def sent(self, method: str) -> list[Call]:
        """Return the requests of a method."""
        return [call for call in self.calls if call.method == method]

    def power_off(self, name: str) -> None:
        """Shut a machine down from inside: it stays, and so does its disk."""
        self.machine(name)["status"] = "TERMINATED"

    def preempt(self, name: str) -> None:
        """Take a spot machine back."""
        resource = self.machine(name)
        resource["status"] = "STOPPING"
        if resource["scheduling"].get("instanceTerminationAction") == "DELETE":
            next(each for each in self.machines.values() if each.resource is resource).looks = 1

    def _next_addresses(self) -> tuple[str, str]:
        return f"10.128.0.{self._count % 250 + 2}", f"203.0.113.{self._count % 250 + 2}"

    # Requests

    def handle(self, request: Request) -> Answer:
        """Carry out a request."""
        try:
            if request.path == "/token":
                return self._token(request.body)
            for api in self._apis:
                understood = api.understand(request.method, unquote(request.path), request.query, request.body)
                if understood is not None:
                    return self._carried_out(api, *understood, request.headers.get("authorization", ""))
        except _RefusedError as error:
            return error.answer
        return refusal(404, "notFound", f"Not found: {request.method} {request.path}")

    def _carried_out(self, api: Discovery, call: Call, mistakes: list[str], token: str) -> Answer:
        self.calls.append(call)
        if token.removeprefix("Bearer ") not in self.tokens:
            raise _RefusedError(401, "authError", "Request had invalid authentication credentials.")
        if mistakes:
            raise _RefusedError(400, "invalid", f"Invalid value: {'; '.join(mistakes)}")
        if call.path.get("project", PROJECT) not in (PROJECT, *(project for project, _ in IMAGES)):
            raise _RefusedError(403, "forbidden", f"Required permission for {call.path['project']!r}")
        answer = self._handlers()[call.method](call)
        self.wrong += api.mistakes_of_answer(call.method, answer)
        return Answer(200, json.loads(json.dumps(answer)))

    def _handlers(self) -> Mapping[str, Callable[[Call], Any]]:
        return {
            "compute.projects.get": lambda call: {"kind": "compute#project", "name": PROJECT, "id": "1"},
            "compute.zones.list": self._list_zones,
            "compute.machineTypes.list": self._list_machine_types,
            "compute.acceleratorTypes.list": self._list_accelerators,
            "compute.images.getFromFamily": self._image,
            "compute.images.insert": self._insert_image,
            "compute.images.list": self._list_images,
            "compute.images.delete": self._delete_image,
            "compute.instances.stop": self._stop,
            "compute.instances.insert": self._insert,
            "compute.instances.get": self._get,
            "compute.instances.delete": self._delete,
            "compute.instances.list": self._list_instances,
            "compute.instances.aggregatedList": self._aggregate,
            "compute.firewalls.insert": self._insert_firewall,
            "compute.firewalls.get": self._get_firewall,
            "compute.firewalls.patch": self._patch_firewall,
            "compute.firewalls.delete": self._delete_firewall,
            "compute.firewalls.list": self._list_firewalls,
            "compute.regions.get": self._region,
            "compute.zoneOperations.list": self._list_operations,
            "compute.globalOperations.list": self._list_operations,
            "compute.zoneOperations.get": self._operation,
            "compute.zoneOperations.wait": self._operation,
            "compute.globalOperations.get": self._operation,
            "compute.globalOperations.wait": self._operation,
            "compute.advice.capacityHistory": self._capacity_history,
            "cloudbilling.services.skus.list": self._list_skus,
            "cloudresourcemanager.projects.testIamPermissions": self._permissions,
        }

    def _paged(self, call: Call, key: str, items: list[Any], **more: Any) -> dict[str, Any]:
        start = int(call.query.get("pageToken", "0"))
        size = min(self.page, int(call.query.get("maxResults", call.query.get("pageSize", "500"))) or 500)
        answer = {key: items[start : start + size], **more}
        if start + size < len(items):
            answer["nextPageToken"] = str(start + size)
        return answer

    def _operate(
        self, call: Call, kind: str, target: str, done: Callable[[dict[str, Any]], None] = lambda operation: None
    ) -> dict[str, Any]:
        """Return a new operation, at whose end `done` is called with it."""
        self._count += 1
        name = f"operation-{self._count}-{hashlib.sha256(target.encode()).hexdigest()[:8]}"
        zone = call.path.get("zone")
        where = f"zones/{zone}" if zone else "global"
        resource = {
            "kind": "compute#operation",
            "id": str(self._count),
            "name": name,
            "operationType": kind,
            "targetLink": self._link(f"{where}/{target}"),
            "status": "PENDING",
            "progress": 0,
            "user": _ROBOT,
            "insertTime": _WHEN,
            "selfLink": self._link(f"{where}/operations/{name}"),
        }
        if zone:
            resource["zone"] = self._link(f"zones/{zone}")
        self._operations[name] = _Operation(resource, done, self.steps)
        if self.steps == 0:
            self._step()
        return resource

    def _step(self) -> None:
        """Let every operation go on: something was read."""
        for operation in self._operations.values():
            if operation.resource["status"] == "DONE":
                continue
            operation.steps -= 1
            operation.resource["status"] = "RUNNING"
            if operation.steps <= 0:
                operation.resource |= {"status": "DONE", "progress": 100, "endTime": _WHEN}
                operation.done(operation.resource)

    def _once(self, call: Call) -> dict[str, Any] | None:
        """Return the operation of an earlier request with the same id.

        Raises:
            _RefusedError: the id is no UUID.
        """
        given = call.query.get("requestId")
        if given is None:
            return None
        try:
            if not uuid.UUID(given).int or str(uuid.UUID(given)) != given:
                raise ValueError
        except ValueError:
            raise _RefusedError(400, "invalid", "Invalid value for field 'requestId': it must be a UUID.") from None
        earlier = self._requests.get(given)
        return None if earlier is None else self._operations[earlier].resource

    def _link(self, path: str) -> str:
        return f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/{path}"

    def _operation(self, call: Call) -> dict[str, Any]:
        operation = self._operations.get(call.path["operation"])
        if operation is None:
            raise _RefusedError(404, "notFound", f"The resource '{call.path['operation']}' was not found")
        self._step()
        return operation.resource

    def _list_operations(self, call: Call) -> dict[str, Any]:
        self._step()
        where = f"zones/{call.path['zone']}" if "zone" in call.path else "global"
        link = self._link(f"{where}/operations/")
        everywhere = [each.resource for each in self._operations.values()]
        here = [each for each in everywhere if each["selfLink"].startswith(link)]
        found = [each for each in here if _matches(each, call.query.get("filter", ""))]
        return self._paged(call, "items", found, kind="compute#operationList")

    # What is sold

    def _region(self, call: Call) -> dict[str, Any]:
        quotas = [{"metric": name, "limit": limit, "usage": usage} for name, (limit, usage) in self.quotas.items()]
        return {"kind": "compute#region", "name": call.path["region"], "status": "UP", "quotas": quotas}

    def _list_zones(self, call: Call) -> dict[str, Any]:
        zones = [
            {"kind": "compute#zone", "name": name, "region": self._link(f"regions/{region}"), "status": "UP"}
            for name, region in ZONES.items()
        ]
        return self._paged(call, "items", zones, kind="compute#zoneList")

    def _zone(self, call: Call) -> str:
        if (zone := call.path["zone"]) not in ZONES:
            raise _RefusedError(404, "notFound", f"The resource 'projects/{PROJECT}/zones/{zone}' was not found")
        return zone

    def _list_machine_types(self, call: Call) -> dict[str, Any]:
        zone = self._zone(call)
        kinds = [
            {"kind": "compute#machineType", "zone": zone, **kind} for kind, zones in MACHINES.values() if zone in zones
        ]
        return self._paged(call, "items", kinds, kind="compute#machineTypeList")

    def _list_accelerators(self, call: Call) -> dict[str, Any]:
        zone = self._zone(call)
        models = [
            {"kind": "compute#acceleratorType", "name": name, "zone": self._link(f"zones/{zone}"),
             "maximumCardsPerInstance": most}
            for name, (most, zones) in ACCELERATORS.items()
            if zone in zones
        ]  # fmt: skip  # one model a line
        return self._paged(call, "items", models, kind="compute#acceleratorTypeList")

    def _image(self, call: Call) -> dict[str, Any]:
        project, family = call.path["project"], call.path["family"]
        if (architecture := IMAGES.get((project, family))) is None:
            link = f"projects/{project}/global/images/family/{family}"
            raise _RefusedError(404, "notFound", f"The resource '{link}' was not found")
        return {"kind": "compute#image", "name": f"{family}-v20261101", "family": family, "architecture": architecture}

    def _capacity_history(self, call: Call) -> dict[str, Any]:
        body = call.body
        if body["instanceProperties"]["scheduling"]["provisioningModel"] != "SPOT":
            raise _RefusedError(400, "invalid", "provisioningModel must be SPOT")
        zone = body["locationPolicy"]["location"].rpartition("/")[2]
        if zone not in self.history:
            raise _RefusedError(404, "notFound", f"There is no history of {zone}")
        price, rate = self.history[zone]
        interval = {"startTime": "2026-11-01T00:00:00Z", "endTime": "2026-11-23T00:00:00Z"}
        earlier = {"startTime": "2026-10-01T00:00:00Z", "endTime": "2026-11-01T00:00:00Z"}
        dearer = {"currencyCode": "USD", "units": "7", "nanos": 0}
        money = {"currencyCode": "USD", "units": str(int(price)), "nanos": round(price % 1 * 1e9)}
        return {
            "location": self._link(f"zones/{zone}"),
            "machineType": body["instanceProperties"]["machineType"],
            "priceHistory": [{"interval": interval, "listPrice": money}, {"interval": earlier, "listPrice": dearer}],
            "preemptionHistory": [
                {"interval": interval, "preemptionRate": rate},
                {"interval": earlier, "preemptionRate": 1 - rate},
            ],
        }

    def _list_skus(self, call: Call) -> dict[str, Any]:
        if call.path["parent"] != "services/6F81-5844-456A":
            raise _RefusedError(404, "notFound", "There is no such service")
        return self._paged(call, "skus", list(skus()))

    def _permissions(self, call: Call) -> dict[str, Any]:
        asked = call.body["permissions"]
        granted = [each for each in asked if self.granted is None or each in self.granted]
        return {"permissions": granted} if granted else {}

    # Machines

    def _insert(self, call: Call) -> dict[str, Any]:
        if (earlier := self._once(call)) is not None:
            return earlier
        zone, body = self._zone(call), json.loads(json.dumps(call.body))
        name = body["name"]
        self._check_machine(zone, body)
        if (zone, name) in self.machines:
            link = f"projects/{PROJECT}/zones/{zone}/instances/{name}"
            raise _RefusedError(409, "alreadyExists", f"The resource '{link}' already exists")
        failure = next((each for each in self.failures if each.times and each.zone in ("", zone)), None)
        if failure is not None:
            failure.times -= 1
        machine = Machine({}, self.hidden)
        machine.resource |= {**body, **self._made(zone, body)}
        if failure is None or failure.stays:
            self.machines[zone, name] = machine

        def done(operation: dict[str, Any]) -> None:
            if failure is not None:
                self._failed(operation, machine, failure)
            elif machine.looks is None:
                machine.resource["status"] = "RUNNING"

        operation = self._operate(call, "insert", f"instances/{name}", done)
        if given := call.query.get("requestId"):
            self._requests[given] = operation["name"]
        return operation

    def _check_machine(self, zone: str, body: dict[str, Any]) -> None:
        kind = _last(body["machineType"])
        if kind not in MACHINES or zone not in MACHINES[kind][1]:
            link = f"projects/{PROJECT}/zones/{zone}/machineTypes/{kind}"
            raise _RefusedError(404, "notFound", f"The resource '{link}' was not found")
        described = MACHINES[kind][0]
        boot = next((disk["initializeParams"] for disk in body["disks"] if disk.get("boot")), None)
        if boot is None:
            raise _RefusedError(400, "invalid", "Invalid value for field 'resource.disks': no boot disk.")
        family = re.fullmatch(r"projects/([^/]+)/global/images/family/([^/]+)", boot["sourceImage"])
        architecture = IMAGES.get((family[1], family[2])) if family is not None else None
        own = re.fullmatch(rf"projects/{PROJECT}/global/images/([^/]+)", boot["sourceImage"])
        if own is not None and own[1] in self.images:
            architecture = self.images[own[1]]["architecture"]
            if int(boot["diskSizeGb"]) < int(self.images[own[1]]["diskSizeGb"]):
                raise _RefusedError(400, "invalid", "The disk is smaller than the image.")
        if architecture is None:
            raise _RefusedError(404, "notFound", f"The resource '{boot['sourceImage']}' was not found")
        if architecture != described["architecture"]:
            raise _RefusedError(400, "invalid", "The image's architecture is not that of the machine type.")
        for label, value in body.get("labels", {}).items():
            if not _LABEL.fullmatch(label) or not _LABEL.fullmatch(value) or not label[:1].isalpha():
                raise _RefusedError(400, "invalid", f"Invalid value for field 'resource.labels': '{label}={value}'")
        items = [item["key"] for item in body.get("metadata", {}).get("items", ())]
        if len(set(items)) < len(items):
            raise _RefusedError(400, "invalid", "Invalid value for field 'resource.metadata': duplicate keys.")
        scheduling = body.get("scheduling", {})
        spot = scheduling.get("provisioningModel") == "SPOT"
        if spot and scheduling.get("automaticRestart", True):
            raise _RefusedError(400, "invalid", "Spot VMs cannot be restarted automatically.")
        accelerators = body.get("guestAccelerators", []) or described.get("accelerators", [])
        if accelerators and scheduling.get("onHostMaintenance", "MIGRATE") != "TERMINATE":
            raise _RefusedError(400, "invalid", "Instances with guest accelerators do not support live migration.")
        if scheduling.get("instanceTerminationAction") and not (spot or "maxRunDuration" in scheduling):
            raise _RefusedError(400, "invalid", "instanceTerminationAction needs Spot or a maximum run duration.")
        if "maxRunDuration" in scheduling and not 30 <= int(scheduling["maxRunDuration"]["seconds"]) <= 120 * 86400:
            raise _RefusedError(400, "invalid", "maxRunDuration must be between 30 seconds and 120 days.")
        for each in body.get("guestAccelerators", ()):
            model = _last(each["acceleratorType"])
            most, zones = ACCELERATORS.get(model, (0, ()))
            if zone not in zones or not kind.startswith("n1-"):
                raise _RefusedError(
                    400, "invalid", f"[{kind}, {model}] features are not compatible for creating instance."
                )
            if each["acceleratorCount"] > most:
                raise _RefusedError(400, "invalid", "The number of accelerators is not supported.")

    def _made(self, zone: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return what Google adds to a machine."""
        internal, external = self.addresses()
        interfaces = [
            {
                **interface,
                "kind": "compute#networkInterface",
                "name": f"nic{number}",
                "networkIP": internal,
                "accessConfigs": [{**each, "natIP": external} for each in interface.get("accessConfigs", ())],
            }
            for number, interface in enumerate(body["networkInterfaces"])
        ]
        limit = body.get("scheduling", {}).get("maxRunDuration")
        disk = self._link(f"zones/{zone}/disks/{body['name']}")
        return {
            "disks": [{**each, "source": disk} for each in body["disks"]],
            "kind": "compute#instance",
            "id": str(10**18 + self._count),
            "zone": self._link(f"zones/{zone}"),
            "machineType": self._link(f"zones/{zone}/machineTypes/{_last(body['machineType'])}"),
            "selfLink": self._link(f"zones/{zone}/instances/{body['name']}"),
            "creationTimestamp": _WHEN,
            "labelFingerprint": base64.urlsafe_b64encode(b"12345678").decode(),
            "status": "PROVISIONING",
            "networkInterfaces": interfaces,
            "resourceStatus": {
                "effectiveInstanceMetadata": {
                    "enableOsloginMetadataValue": self.os_login or _metadata(body).get("enable-oslogin") == "TRUE",
                    "blockProjectSshKeysMetadataValue": _metadata(body).get("block-project-ssh-keys") == "TRUE",
                },
                "scheduling": {"terminationTimestamp": "2026-11-23T20:00:00.000-08:00"} if limit else {},
            },
        }

    def _failed(self, operation: dict[str, Any], machine: Machine, failure: Failure) -> None:
        error: dict[str, Any] = {"code": failure.code, "message": failure.message}
        if failure.details:
            error["errorDetails"] = failure.details
        operation |= {
            "error": {"errors": [error]},
            "httpErrorStatusCode": failure.status,
            "httpErrorMessage": "SERVICE UNAVAILABLE" if failure.status == 503 else "BAD REQUEST",
        }
        machine.resource["status"], machine.looks = "STOPPING", 3

    def _visible(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every machine that a read sees, with its zone. It is a read."""
        self._step()
        for (zone, name), machine in list(self.machines.items()):
            if machine.hidden:
                machine.hidden -= 1
                continue
            if machine.looks is not None:
                machine.looks -= 1
                if machine.looks < 0:
                    del self.machines[zone, name]
                    continue
            if machine.resource["status"] == "PROVISIONING":
                machine.resource["status"] = "STAGING"
            yield zone, machine.resource

    def _get(self, call: Call) -> dict[str, Any]:
        zone, name = self._zone(call), call.path["instance"]
        for where, resource in self._visible():
            if (where, resource["name"]) == (zone, name):
                return resource
        link = f"projects/{PROJECT}/zones/{zone}/instances/{name}"
        raise _RefusedError(404, "notFound", f"The resource '{link}' was not found")

    def _delete(self, call: Call) -> dict[str, Any]:
        zone, name = self._zone(call), call.path["instance"]
        if (earlier := self._once(call)) is not None:
            return earlier
        machine = self.machines.get((zone, name))
        if machine is None:
            link = f"projects/{PROJECT}/zones/{zone}/instances/{name}"
            raise _RefusedError(404, "notFound", f"The resource '{link}' was not found")
        machine.resource["status"] = "STOPPING"
        machine.looks = 10**6
        return self._operate(
            call, "delete", f"instances/{name}", lambda operation: self._deleted(operation, zone, name)
        )

    def _deleted(self, operation: dict[str, Any], zone: str, name: str) -> None:
        if self.machines.pop((zone, name), None) is None:  # another operation was faster
            gone = {"code": "RESOURCE_NOT_FOUND", "message": f"The resource '{name}' was not found"}
            operation |= {"error": {"errors": [gone]}, "httpErrorStatusCode": 404}

    def _list_instances(self, call: Call) -> dict[str, Any]:
        zone = self._zone(call)
        found = [
            each for where, each in self._visible() if where == zone and _matches(each, call.query.get("filter", ""))
        ]
        return self._paged(call, "items", found, kind="compute#instanceList")

    def _aggregate(self, call: Call) -> dict[str, Any]:
        found = [(zone, each) for zone, each in self._visible() if _matches(each, call.query.get("filter", ""))]
        page = self._paged(call, "page", found)
        items: dict[str, Any] = {}
        for zone in ZONES:
            here = [each for where, each in page["page"] if where == zone]
            warning = {"code": "NO_RESULTS_ON_PAGE", "message": f"There are no results for scope 'zones/{zone}'."}
            items[f"zones/{zone}"] = {"instances": here} if here else {"warning": warning}
        del page["page"]
        return {**page, "kind": "compute#instanceAggregatedList", "items": items}

    def _stop(self, call: Call) -> dict[str, Any]:
        zone, name = self._zone(call), call.path["instance"]
        machine = self.machines[zone, name]
        machine.resource["status"] = "STOPPING"

        def done(operation: dict[str, Any]) -> None:
            machine.resource["status"] = "TERMINATED"

        return self._operate(call, "stop", f"instances/{name}", done)

    # Images

    def _insert_image(self, call: Call) -> dict[str, Any]:
        if (earlier := self._once(call)) is not None:
            return earlier
        body = json.loads(json.dumps(call.body))
        name = body["name"]
        if name in self.images:
            raise _RefusedError(409, "alreadyExists", f"The resource 'global/images/{name}' already exists")
        found = re.fullmatch(r".*/zones/([^/]+)/disks/([^/]+)", body["sourceDisk"])
        machine = self.machines.get((found[1], found[2])) if found is not None else None
        if machine is None:
            raise _RefusedError(404, "notFound", f"The resource '{body['sourceDisk']}' was not found")
        if machine.resource["status"] != "TERMINATED":
            raise _RefusedError(400, "resourceInUseByAnotherResource", "The disk is used by a running machine.")
        (boot,) = [each["initializeParams"] for each in machine.resource["disks"] if each.get("boot")]
        kind = MACHINES[_last(machine.resource["machineType"])][0]
        made = {"kind": "compute#image", "status": "PENDING", "diskSizeGb": boot["diskSizeGb"],
                "architecture": kind["architecture"], "archiveSizeBytes": "0", "id": "1"}  # fmt: skip  # as it is sent
        self.images[name] = body | made

        def done(operation: dict[str, Any]) -> None:
            self.images[name] |= {"status": "READY", "archiveSizeBytes": "2500000000"}

        operation = self._operate(call, "insert", f"images/{name}", done)
        if given := call.query.get("requestId"):
            self._requests[given] = operation["name"]
        return operation

    def _own_image(self, call: Call) -> dict[str, Any]:
        if (image := self.images.get(call.path["image"])) is None:
            raise _RefusedError(404, "notFound", f"The resource 'global/images/{call.path['image']}' was not found")
        return image

    def _list_images(self, call: Call) -> dict[str, Any]:
        self._step()
        found = [each for each in self.images.values() if _matches(each, call.query.get("filter", ""))]
        return self._paged(call, "items", found, kind="compute#imageList")

    def _delete_image(self, call: Call) -> dict[str, Any]:
        name = self._own_image(call)["name"]
        self.images[name]["status"] = "DELETING"
        return self._operate(call, "delete", f"images/{name}", lambda done: self._image_deleted(name))

    def _image_deleted(self, name: str) -> None:
        self.images.pop(name, None)

    # Firewall rules

    def _insert_firewall(self, call: Call) -> dict[str, Any]:
        if (earlier := self._once(call)) is not None:
            return earlier
        body = json.loads(json.dumps(call.body))
        name = body["name"]
        if name in self.firewalls:
            link = f"projects/{PROJECT}/global/firewalls/{name}"
            raise _RefusedError(409, "alreadyExists", f"The resource '{link}' already exists")
        if ("allowed" in body) == ("denied" in body):
            raise _RefusedError(400, "invalid", "A firewall must either have allowed or denied rules.")
        body = {"direction": "INGRESS", "priority": 1000, **body, "kind": "compute#firewall", "id": "1"}

        def done(operation: dict[str, Any]) -> None:
            if self.rules_fail:
                errors = [{"code": "QUOTA_EXCEEDED", "message": "Quota 'FIREWALLS' exceeded.  Limit: 0.0 globally."}]
                operation |= {"error": {"errors": errors}, "httpErrorStatusCode": 403}
                self.firewalls.pop(name, None)

        self.firewalls[name] = body
        operation = self._operate(call, "insert", f"firewalls/{name}", done)
        if given := call.query.get("requestId"):
            self._requests[given] = operation["name"]
        return operation

    def _rule(self, call: Call) -> dict[str, Any]:
        if (rule := self.firewalls.get(call.path["firewall"])) is None:
            link = f"projects/{PROJECT}/global/firewalls/{call.path['firewall']}"
            raise _RefusedError(404, "notFound", f"The resource '{link}' was not found")
        return rule

    def _get_firewall(self, call: Call) -> dict[str, Any]:
        return self._rule(call)

    def _patch_firewall(self, call: Call) -> dict[str, Any]:
        self._rule(call).update(json.loads(json.dumps(call.body)))
        return self._operate(call, "patch", f"firewalls/{call.path['firewall']}")

    def _delete_firewall(self, call: Call) -> dict[str, Any]:
        name = self._rule(call)["name"]
        link = self._link(f"global/firewalls/{name}")
        operations = [each.resource for each in self._operations.values() if each.resource["targetLink"] == link]
        if any(each["operationType"] == "insert" and each["status"] != "DONE" for each in operations):
            self._step()
            raise _RefusedError(400, "resourceNotReady", f"The resource 'projects/{PROJECT}/{name}' is not ready")
        return self._operate(call, "delete", f"firewalls/{name}", lambda done: self._firewall_deleted(name))

    def _firewall_deleted(self, name: str) -> None:
        self.firewalls.pop(name, None)

    def _list_firewalls(self, call: Call) -> dict[str, Any]:
        self._step()
        found = [each for each in self.firewalls.values() if _matches(each, call.query.get("filter", ""))]
        return self._paged(call, "items", found, kind="compute#firewallList")

    # OAuth

    def _token(self, form: Mapping[str, str]) -> Answer:
        """Give out an access token for a signed assertion of the service account."""
        if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" or not self._signed(
            form["assertion"]
        ):
            return Answer(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        token = f"token-{len(self.tokens) + 1}"
        self.tokens.add(token)
        return Answer(200, {"access_token": token, "expires_in": 3599, "token_type": "Bearer"})

    def _signed(self, assertion: str) -> bool:
        signed, _, signature = assertion.rpartition(".")
        claims = json.loads(_decoded(signed.partition(".")[2]))
        try:
            self.key.public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        scoped = any(scope.endswith(("/cloud-platform", "/compute")) for scope in claims["scope"].split())
        return scoped and (claims["iss"], claims["aud"]) == (_ROBOT, _AUDIENCE)


@cache
def _key() -> rsa.RSAPrivateKey:
    """Return the key of the service account, which takes a while to make."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _last(link: str) -> str:
    return link.rpartition("/")[2]


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _metadata(body: Mapping[str, Any]) -> dict[str, str]:
    return {item["key"]: item["value"] for item in body.get("metadata", {}).get("items", ())}


def _matches(resource: Mapping[str, Any], given: str) -> bool:
    """Tell whether a resource passes a filter: terms `(field = "value")`, all of which must hold.

    Raises:
        _RefusedError: the filter is not understood.
    """
    end = 0
    for term in _TERM.finditer(given):
        if given[end : term.start()].strip() not in ("", "AND"):
            break
        end = term.end()
        value: Any = resource
        for key in term[1].split("."):
            value = value.get(key, "") if isinstance(value, Mapping) else ""
        match term[2]:
            case "eq":
                holds = re.fullmatch(term[3], str(value)) is not None
            case "!=":
                holds = str(value) != term[3]
            case _:
                holds = str(value) == term[3]
        if not holds:
            return False
    if given[end:].strip():
        raise _RefusedError(400, "invalid", f"Invalid value for field 'filter': '{given}'.")
    return True
