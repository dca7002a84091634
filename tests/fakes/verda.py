"""A fake of Verda: types, stock, keys, scripts, instances and volumes in memory.

There is no public description of its API. Its fields are those that the vendor's client sends and reads; a request with
any other is refused.
"""

import itertools
import re
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.fakes.server import Answer, FakeServer, Request
from tests.machines.machine import Machine, Network

__all__ = ["CLIENT", "NO_CAPACITY", "SECRET", "FakeVerda", "instance_type", "refusal"]

CLIENT, SECRET = "test-client", "test-secret"

_CREATE_FIELDS = frozenset(
    {
        *("instance_type", "image", "hostname", "description", "ssh_key_ids", "startup_script_id", "location_code"),
        *("os_volume", "volumes", "existing_volumes", "is_spot", "coupon", "contract", "pricing"),
    }
)
_ON_DISCONTINUE = ("keep_detached", "move_to_trash", "delete_permanently")
_LOCATIONS = ("FIN-01", "FIN-02", "FIN-03", "ICE-01")


def instance_type(name: str, price: float, spot: float, gpu: str = "", **fields: Any) -> dict[str, Any]:
    """Return a type as the catalogue lists it; its name says the number of GPUs and of CPUs."""
    gpus, cpus = int((re.match(r"\d+", name) or [0])[0]), int(re.findall(r"(\d+)V", name)[-1])
    memory = int(found[1]) if (found := re.search(r"\.(\d+)S", name)) else 16
    return {
        "id": f"id-{name}", "instance_type": name, "price_per_hour": f"{price:.4f}", "spot_price": f"{spot:.4f}",
        "description": f"{gpu or 'CPU'} {name}", "model": gpu or "CPU node", "name": gpu or "CPU node", "p2p": "",
        "cpu": {"description": f"{cpus} CPU", "number_of_cores": cpus},
        "gpu": {"description": f"{gpus}x {gpu}" if gpu else "", "number_of_gpus": gpus if gpu else 0},
        "memory": {"description": f"{cpus * 6}GB RAM", "size_in_gigabytes": cpus * 6},
        "gpu_memory": {"description": "", "size_in_gigabytes": memory * gpus if gpu else 0},
        "storage": {"description": "dynamic"}, "best_for": [], "currency": "usd", "manufacturer": "NVIDIA",
        "display_name": gpu or "CPU node", "supported_os": ["ubuntu-24.04", "ubuntu-24.04-cuda-12.8-open"], **fields,
    }  # fmt: skip  # one field a line hides the type


class FakeVerda(FakeServer):
    """The service, with one project.

    Args:
        network: a network for machines, which run their startup script; without, they are data only.
        uv: program that machines have as uv.

    Attributes:
        wrong: requests that the fake does not understand.
        types: types by name.
        stock: number of machines left, by (type, location, is it spot).
        instances: instances by id, discontinued ones too.
        volumes, keys, scripts: the other resources by id. Volumes in the trash have the status "deleted".
        boot_reads: number of reads of an instance after which it runs.
        forbidden: status of answers with "forbidden_action", which is not documented.
        token_life: seconds that an access token is valid.
        address: returns the address of a new instance.
    """

    def __init__(self, *, network: Network | None = None, uv: Path | None = None) -> None:
        super().__init__(network.address if network is not None else "127.0.0.1")
        self.wrong: list[str] = []
        self.machines: dict[str, Machine] = {}
        self._network = network
        self._before = "/usr/sbin/sshd\n" + (f"ln -s {uv} /usr/local/bin/uv\n" if uv is not None else "")
        self.types: dict[str, dict[str, Any]] = {}
        self.stock: dict[tuple[str, str, bool], int] = {}
        self.instances: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.scripts: dict[str, dict[str, Any]] = {}
        self.boot_reads = 1
        self.forbidden = 400
        self.token_life = 3600
        self.address: Callable[[dict[str, Any]], str] = lambda instance: "127.0.0.1"
        self._tokens: set[str] = set()
        self._refresh_tokens: set[str] = set()
        self._number = itertools.count(1)

    @property
    def base_url(self) -> str:
        """Address that clients take in place of the vendor's."""
        return f"{self.url}/v1"

    def add(self, kind: Mapping[str, Any], *, location: str = "FIN-01", on_demand: int = 0, spot: int = 0) -> None:
        """Put machines of a type into stock."""
        name = kind["instance_type"]
        self.types[name] = dict(kind)
        self.stock[name, location, False] = on_demand
        self.stock[name, location, True] = spot

    def expire_tokens(self, *, refresh: bool = False) -> None:
        """Make all access tokens invalid, and the tokens that renew them too, if asked."""
        self._tokens.clear()
        if refresh:
            self._refresh_tokens.clear()

    def evict(self, id: str) -> None:
        """Take a spot machine back; its OS volume goes where its creator said."""
        found = self.instances[id]
        found |= {"status": "discontinued", "ip": None}
        if id in self.machines:
            self.machines.pop(id).kill()
        then = self.volumes[found["os_volume_id"]]["then"]
        self._drop_volume(found["os_volume_id"], permanently=then == "delete_permanently", keep=then == "keep_detached")

    @property
    def billed(self) -> dict[str, list[str]]:
        """Names of everything that exists, by kind."""
        alive = [each["hostname"] for each in self.instances.values() if each["status"] != "discontinued"]
        return {
            "instances": alive,
            "volumes": [each["name"] for each in self.volumes.values()],
            "keys": [each["name"] for each in self.keys.values()],
            "scripts": [each["name"] for each in self.scripts.values()],
        }

    def handle(self, request: Request) -> Answer:
        """Carry out a request."""
        try:
            return self._respond(request)
        except Exception as error:  # a request that the fake does not understand
            self.wrong.append(f"{request.method} {request.path}: {error!r}")
            return refusal(400, "invalid_request", repr(error))

    def _respond(self, request: Request) -> Answer:
        if request.path == "/v1/oauth2/token":
            return self._token(request)
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self._tokens:
            return refusal(401, "unauthorized_request", "Access token is invalid")
        for pattern, handle in _ROUTES.items():
            if found := re.fullmatch(pattern, f"{request.method} {request.path}"):
                reply: Answer = handle(self, request, *found.groups())
                return reply
        return refusal(404, "not_found", f"{request.method} {request.path}")

    def _token(self, request: Request) -> Answer:
        match request.body:
            case {"grant_type": "client_credentials", "client_id": str(name), "client_secret": str(secret)}:
                if (name, secret) != (CLIENT, SECRET):
                    return refusal(401, "unauthorized_request", "Invalid client id or client secret")
            case {"grant_type": "refresh_token", "refresh_token": str(token)}:
                if token not in self._refresh_tokens:
                    return refusal(401, "unauthorized_request", "Invalid refresh token")
            case _:
                return refusal(400, "invalid_request", "Invalid grant type")
        access, refresh = f"access-{uuid.uuid4()}", f"refresh-{uuid.uuid4()}"
        self._tokens.add(access)
        self._refresh_tokens.add(refresh)
        words = {"scope": "cloud-api-v1", "token_type": "Bearer", "expires_in": self.token_life}
        return Answer(200, {"access_token": access, "refresh_token": refresh, **words})

    def _types(self, request: Request) -> Answer:
        return Answer(200, list(self.types.values()))

    def _availability(self, request: Request) -> Answer:
        spot = request.query.get("isSpot") == "true"
        wanted = request.query.get("location_code")
        rows = [
            {
                "location_code": place,
                "availabilities": [
                    name
                    for (name, where, market), left in self.stock.items()
                    if (where, market) == (place, spot) and left
                ],
            }
            for place in _LOCATIONS
            if wanted in (None, place)
        ]
        return Answer(200, rows)

    def _available(self, request: Request, name: str) -> Answer:
        spot, place = request.query.get("isSpot") == "true", request.query.get("location_code")
        found = any(
            left and (kind, market) == (name, spot) and place in (None, where)
            for (kind, where, market), left in self.stock.items()
        )
        return Answer(200, found)

    def _images(self, request: Request) -> Answer:
        names = ("ubuntu-24.04", "ubuntu-24.04-cuda-12.8-open", "ubuntu-22.04-cuda-12.4")
        return Answer(200, [{"id": f"i-{n}", "name": n, "image_type": n, "details": []} for n in names])

    def _locations(self, request: Request) -> Answer:
        return Answer(200, [{"code": each, "name": each, "country_code": each[:2]} for each in _LOCATIONS])

    def _balance(self, request: Request) -> Answer:
        return Answer(200, {"amount": 12.5, "currency": "usd"})

    def _create(self, request: Request) -> Answer:
        asked = request.body
        if problem := self._problem(asked):
            return refusal(400, "invalid_request", problem)
        name, place, spot = asked["instance_type"], asked.get("location_code") or "FIN-03", bool(asked.get("is_spot"))
        if not self.stock.get((name, place, spot)):
            gpus = self.types[name]["gpu"]["number_of_gpus"]
            text = f"Not enough resources to deploy a {gpus} GPU instance type {name} in {place}"
            return refusal(503, "service_unavailable", text)
        self.stock[name, place, spot] -= 1
        number, id = next(self._number), str(uuid.uuid4())
        os_volume = asked.get("os_volume") or {"name": f"OS-{asked['hostname']}", "size": 50}
        disk = str(uuid.uuid4())
        self.volumes[disk] = {
            "id": disk, "status": "attached", "name": os_volume["name"], "size": os_volume["size"], "type": "NVMe",
            "is_os_volume": True, "created_at": "2026-11-01T10:00:00.000Z", "target": "vda", "location": place,
            "instance_id": id, "ssh_key_ids": asked.get("ssh_key_ids", []),
            "then": os_volume.get("on_spot_discontinue") or "keep_detached",
        }  # fmt: skip  # one field a line hides the volume
        kind = self.types[name]
        self.instances[id] = {
            **{part: kind[part] for part in ("cpu", "gpu", "memory", "storage", "gpu_memory")},
            "id": id, "instance_type": name, "hostname": asked["hostname"], "description": asked["description"],
            "price_per_hour": float(kind["spot_price" if spot else "price_per_hour"]), "status": "ordered",
            "created_at": f"2026-11-01T10:00:{number % 60:02}.000Z", "ssh_key_ids": asked.get("ssh_key_ids", []),
            "ip": None, "os_volume_id": None, "location": place, "image": asked["image"], "is_spot": spot,
            "startup_script_id": asked.get("startup_script_id"), "contract": "SPOT" if spot else "PAY_AS_YOU_GO",
            "pricing": "FIXED_PRICE", "reads": 0, "disk": disk,
        }  # fmt: skip  # one field a line hides the instance
        if self._network is not None:
            script = self.scripts[asked["startup_script_id"]]["script"]
            self.machines[id] = self._network.add(f"{self._before}{script}\nexec sleep infinity\n")
        return Answer(202, id, {"content-type": "text/html; charset=utf-8"})  # as common servers send plain text

    def _problem(self, asked: Any) -> str:
        """Return why a request for an instance is invalid; "" if it is not."""
        if not isinstance(asked, dict) or (unknown := asked.keys() - _CREATE_FIELDS):
            return f"property {min(unknown)} should not exist" if isinstance(asked, dict) else "no body"
        for name in ("instance_type", "image", "hostname", "description"):
            if not isinstance(asked.get(name), str) or not asked[name]:
                return f"{name} should not be empty"
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", asked["hostname"]):
            return "hostname must be a valid hostname"
        if asked["instance_type"] not in self.types:
            return "Invalid instance type"
        if asked["image"] not in self.types[asked["instance_type"]]["supported_os"]:
            return "Invalid image"
        if unknown := set(asked.get("ssh_key_ids") or ()) - self.keys.keys():
            return f"Invalid ssh-key id {min(unknown)}"
        if asked.get("startup_script_id") not in (None, *self.scripts):
            return "Invalid startup script id"
        disk = asked.get("os_volume")
        if disk is not None and (disk.keys() - {"name", "size", "on_spot_discontinue"} or not disk.get("size")):
            return "os_volume is invalid"
        if disk is not None and disk.get("on_spot_discontinue") not in (None, *_ON_DISCONTINUE):
            return "on_spot_discontinue is invalid"
        return ""

    def _list(self, request: Request) -> Answer:
        wanted = request.query.get("status")
        found = [each for each in self.instances.values() if each["status"] != "discontinued"]
        rows = [self._read(each) for each in found]
        return Answer(200, [each for each in rows if wanted in (None, each["status"])])

    def _show(self, request: Request, id: str) -> Answer:
        if id not in self.instances:
            return refusal(404, "not_found", "Instance not found")
        return Answer(200, self._read(self.instances[id]))

    def _read(self, instance: dict[str, Any]) -> dict[str, Any]:
        """Return an instance as answers have it, and let it proceed."""
        instance["reads"] += 1
        if instance["status"] in ("ordered", "provisioning"):
            instance["status"] = "provisioning"
            instance["os_volume_id"] = instance["disk"]
            if instance["reads"] > self.boot_reads:
                machine = self.machines.get(instance["id"])
                address = self.address(instance) if machine is None else machine.address
                instance |= {"status": "running", "ip": address}
        return {name: value for name, value in instance.items() if name not in ("reads", "disk")}

    def _act(self, request: Request) -> Answer:
        asked = request.body
        ids = [asked["id"]] if isinstance(asked["id"], str) else asked["id"]
        if asked.keys() - {"id", "action", "volume_ids", "delete_permanently"} or asked["action"] != "delete":
            return refusal(400, "invalid_request", "Invalid action")
        for id in ids:
            if id not in self.instances:
                return refusal(404, "not_found", "Instance not found")
            if self.instances[id]["status"] == "discontinued":
                return refusal(self.forbidden, "forbidden_action", "Can't discontinue a discontinued instance")
        for id in ids:
            found = self.instances[id]
            found |= {"status": "discontinued", "ip": None}
            if id in self.machines:
                self.machines.pop(id).kill()
            for (name, place, spot), left in self.stock.items():
                if (name, place, spot) == (found["instance_type"], found["location"], found["is_spot"]):
                    self.stock[name, place, spot] = left + 1
            if found["disk"] in self.volumes and found["disk"] not in (asked.get("volume_ids") or ()):
                self._drop_volume(found["disk"], permanently=False, keep=True)
        for volume in asked.get("volume_ids") or ():
            if volume in self.volumes:
                self._drop_volume(volume, permanently=bool(asked.get("delete_permanently")))
        return Answer(202, "")

    def _drop_volume(self, id: str, *, permanently: bool, keep: bool = False) -> None:
        if permanently:
            del self.volumes[id]
        else:
            self.volumes[id] |= {"status": "detached" if keep else "deleted", "instance_id": None}

    def _list_volumes(self, request: Request) -> Answer:
        return Answer(200, [_volume(each) for each in self.volumes.values() if each["status"] != "deleted"])

    def _trash(self, request: Request) -> Answer:
        return Answer(200, [_volume(each) for each in self.volumes.values() if each["status"] == "deleted"])

    def _delete_volume(self, request: Request, id: str) -> Answer:
        if id not in self.volumes:
            return refusal(404, "not_found", "Volume not found")
        if self.volumes[id]["status"] == "attached":
            return refusal(self.forbidden, "forbidden_action", "Can't delete an attached volume")
        self._drop_volume(id, permanently=bool((request.body or {}).get("is_permanent")))
        return Answer(202, "")

    def _add_key(self, request: Request) -> Answer:
        if not re.fullmatch(r"ssh-\w+ \S+( .*)?", request.body["key"].strip()):
            return refusal(400, "invalid_request", "Invalid ssh public key format")
        id = str(uuid.uuid4())
        self.keys[id] = {"id": id, "name": request.body["name"], "key": request.body["key"], "fingerprint": "aa:bb"}
        return Answer(201, id)

    def _add_script(self, request: Request) -> Answer:
        id = str(uuid.uuid4())
        self.scripts[id] = {"id": id, "name": request.body["name"], "script": request.body["script"]}
        return Answer(201, id)

    def _keys(self, request: Request) -> Answer:
        return Answer(200, list(self.keys.values()))

    def _scripts(self, request: Request) -> Answer:
        return Answer(200, list(self.scripts.values()))

    def _delete_key(self, request: Request, id: str) -> Answer:
        return _removed(self.keys, id)

    def _delete_script(self, request: Request, id: str) -> Answer:
        return _removed(self.scripts, id)


_ROUTES: Mapping[str, Callable[..., Answer]] = {
    "GET /v1/instance-types": FakeVerda._types,
    "GET /v1/instance-availability": FakeVerda._availability,
    "GET /v1/instance-availability/([^/]+)": FakeVerda._available,
    "GET /v1/images": FakeVerda._images,
    "GET /v1/locations": FakeVerda._locations,
    "GET /v1/balance": FakeVerda._balance,
    "POST /v1/instances": FakeVerda._create,
    "GET /v1/instances": FakeVerda._list,
    "GET /v1/instances/([^/]+)": FakeVerda._show,
    "PUT /v1/instances": FakeVerda._act,
    "GET /v1/volumes": FakeVerda._list_volumes,
    "GET /v1/volumes/trash": FakeVerda._trash,
    "DELETE /v1/volumes/([^/]+)": FakeVerda._delete_volume,
    "GET /v1/sshkeys": FakeVerda._keys,
    "POST /v1/sshkeys": FakeVerda._add_key,
    "DELETE /v1/sshkeys/([^/]+)": FakeVerda._delete_key,
    "GET /v1/scripts": FakeVerda._scripts,
    "POST /v1/scripts": FakeVerda._add_script,
    "DELETE /v1/scripts/([^/]+)": FakeVerda._delete_script,
}


def refusal(status: int, code: str, message: str) -> Answer:
    """Return an error as Verda answers it."""
    return Answer(status, {"code": code, "message": message})


NO_CAPACITY = refusal(
    503, "service_unavailable", "Not enough resources to deploy a 1 GPU instance type 1H100.80S.32V in FIN-01"
)


def _removed(things: dict[str, dict[str, Any]], id: str) -> Answer:
    if things.pop(id, None) is None:
        return refusal(404, "not_found", "Not found")
    return Answer(200, "")


def _volume(volume: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in volume.items() if name != "then"}
