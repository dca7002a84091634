"""A fake of Hyperstack's API ("Infrahub").

Each request and each answer is validated against the models of the vendor's own client, PyPI `hyperstack`. Statuses of
machines, `error_reason` and the refusal to delete a machine that is being created are as in the vendor's documentation
and in reports of its users; the texts of other refusals are guesses.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.fakes.server import Answer, FakeServer, Request
from tests.fakes.vendor_models import VendorModels

if TYPE_CHECKING:
    from tests.fakes.booted import Booted

__all__ = ["KEY", "FakeHyperstack"]

KEY = "0b1c2d3e-tests-4f5a"
"""The API key that the fake accepts, in the header `api_key`."""

_UBUNTU = "Ubuntu Server 24.04 LTS"
_CUDA = f"{_UBUNTU} R570 CUDA 12.8"
_IMAGES = (_UBUNTU, "Ubuntu Server 22.04 LTS R535 CUDA 12.2", _CUDA, f"{_CUDA} with Docker", "Windows Server 2022")

_PENDING = ("CREATING", "BUILD")

type _Handler = Callable[[Request, str], Answer]


class FakeHyperstack(FakeServer):
    """The fake.

    Attributes:
        stock: machines left by flavor and region.
        most: number of machines that an environment may have.
        balance: False if the account owes money.
        says_out_of_stock: the refusal of a machine that is out of stock; None to accept it, and to fail its build.
        polls_to_boot, polls_to_appear, polls_to_go: number of times that a machine is listed, or could be, before it is
            active, before it is visible, and after it was deleted.
        images_of_page: number of images of a page.
        randomizes: True to give machines a random port for SSH, whatever was requested.
        prices_are_text: True to write prices as text, as the real pricebook does, unlike its description.
        booted: the machines that it creates; None for machines that are data only.
        wrong: differences of requests and answers from the models.
    """

    def __init__(self, models: VendorModels) -> None:
        super().__init__()
        self._models = models
        self.flavors = list(_flavors())
        self.stock = {(each["name"], each["region_name"]): 100 for each in self.flavors}
        self.stock["n3-H100x8", "CANADA-1"] = 0
        self.most = 100
        self.balance = True
        self.says_out_of_stock: str | None = "There are not enough GPUs in stock for this flavor."
        self.images_of_page = 100
        self.polls_to_boot = 2
        self.polls_to_appear = 0
        self.polls_to_go = 1
        self.randomizes = False
        self.prices_are_text = False
        self.machines: dict[int, dict[str, Any]] = {}
        self.environments: dict[int, dict[str, Any]] = {}
        self.keys: dict[int, dict[str, Any]] = {}
        self.volumes: dict[int, dict[str, Any]] = {}
        self.user_data: dict[int, str] = {}
        self.booted: Booted | None = None
        self.wrong: list[str] = []
        self._polls: dict[int, int] = {}
        self._addresses: dict[int, str] = {}
        self._numbers = itertools.count(1000)

    @property
    def left(self) -> list[str]:
        """Names of the machines, keys, volumes and environments that the account has."""
        alive = [each for each in self.machines.values() if each["status"] != "DELETING"]
        groups = (alive, self.keys.values(), self.volumes.values(), self.environments.values())
        return [each["name"] for group in groups for each in group]

    def add_volume(self, environment: str) -> None:
        """Create a volume, as a user could in the pool's environment."""
        id = next(self._numbers)
        region = next(each["region"] for each in self.environments.values() if each["name"] == environment)
        where = {"name": environment, "region": region}
        self.volumes[id] = {"id": id, "name": f"volume-{id}", "environment": where, "size": 10, "status": "available"}

    def handle(self, request: Request) -> Answer:
        """Carry out a request."""
        if request.headers.get("api_key") != KEY:
            return self._checked(request, _error(401, "Unauthorized", "unauthorized"), "ErrorResponseModel")
        for method, pattern, handler, asked, model in self._routes():
            found = re.fullmatch(pattern, request.path)
            if found is None or method != request.method:
                continue
            wrong = self._models.differences(asked, request.body) if asked else []
            if wrong:
                self.wrong += [f"{request.method} {request.path}: {each}" for each in wrong]
                answer = _error(400, "Bad request", "bad_request")
            else:
                answer = handler(request, found[1] if found.groups() else "")
            return self._checked(request, answer, model if answer.status == 200 else "ErrorResponseModel")
        return _error(404, "Not found", "not_found")

    def _checked(self, request: Request, answer: Answer, model: str) -> Answer:
        if not (model == "PricebookModel" and self.prices_are_text):
            for each in answer.body if isinstance(answer.body, list) else [answer.body]:
                found = self._models.differences(model, each)
                self.wrong += [f"answer to {request.method} {request.path}: {wrong}" for wrong in found]
        return answer

    def _routes(self) -> Iterator[tuple[str, str, _Handler, str, str]]:
        yield "GET", "/core/flavors", self._list_flavors, "", "FlavorListResponse"
        yield "GET", "/pricebook", self._list_prices, "", "PricebookModel"
        yield "GET", "/core/images", self._list_images, "", "Images"
        yield "GET", "/core/environments", self._list_environments, "", "Environments"
        create = "CreateEnvironment"
        yield "POST", "/core/environments", self._add_environment, create, "Environment"
        yield "GET", "/core/environments/([0-9]+)/vm-quota", self._quota, "", "VMQuota"
        yield "DELETE", "/core/environments/([0-9]+)", self._delete_environment, "", "ResponseModel"
        yield "GET", "/core/keypairs", self._list_keys, "", "Keypairs"
        yield "POST", "/core/keypairs", self._add_key, "ImportKeypairPayload", "ImportKeypairResponse"
        yield "DELETE", "/core/keypair/([0-9]+)", self._delete_key, "", "ResponseModel"
        yield "GET", "/core/volumes", self._list_volumes, "", "Volumes"
        yield "DELETE", "/core/volumes/([0-9]+)", self._delete_volume, "", "ResponseModel"
        machines = "/core/virtual-machines"
        yield "GET", machines, self._list, "", "Instances"
        yield "POST", machines, self._create, "CreateInstancesPayload", "CreateInstancesResponse"
        yield "GET", f"{machines}/([0-9]+)", self._get, "", "Instance"
        yield "DELETE", f"{machines}/([0-9]+)", self._delete, "", "ResponseModel"

    def _list_flavors(self, request: Request, _: str) -> Answer:
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for flavor in self.flavors:
            if request.query.get("region") in (None, flavor["region_name"]):
                left = self.stock[flavor["name"], flavor["region_name"]]
                key = flavor["gpu"], flavor["region_name"]
                groups.setdefault(key, []).append({**flavor, "stock_available": bool(left)})
        data = [{"gpu": gpu, "region_name": region, "flavors": each} for (gpu, region), each in groups.items()]
        return _ok(data=data)

    def _list_prices(self, request: Request, _: str) -> Answer:
        prices = {
            "L40": 0.99,
            "H100-80G-PCIe": 1.9,
            "vCPU (cpu-only-flavors)": 0.00417,
            "RAM (cpu-only-flavors)": 0.00125,
            "PublicIP": 0.00672,
            "H100-80G-PCIe-spot": 1.52,
        }
        return Answer(
            200,
            [
                {
                    "id": number,
                    "name": name,
                    "value": str(price) if self.prices_are_text else price,
                    "original_value": str(2 * price) if self.prices_are_text else 2 * price,
                    "discount_applied": True,
                }
                for number, (name, price) in enumerate(prices.items())
            ],
        )

    def _list_images(self, request: Request, _: str) -> Answer:
        regions = sorted({each["region_name"] for each in self.flavors})
        page = int(request.query.get("page", 1)) - 1
        shown = list(enumerate(_IMAGES))[page * self.images_of_page : (page + 1) * self.images_of_page]
        return _ok(
            images=[
                {
                    "region_name": region,
                    "type": "Ubuntu",
                    "images": [
                        {"id": number, "name": name, "region_name": region, "type": "Ubuntu", "is_public": True}
                        for number, name in shown
                    ],
                }
                for region in regions
                if request.query.get("region") in (None, region)
            ]
        )

    def _list_environments(self, request: Request, _: str) -> Answer:
        return _page("environments", list(self.environments.values()), request)

    def _add_environment(self, request: Request, _: str) -> Answer:
        body = request.body
        if any(each["name"] == body["name"] for each in self.environments.values()):
            return _error(409, "Environment already exists", "already_exist")
        id = next(self._numbers)
        made = {"id": id, **body, "created_at": _now(), "features": {"network_optimised": False}}
        self.environments[id] = made
        return _ok(environment=made)

    def _quota(self, request: Request, id: str) -> Answer:
        if int(id) not in self.environments:
            return _error(404, "Environment not found", "not_found")
        used = len(self._in(self.environments[int(id)]["name"]))
        return _ok(max_vms=self.most, current_vms=used, available_vms=self.most - used, cidr="10.0.0.0/24")

    def _in(self, environment: str) -> list[dict[str, Any]]:
        return [each for each in self.machines.values() if each["environment"]["name"] == environment]

    def _delete_environment(self, request: Request, id: str) -> Answer:
        environment = self.environments.get(int(id))
        if environment is None:
            return _error(404, "Environment not found", "not_found")
        name = environment["name"]
        for machine in self._in(name):
            self._age(machine["id"])
        held = [each for group in (self.keys, self.volumes) for each in group.values()]
        if self._in(name) or any(each["environment"]["name"] == name for each in held):
            return _error(400, "The environment has resources", "bad_request")
        del self.environments[int(id)]
        return _ok()

    def _list_keys(self, request: Request, _: str) -> Answer:
        return _page("keypairs", list(self.keys.values()), request)

    def _add_key(self, request: Request, _: str) -> Answer:
        body = request.body
        environment = self._named(body["environment_name"])
        if environment is None:
            return _error(404, "Environment not found", "not_found")
        if any(each["name"] == body["name"] for each in self.keys.values()):
            return _error(409, "Keypair already exists", "already_exist")
        id = next(self._numbers)
        where = {"id": environment["id"], "name": environment["name"], "region": environment["region"]}
        made = {"id": id, "name": body["name"], "public_key": body["public_key"], "environment": where}
        self.keys[id] = made
        return _ok(keypair=made)

    def _named(self, environment: str) -> dict[str, Any] | None:
        return next((each for each in self.environments.values() if each["name"] == environment), None)

    def _delete_key(self, request: Request, id: str) -> Answer:
        return _error(404, "Not found", "not_found") if self.keys.pop(int(id), None) is None else _ok()

    def _list_volumes(self, request: Request, _: str) -> Answer:
        return _page("volumes", list(self.volumes.values()), request)

    def _delete_volume(self, request: Request, id: str) -> Answer:
        return _error(404, "Not found", "not_found") if self.volumes.pop(int(id), None) is None else _ok()

    def _list(self, request: Request, _: str) -> Answer:
        for id in list(self.machines):
            self._age(id)
        visible = [each for id, each in self.machines.items() if self._polls[id] > self.polls_to_appear]
        return _page("instances", visible, request)

    def _get(self, request: Request, id: str) -> Answer:
        if int(id) in self.machines:
            self._age(int(id))
        if int(id) not in self.machines or self._polls[int(id)] <= self.polls_to_appear:
            return _error(404, "Instance not found", "not_found")
        return _ok(instance=self.machines[int(id)])

    def _age(self, id: int) -> None:
        machine = self.machines[id]
        self._polls[id] += 1
        age = self._polls[id] - self.polls_to_appear
        if machine["status"] == "CREATING" and age > 1:
            machine["status"] = "BUILD"
        if machine["status"] == "BUILD" and age > self.polls_to_boot:
            if machine.pop("features", {}).get("fails"):
                machine["status"] = machine["vm_state"] = "ERROR"
                return
            machine |= {"status": "ACTIVE", "vm_state": "active", "power_state": "RUNNING"}
            machine |= {"fixed_ip": self._addresses[id] or f"10.0.0.{id % 250}", "floating_ip_status": "ATTACHING"}
        elif machine["status"] == "ACTIVE" and machine["floating_ip_status"] == "ATTACHING":
            public = self._addresses[id] or f"203.0.113.{id % 250}"
            machine |= {"floating_ip": public, "floating_ip_status": "ATTACHED"}
        elif machine["status"] == "DELETING" and self._polls[id] > self.polls_to_go:
            del self.machines[id]

    def _create(self, request: Request, _: str) -> Answer:
        body = request.body
        environment = self._named(body["environment_name"])
        key = next((each for each in self.keys.values() if each["name"] == body["key_name"]), None)
        if environment is None or key is None or key["environment"]["name"] != environment["name"]:
            return _error(404, "Environment or keypair not found", "not_found")
        if any(each["name"] == body["name"] for each in self.machines.values()):
            return _error(409, "Virtual machine already exists", "already_exist")
        if body["image_name"] not in _IMAGES or not 1 <= body["count"] <= 20:
            return _error(400, "Invalid image or count", "bad_request")
        if not self.balance:
            return _error(400, "Insufficient balance to create the resource", "bad_request")
        if len(self._in(environment["name"])) + body["count"] > self.most:
            return _error(400, "The request cannot be served.", "bad_request")
        kind = body["flavor_name"], environment["region"]
        flavor = next((each for each in self.flavors if (each["name"], each["region_name"]) == kind), None)
        if flavor is None:
            return _error(404, "Flavor not found", "not_found")
        fails = self.stock[kind] < body["count"]
        if fails and self.says_out_of_stock is not None:
            return _error(400, self.says_out_of_stock, "bad_request")
        self.stock[kind] -= 0 if fails else body["count"]
        made = [self._machine(body, environment, flavor, number, fails) for number in range(body["count"])]
        return _ok(instances=made)

    def _machine(
        self, body: dict[str, Any], environment: dict[str, Any], flavor: dict[str, Any], number: int, fails: bool
    ) -> dict[str, Any]:
        id = next(self._numbers)
        randomizes = self.randomizes or (body.get("enable_port_randomization", True) and body["assign_floating_ip"])
        rules = [{"id": next(self._numbers), "status": "SUCCESS", **each} for each in body.get("security_rules", ())]
        if randomizes:
            for rule in rules:
                if rule["port_range_min"] == rule["port_range_max"] == 22:
                    rule["port_range_min"] = rule["port_range_max"] = 20_000 + id % 1000
        self.machines[id] = {
            "id": id,
            "name": body["name"] if body["count"] == 1 else f"{body['name']}-{number}",
            "status": "CREATING",
            "vm_state": "building",
            "power_state": "NOSTATE",
            "environment": {name: environment[name] for name in ("id", "name", "region")},
            "flavor": {name: flavor[name] for name in ("id", "name", "cpu", "ram", "disk", "gpu", "gpu_count")},
            "image": {"name": body["image_name"]},
            "keypair": {"name": body["key_name"]},
            "labels": body.get("labels", []),
            "fixed_ip": None,
            "floating_ip": None,
            "floating_ip_status": None,
            "port_randomization": randomizes,
            "security_rules": rules,
            "volume_attachments": [],
            "features": {"fails": fails},
            "created_at": _now(),
        }
        self._addresses[id] = self.booted.boot(str(id), body["user_data"]) if self.booted is not None else ""
        self.user_data[id] = body.get("user_data", "")
        self._polls[id] = 0
        return self.machines[id]

    def _delete(self, request: Request, id: str) -> Answer:
        machine = self.machines.get(int(id))
        if machine is None:
            return _error(404, "Instance not found", "not_found")
        self._age(int(id))
        if machine["status"] in _PENDING:
            text = f"VM {machine['name']} is currently being created and cannot be deleted yet."
            return _error(409, text, "conflict")
        if self.booted is not None:
            self.booted.end(id)
        machine |= {"status": "DELETING", "floating_ip_status": "DETACHING"}
        self._polls[int(id)] = 0
        return _ok()


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _ok(**body: Any) -> Answer:
    return Answer(200, {"status": True, "message": "Success", **body})


def _error(status: int, message: str, reason: str) -> Answer:
    return Answer(status, {"status": False, "message": message, "error_reason": reason})


def _page(name: str, rows: list[dict[str, Any]], request: Request) -> Answer:
    """Return one page. The size is ten unless it is given."""
    query = request.query
    search, environment = query.get("search"), query.get("environment")
    rows = [each for each in rows if search is None or search in each["name"]]
    rows = [each for each in rows if environment is None or environment in each["environment"]["name"]]
    page, size = int(query.get("page", 1)), min(int(query.get("pageSize", 10)), 100)
    shown = rows[(page - 1) * size : page * size]
    return _ok(**{name: shown}, page=page, page_size=size, count=len(rows))


def _flavors() -> Iterator[dict[str, Any]]:
    rows = (
        ("n3-L40x1", "CANADA-1", "L40", 1, 8, 58, 100),
        ("n3-L40x1", "NORWAY-1", "L40", 1, 8, 58, 100),
        ("n3-H100x1", "CANADA-1", "H100-80G-PCIe", 1, 28, 180, 100),
        ("n3-H100x8", "CANADA-1", "H100-80G-PCIe", 8, 252, 1440, 100),
        ("n3-H100x1-spot", "CANADA-1", "H100-80G-PCIe", 1, 28, 180, 100),
        ("n1-cpu-small", "CANADA-1", "", 0, 4, 4, 100),
        ("n3-B900x1", "CANADA-1", "B900-1T", 1, 28, 180, 100),
    )
    for number, (name, region, gpu, gpus, cpus, ram, disk) in enumerate(rows):
        yield {
            "id": number,
            "name": name,
            "region_name": region,
            "gpu": gpu,
            "gpu_count": gpus,
            "cpu": cpus,
            "ram": ram,
            "disk": disk,
            "ephemeral": 0,
        }
