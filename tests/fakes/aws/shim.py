"""A shim before moto: what moto lacks or does wrong, as far as a provider meets it, and faults.

Added: images of Ubuntu, prices, fleets (whose machines have the template's groups, addresses, metadata options and
shutdown behaviour, and errors by type and zone), idempotency tokens, groups that cannot be deleted while in use, states
that take a few calls, and new machines that are not visible at once.
"""

import os
import re
import socket
import struct
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import urlencode
from xml.sax.saxutils import escape

from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models.instances import InstanceState, StateReason

from tests.fakes.aws.catalogue import IMAGES, TYPES, fargate_price_list, fargate_spot_prices, price_list, spot_price
from tests.fakes.aws.fleets import FleetRefusedError, create_fleet
from tests.fakes.aws.forms import Answer, Request, error_answer, parse_request, xml_answer
from tests.fakes.aws.tasks import TaskShim
from tests.fakes.server import Moment

__all__ = ["Shim", "instances_of"]

_PAGE = 10
_WITH_TOKENS = ("CreateFleet", "CreateLaunchTemplate", "CreateLaunchTemplateVersion", "RunTask")


@dataclass
class _Fault:
    code: str
    status: int
    message: str
    times: int


@dataclass
class _Life:
    """Calls left until a machine is visible, and until it runs."""

    hidden: int
    pending: int


@dataclass
class Shim:
    """The shim, as a WSGI application around moto's.

    Attributes:
        application: moto's.
        requests: what was asked, in order.
        wrong: errors of the shim itself.
        on_request: called before and after each call that changes something.
        capacity: machines left by type and zone; a place without an entry has any number.
        refusals: code of the error of a fleet for a type and zone, by (type, zone); "*" for all.
        hidden_for: calls in which a new machine is not visible yet.
        pending_for: listings in which a new machine is still pending.
        held_for: attempts at deleting a group that fail after its last machine was terminated.
        address_of: returns the public address of a new machine; None for one of moto's.
        ended: called with the id of each machine that is terminated.
        shut_down: returns whether a machine has shut itself down.
        stopped: called with the id of each machine that is stopped.
        making_for: listings in which a new image is still pending.
        spot_factor: what spot prices are multiplied by.
        tasks: the part for ECS.
        lock: held while a request is carried out.
    """

    application: Callable[..., Iterable[bytes]]
    requests: list[Request] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    capacity: dict[tuple[str, str], int] = field(default_factory=dict)
    refusals: dict[tuple[str, str], str] = field(default_factory=dict)
    hidden_for: int = 0
    pending_for: int = 0
    held_for: int = 0
    on_request: Callable[[Moment], None] = field(init=False)
    address_of: Callable[[Any], str] | None = None
    ended: Callable[[str], None] = field(default=lambda machine: None)
    shut_down: Callable[[str], bool] = field(default=lambda machine: False)
    stopped: Callable[[str], None] = field(default=lambda machine: None)
    making_for: int = 0
    spot_factor: float = 1.0

    def __post_init__(self) -> None:
        self._pages: dict[int, Answer] = {}
        self.lock = threading.RLock()
        self.tasks = TaskShim(self._moto)
        self.on_request = lambda moment: None
        self.reset()

    def reset(self) -> None:
        """Forget everything but the settings."""
        self.requests.clear()
        self.wrong.clear()
        self.tasks.reset()
        self.capacity.clear()
        self.refusals.clear()
        self.hidden_for = self.pending_for = self.held_for = self.making_for = 0
        self.spot_factor = 1.0
        self._faults: dict[str, list[_Fault]] = defaultdict(list)
        self._lost: Counter[str] = Counter()
        self._resets = False
        self._empty: Counter[str] = Counter()
        self._answered: dict[tuple[str, str, str], tuple[Any, Answer]] = {}
        self._images: dict[tuple[str, str], str] = {}
        self._sizes: dict[str, int] = {}
        self._lives: dict[str, _Life] = {}
        self._made: dict[str, int] = {}

    def fail(self, action: str, code: str, *, status: int = 400, message: str = "", times: int = 1) -> None:
        """Answer the next calls of `action` with an error."""
        self._faults[action].append(_Fault(code, status, message or f"The fault {code}.", times))

    def lose_answer(self, action: str, times: int = 1, *, reset: bool = False) -> None:
        """Carry out the next calls of `action`, and close or reset the connection instead of answering."""
        self._lost[action] += times
        self._resets = reset

    def answer_nothing(self, action: str, times: int = 1) -> None:
        """Answer the next calls of `action` with an empty listing: what was created is not visible yet."""
        self._empty[action] += times

    def interrupt(self, region: str, machine: str) -> None:
        """Take a spot machine back."""
        with self.lock:
            (found,) = [each for each in instances_of(region) if each.id == machine]
            _end(found, "Server.SpotInstanceTermination")
            self.ended(machine)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        request = parse_request(environ.get("HTTP_AUTHORIZATION", ""), environ.get("HTTP_X_AMZ_TARGET", ""), body)
        if request is None and environ["PATH_INFO"] == "/fargate-spot-prices.json":
            start("200 OK", [("Content-Type", "application/json")])
            return [fargate_spot_prices().encode()]
        if request is None:
            environ["wsgi.input"] = BytesIO(body)
            return self.application(environ, start)
        with self.lock:
            self.requests.append(request)
            changes = not request.action.startswith(("Describe", "Get", "List"))
            if changes:
                self.on_request("before")
            try:
                answer = self._fault(request) or self._once(request, environ, body)
            except Exception as error:
                self.wrong.append(f"{request.action}: {error!r}")
                raise
            if changes:
                self.on_request("after")
            if self._lost[request.action]:
                self._lost[request.action] -= 1
                _cut(environ["werkzeug.socket"], reset=self._resets)
                raise ConnectionError("the answer is lost")
        start(f"{answer.status} -", [("Content-Type", answer.content_type), ("Content-Length", f"{len(answer.body)}")])
        return [answer.body]

    def _fault(self, request: Request) -> Answer | None:
        faults = self._faults[request.action]
        if not faults:
            return None
        faults[0].times -= 1
        fault = faults[0] if faults[0].times else faults.pop(0)
        return error_answer(request, fault.code, fault.message, fault.status)

    def _once(self, request: Request, environ: dict[str, Any], body: bytes) -> Answer:
        """Carry out a request; repeat the answer to a token that was carried out."""
        token = request.values.get("ClientToken") or request.values.get("clientToken")
        if token is None or request.action not in _WITH_TOKENS or "DryRun" in request.values:
            return self._answer(request, environ, body)
        assert re.fullmatch(r"[\x21-\x7e]{1,64}", token), token
        key = request.region, request.action, token
        if key in self._answered:
            values, answer = self._answered[key]
            if values != request.values:
                code = "ConflictException" if request.service == "ecs" else "IdempotentParameterMismatch"
                return error_answer(request, code, "Other arguments.", 400)
            return answer
        answer = self._answer(request, environ, body)
        if answer.status == 200:
            self._answered[key] = request.values, answer
        return answer

    def _answer(self, request: Request, environ: dict[str, Any], body: bytes) -> Answer:
        if "DryRun" in request.values and request.action.startswith("Describe"):
            return error_answer(request, "DryRunOperation", "Request would have succeeded.", 412)  # moto carries it out
        if self._empty[request.action]:
            self._empty[request.action] -= 1
            is_form = request.service == "ec2"
            return xml_answer(request.action, "") if is_form else Answer(200, "application/x-amz-json-1.1", b"{}")
        if request.service == "ecs":
            return self.tasks.answer(request, environ, body)
        own = getattr(self, f"_{request.action}", None)
        answer: Answer | None = own(request, environ) if own is not None else None
        return answer or self._moto(environ, body)

    def _moto(self, environ: dict[str, Any], body: bytes) -> Answer:
        """Return moto's answer."""
        head: list[Any] = []

        def started(status: str, headers: list[tuple[str, str]], *error: Any) -> Callable[[bytes], None]:
            head[:] = [int(status.split()[0]), dict(headers)]
            return lambda data: None

        ours = {**environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        content = b"".join(self.application(ours, started))
        return Answer(head[0], head[1].get("Content-Type", "text/xml"), content)

    def _form(self, environ: dict[str, Any], form: dict[str, str]) -> Answer:
        return self._moto(environ, urlencode({"Version": "2016-11-15", **form}).encode())

    def _GetParameter(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        name = request.values["Name"]
        if name not in IMAGES:
            return None
        key = request.region, name
        if key not in self._images:
            architecture, size = IMAGES[name]
            image = _ec2(request.region).register_image(name.split("/")[-2], "An image")
            image.architecture, image.root_device_type = architecture, "ebs"
            self._images[key] = image.id
            self._sizes[image.id] = size
        body = f'{{"Parameter": {{"Name": "{name}", "Type": "String", "Value": "{self._images[key]}"}}}}'
        return Answer(200, "application/x-amz-json-1.1", body.encode())

    def _StopInstances(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        for each in request.values["InstanceId"]:
            self.stopped(each)
        return None

    def _CreateImage(self, request: Request, environ: dict[str, Any]) -> Answer:
        """Tag the snapshot, which moto does not, and check that the name is new, and the machine stopped."""
        values, backend = request.values, _ec2(request.region)
        if any(each.name == values["Name"] for each in backend.amis.values()):
            return error_answer(request, "InvalidAMIName.Duplicate", "The name is in use.", 400)
        (machine,) = [each for each in instances_of(request.region) if each.id == values["InstanceId"]]
        assert machine.state == "stopped", "an image of a running machine may be incomplete"
        tags = {each["ResourceType"]: each["Tag"] for each in values["TagSpecification"]}
        image = backend.create_image(machine.id, values["Name"], "", [{"ResourceType": "image", "Tags": tags["image"]}])
        image.architecture, image.root_device_type, image.state = "x86_64", "ebs", "pending"
        for each in tags["snapshot"]:
            image.ebs_snapshot.add_tag(each["Key"], each["Value"])
        self._made[image.id] = self.making_for
        return xml_answer(request.action, f"<imageId>{image.id}</imageId>")

    def _DeregisterImage(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        self._made.pop(request.values["ImageId"], None)
        return None

    def _DeleteSnapshot(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        snapshot = request.values["SnapshotId"]
        if any(each.ebs_snapshot.id == snapshot for each in _ec2(request.region).amis.values()):
            return error_answer(request, "InvalidSnapshot.InUse", f"{snapshot} is used by an image.", 400)
        return None

    def _DescribeImages(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        """Edit the size of a disk, which moto does not know, and let a call's time pass for new images."""
        for each, left in self._made.items():
            self._made[each] = left - 1
            if left <= 0:
                _ec2(request.region).amis[each].state = "available"
        image = next(iter(request.values.get("ImageId", ())), "")
        if image not in self._sizes:
            return None
        answer = self._form(environ, {"Action": request.action, "ImageId.1": image})
        size = f"<volumeSize>{self._sizes[image]}</volumeSize>".encode()
        return Answer(200, "text/xml", re.sub(rb"<volumeSize>\d+</volumeSize>", size, answer.body))

    def _GetProducts(self, request: Request, environ: dict[str, Any]) -> Answer:
        import json

        filters = {each["Field"]: each["Value"] for each in request.values.get("Filters", ())}
        of_region = fargate_price_list if request.values["ServiceCode"] == "AmazonECS" else price_list
        products = list(of_region(filters.get("regionCode", "us-east-1")))
        first = int(request.values.get("NextToken", "0"))
        last = first + int(request.values["MaxResults"])
        answer = {"FormatVersion": "aws_v1", "PriceList": products[first:last]}
        if last < len(products):
            answer["NextToken"] = str(last)
        return Answer(200, "application/x-amz-json-1.1", json.dumps(answer).encode())

    def _DescribeInstanceTypes(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        if "InstanceType" in request.values:
            return None
        first = int(request.values.get("NextToken", "0"))
        if first not in self._pages:
            page = TYPES[first : first + _PAGE]
            form = {f"InstanceType.{number}": kind for number, kind in enumerate(page, 1)}
            self._pages[first] = self._form(environ, {"Action": request.action, **form})
        answer = self._pages[first]
        if first + _PAGE >= len(TYPES):
            return answer
        end = f"<nextToken>{first + _PAGE}</nextToken></DescribeInstanceTypesResponse>".encode()
        return Answer(200, "text/xml", answer.body.replace(b"</DescribeInstanceTypesResponse>", end))

    def _DescribeSpotPriceHistory(self, request: Request, environ: dict[str, Any]) -> Answer:
        zones = [f"{request.region}{letter}" for letter in "abc"]
        now = self.spot_factor
        rows = "".join(
            f"<item><instanceType>{kind}</instanceType><productDescription>Linux/UNIX</productDescription>"
            f"<spotPrice>{spot_price(kind, zone) * factor:.6f}</spotPrice><timestamp>{when}</timestamp>"
            f"<availabilityZone>{zone}</availabilityZone></item>"
            for kind in request.values.get("InstanceType", TYPES)
            for zone in zones
            for factor, when in ((now, "2026-11-23T06:00:00.000Z"), (9, "2026-11-22T06:00:00.000Z"))
        )
        return xml_answer(request.action, f"<spotPriceHistorySet>{rows}</spotPriceHistorySet>")

    def _CreateFleet(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        if "DryRun" in request.values:
            return None
        try:
            content, machines = create_fleet(_ec2(request.region), request, self.capacity, self.refusals)
        except FleetRefusedError as refused:
            return error_answer(request, refused.code, str(refused), 400)
        for machine in machines:
            self._lives[machine.id] = _Life(self.hidden_for, self.pending_for)
            if self.address_of is not None:
                machine.nics[0].public_ip = machine.nics[0].private_ip_address = self.address_of(machine)
            machine._state = InstanceState("pending", 0)
        return xml_answer(request.action, content)

    def _DescribeInstances(self, request: Request, environ: dict[str, Any]) -> Answer:
        self._let_live(request.region)
        backend = _ec2(request.region)
        hidden = self._hidden()
        kept = {key: [*each.instances] for key, each in backend.reservations.items()}
        for each in backend.reservations.values():
            each.instances[:] = [machine for machine in each.instances if machine.id not in hidden]
        try:
            form = urlencode({"Action": request.action, "Version": "2016-11-15", **_flat(request.values)}).encode()
            return self._moto(environ, form)
        finally:
            for key, instances in kept.items():
                backend.reservations[key].instances[:] = instances

    def _let_live(self, region: str) -> None:
        """Let a call's time pass for new machines."""
        for machine in instances_of(region):
            life = self._lives.get(machine.id)
            if life is None:
                continue
            if machine.state != "terminated" and self.shut_down(machine.id):
                _end(machine, "Client.InstanceInitiatedShutdown")
            if life.hidden:
                life.hidden -= 1
            elif life.pending:
                life.pending -= 1
            elif machine.state == "pending":
                machine._state = InstanceState("running", 16)

    def _hidden(self) -> set[str]:
        return {machine for machine, life in self._lives.items() if life.hidden}

    def _TerminateInstances(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        ids = request.values.get("InstanceId", [])
        unseen = [each for each in ids if each in self._hidden()]
        for each in unseen:
            self._lives[each].hidden -= 1
        if unseen:
            return error_answer(request, "InvalidInstanceID.NotFound", _no_such(unseen), 400)
        for each in ids:
            self.ended(each)
        return None

    def _DeleteSecurityGroup(self, request: Request, environ: dict[str, Any]) -> Answer | None:
        group = request.values.get("GroupId", "")
        if self.tasks.users_of(group, request.region):
            message = f"resource {escape(group)} has a dependent object"
            return error_answer(request, "DependencyViolation", message, 400)
        users = [each for each in instances_of(request.region) if group in {g.id for g in each.security_groups}]
        if any(each.state != "terminated" for each in users) or (users and self.held_for):
            self.held_for = max(0, self.held_for - all(each.state == "terminated" for each in users))
            message = f"resource {escape(group)} has a dependent object"
            return error_answer(request, "DependencyViolation", message, 400)
        return None


def _cut(connection: socket.socket, *, reset: bool) -> None:
    """Close or reset a connection. Its server goes on with one that is closed."""
    if reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        closed, other = socket.socketpair()
        os.dup2(closed.fileno(), connection.fileno())
        closed.close()
        other.close()
    else:
        connection.shutdown(socket.SHUT_RDWR)


def _end(machine: Any, why: str) -> None:
    machine.terminate()
    machine.state_reason = StateReason(f"{why}: it ended", why)


def _no_such(ids: list[str]) -> str:
    which = f"s '{', '.join(ids)}' do" if len(ids) > 1 else f" '{ids[0]}' does"
    return f"The instance ID{which} not exist"


def _flat(value: Any, name: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        pairs = [(f"{name}.{key}" if name else key, item) for key, item in value.items()]
    elif isinstance(value, list):
        pairs = [(f"{name}.{number}", item) for number, item in enumerate(value, 1)]
    else:
        return {name: value}
    return {key: item for path, nested in pairs for key, item in _flat(nested, path).items()}


def _ec2(region: str) -> Any:
    return get_backend("ec2")[DEFAULT_ACCOUNT_ID][region]


def instances_of(region: str) -> list[Any]:
    """Return moto's machines in a region."""
    return [machine for each in _ec2(region).reservations.values() for machine in each.instances]
