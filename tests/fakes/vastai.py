"""A fake of Vast.ai: offers, instances and account keys in memory.

Each offer is one machine; renting it takes it off the market. Times are counted in reads of an instance, so that tests
wait for conditions and not for seconds.
"""

import base64
import gzip
import itertools
import json
import operator
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.fakes.openapi import Description
from tests.fakes.server import Answer, FakeServer, Request
from tests.machines.machine import Machine, Network

__all__ = ["KEY", "NO_CAPACITY", "FakeVastAI", "amend", "offer", "unpacked"]

KEY = "vast-test-key"

_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, wanted: value in wanted,
    "notin": lambda value, wanted: value not in wanted,
}

_DEFAULTS = {"rentable": {"eq": True}, "rented": {"eq": False}}
_NO_FILTERS = frozenset({"limit", "type", "order", "allocated_storage", "disable_bundling", "external"})
_FILTERABLE = frozenset({"actual_status", "gpu_name", "verification", "id", "label", "machine_id"})
_HOURS = 30 * 24
"""Hours of the month for which storage is priced."""

_LONGEST_ONSTART = 4048
_TOO_FAST = 429


def amend(document: dict[str, Any]) -> None:
    """Correct Vast.ai's description where it contradicts itself, or the vendor's own client."""
    instance = document["components"]["schemas"]["Instance"]["properties"]
    instance |= {"ports": {"type": ["object", "null"]}, "extra_env": {"type": "array"}}  # as in the list
    show = document["paths"]["/api/v0/instances/{id}"]["get"]["responses"]["200"]["content"]["application/json"]
    show["schema"] = {"type": "object"}  # one that is gone is null
    rent = document["paths"]["/api/v0/asks/{id}"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    rent["properties"]["runtype"]["enum"] += ["ssh_direc ssh_proxy"]  # the client's, for both routes of SSH
    found = {"required": True, "content": {"application/json": {"schema": {"properties": {"instance_ids": {}}}}}}
    document["paths"]["/api/v0/instances"] = {"delete": {"requestBody": found, "responses": {"200": {}}}}


def offer(id: int, gpu: str = "RTX 4090", count: int = 1, price: float = 0.4, **fields: Any) -> dict[str, Any]:
    """Return an offer as the market lists it."""
    memory = {"RTX 4090": 24564, "A100 SXM4": 81920, "H100 SXM": 81559}.get(gpu, 16384)
    return {
        "id": id, "ask_contract_id": id, "bundle_id": id + 500_000, "machine_id": id + 100, "host_id": 55,
        "gpu_name": gpu, "num_gpus": count, "gpu_ram": memory, "gpu_total_ram": memory * count, "gpu_frac": 1.0,
        "gpu_arch": "nvidia", "cpu_arch": "amd64", "cpu_name": "EPYC 7763", "cpu_cores": 32, "cpu_ram": 131072 * count,
        "cpu_cores_effective": 16.0 * count, "disk_space": 800.0, "dph_base": price, "min_bid": round(price / 2, 4),
        "storage_cost": 0.15, "is_bid": False, "rentable": True, "rented": False, "verification": "verified",
        "reliability2": 0.995, "geolocation": "Sweden, SE", "cuda_max_good": 12.8, "driver_version": "570.86.10",
        "direct_port_count": 40, "inet_down": 900.0, "inet_up": 700.0, "inet_down_cost": 0.002, "inet_up_cost": 0.002,
        "static_ip": False, "duration": 2_000_000.0, "public_ipaddr": "198.51.100.7", "score": 100.0 / price,
        **fields,
    }  # fmt: skip  # one field a line hides the offer


NO_CAPACITY = Answer(
    410, {"success": False, "error": "no_such_ask", "ask_id": 7001,
          "msg": "error 410/3907: no_such_ask Instance type 7001 is no longer available."}
)  # fmt: skip  # one sentence


def unpacked(onstart: str) -> str:
    """Return the script that a start command unpacks and runs."""
    found = re.fullmatch(r"echo (\S+) \| base64 -d \| gunzip \| sh", onstart)
    assert found is not None, onstart
    return gzip.decompress(base64.b64decode(found[1])).decode()


class FakeVastAI(FakeServer):
    """The service, with one account.

    Args:
        description: the published description; each request but those of the vendor's client, and each answer, is
            checked against it.
        network: a network for the machines of instances, which run their start script; without, they are data only.
        uv: program that machines have as uv.

    Attributes:
        wrong: violations of the description so far.
        offers, instances, keys: offers, existing instances and the account's SSH keys, by id.
        boot_reads: number of reads of an instance after which it runs.
        hidden_listings: number of listings in which a new instance is missing.
        intervals: minimum seconds between calls, by a pattern of "METHOD path"; none by default.
        address: returns address and port of the SSH server of an instance without a machine.
    """

    def __init__(self, description: Description, *, network: Network | None = None, uv: Path | None = None) -> None:
        super().__init__(network.address if network is not None else "127.0.0.1")
        self.wrong: list[str] = []
        self.offers: dict[int, dict[str, Any]] = {}
        self.instances: dict[int, dict[str, Any]] = {}
        self.keys: dict[int, dict[str, Any]] = {}
        self.boot_reads = 1
        self.hidden_listings = 0
        self.intervals: dict[str, float] = {}
        self.address: Callable[[dict[str, Any]], tuple[str, int]] = lambda instance: ("127.0.0.1", 9)
        self.machines: dict[int, Machine] = {}
        self._description = description
        self._network = network
        self._before = "/usr/sbin/sshd\n" + (f"ln -s {uv} /usr/local/bin/uv\n" if uv is not None else "")
        self._last: dict[str, float] = {}
        self._ids = itertools.count(1001)

    def add(self, *offers: dict[str, Any]) -> None:
        """Put offers on the market."""
        self.offers.update((each["id"], each) for each in offers)

    def outbid(self, id: int) -> None:
        """Pause an instance, as the market does when another bids more."""
        with self.frozen():
            self.instances[id] |= {"actual_status": "exited", "cur_state": "stopped", "ports": None}
            if id in self.machines:
                self.machines[id].kill()

    def handle(self, request: Request) -> Answer:
        """Carry out a request."""
        path = request.path.rstrip("/")
        try:
            if not request.headers.get("user-agent", "").startswith("vastai-"):
                self._description.check_request(request.method, path, request.query, request.body)
            answer = self._respond(request, path)
            if answer.status != _TOO_FAST:
                self._description.check_answer(request.method, path, answer.status, answer.body)
        except Exception as error:  # a violation of the description, or a request that the fake does not understand
            self.wrong.append(f"{request.method} {path}: {error!r}")
            return Answer(400, {"success": False, "error": "invalid_request", "msg": repr(error)})
        return answer

    def _respond(self, request: Request, path: str) -> Answer:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            if path == "/api/v0/bundles":
                return Answer(404, {"error": "auth_error", "msg": "Invalid user key"})
            return Answer(401, {"success": False, "error": "auth_error", "msg": "Invalid user key"})
        for call, interval in self.intervals.items():
            if re.fullmatch(call, f"{request.method} {path}"):
                now = time.monotonic()
                if now - self._last.get(call, float("-inf")) < interval:
                    return Answer(_TOO_FAST, f"API requests too frequent: endpoint threshold={interval}")
                self._last[call] = now
        for pattern, method in _ROUTES.items():
            if found := re.fullmatch(pattern, f"{request.method} {path}"):
                answer: Answer = method(self, request, *map(int, found.groups()))
                return answer
        return Answer(404, {"success": False, "error": "not_found", "msg": f"{request.method} {path}"})

    def _search(self, request: Request) -> Answer:
        wanted = {**_DEFAULTS, **(request.body or {})}
        bid, disk = wanted.get("type") == "bid", wanted.get("allocated_storage", 8.0)
        found = [_priced(each, disk, bid) for each in self.offers.values() if _fits(each, wanted)]
        for name, direction in reversed(wanted.get("order") or [["score", "desc"]]):
            found.sort(key=operator.itemgetter(name), reverse=direction == "desc")
        return Answer(200, {"offers": found[: wanted.get("limit") or 64]})

    def _rent(self, request: Request, id: int) -> Answer:
        asked, ask = request.body or {}, self.offers.get(id)
        if ask is None or ask["rented"] or not ask["rentable"]:
            text = f"error 404/3603: no_such_ask Instance type by id {id} is not available."
            return Answer(404, {"success": False, "error": "invalid_args", "msg": text, "ask_id": id})
        price = asked.get("price")
        if price is not None and price < ask["min_bid"]:
            text = f"error 400/3511: Invalid args: bid price must be at least {ask['min_bid']}"
            return Answer(400, {"success": False, "error": "invalid_price", "msg": text, "ask_id": id})
        if not asked.get("image") or len(asked.get("onstart") or "") > _LONGEST_ONSTART:
            text = "error 400/3467: Invalid args: image, or onstart longer than 4048"
            return Answer(400, {"success": False, "error": "invalid_args", "msg": text, "ask_id": id})
        if asked.get("disk", 8) > ask["disk_space"]:
            text = "error 400/3467: Invalid args: disk"
            return Answer(400, {"success": False, "error": "invalid_args", "msg": text, "ask_id": id})
        ask["rented"] = True
        number = next(self._ids)
        self.instances[number] = self._instance(number, ask, asked)
        if self._network is not None:
            variables = {"CONTAINER_ID": str(number), "CONTAINER_API_KEY": KEY, "CUDA_VERSION": "12.8.0"}
            start = f"{self._before}{asked['onstart']}\nexec sleep infinity\n"  # sshd is up first, with other keys
            self.machines[number] = self._network.add(start, variables)
        return Answer(200, {"success": True, "new_contract": number})

    def _instance(self, number: int, ask: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        price, env = asked.get("price"), asked.get("env") or {}
        priced = _priced({**ask, "dph_base": price or ask["dph_base"]}, asked.get("disk", 8), False)
        words = env.split() if isinstance(env, str) else []
        pairs = list(env.items()) if isinstance(env, dict) else list(itertools.pairwise(words))[::2]
        return {
            **{name: ask[name] for name in ("machine_id", "host_id", "gpu_name", "num_gpus", "gpu_ram", "min_bid")},
            **{name: ask[name] for name in ("public_ipaddr", "geolocation", "verification", "cpu_ram", "reliability2")},
            "id": number, "ask": ask["id"], "label": asked.get("label"), "is_bid": price is not None,
            "actual_status": None, "intended_status": "running", "cur_state": "running", "next_state": "running",
            "status_msg": None, "ssh_host": "ssh4.vast.ai", "ssh_port": 10_000 + number, "ports": None,
            "image_uuid": asked["image"], "image_runtype": asked.get("runtype") or "ssh",
            "extra_env": [list(pair) for pair in pairs], "onstart": asked.get("onstart") or "",
            "start_date": time.time(), "end_date": time.time() + ask["duration"], "disk_space": asked.get("disk", 8),
            "dph_base": priced["dph_base"], "dph_total": priced["dph_total"], "duration": ask["duration"],
            "reads": 0, "listings": 0,
        }  # fmt: skip  # one field a line hides the instance

    def _list(self, request: Request) -> Answer:
        filters = json.loads(request.query.get("select_filters") or "{}")
        if unknown := filters.keys() - _FILTERABLE:
            text = f"Error in query parameters: {min(unknown)} is not a valid search key"
            return Answer(400, {"error": "invalid_request", "msg": text})
        limit = min(int(request.query.get("limit") or 25), 25)
        after = int(base64.b64decode(request.query["after_token"])) if "after_token" in request.query else 0
        visible = []
        for each in self.instances.values():
            each["listings"] += not after
            if each["listings"] > self.hidden_listings and all(
                _OPERATORS[how](each.get(name), value) for name, way in filters.items() for how, value in way.items()
            ):
                visible.append(each)
        page = sorted((each for each in visible if each["id"] > after), key=operator.itemgetter("id"))
        more = base64.b64encode(str(page[limit - 1]["id"]).encode()).decode() if len(page) > limit else None
        rows = [self._read(each) for each in page[:limit]]
        return Answer(
            200,
            {
                "success": True,
                "instances_found": len(rows),
                "total_instances": len(visible),
                "label_counts": {},
                "next_token": more,
                "instances": rows,
            },
        )

    def _show(self, request: Request, id: int) -> Answer:
        found = self.instances.get(id)
        return Answer(200, {"instances": None if found is None else self._read(found)})

    def _read(self, instance: dict[str, Any]) -> dict[str, Any]:
        """Return an instance as answers have it, and let it proceed."""
        instance["reads"] += 1
        if instance["actual_status"] in (None, "loading"):
            instance["actual_status"] = "loading"
            if instance["reads"] > self.boot_reads:
                machine = self.machines.get(instance["id"])
                address, port = self.address(instance) if machine is None else (machine.address, 22)
                direct = "direc" in instance["image_runtype"] and self.offers[instance["ask"]]["direct_port_count"]
                instance |= {"actual_status": "running", "status_msg": "success, running", "public_ipaddr": address}
                if direct:
                    instance["ports"] = {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(port)}]}
                else:
                    instance |= {"ports": {}, "ssh_host": address, "ssh_port": port}
        return {name: value for name, value in instance.items() if name not in ("ask", "reads", "listings")}

    def _manage(self, request: Request, id: int) -> Answer:
        if id not in self.instances:
            return Answer(404, {"success": False, "error": "not_found", "msg": "Instance not found"})
        if "label" in request.body:
            self.instances[id]["label"] = request.body["label"]
        if state := request.body.get("state"):
            self.instances[id] |= {"intended_status": state, "actual_status": state, "cur_state": state}
        return Answer(200, {"success": True})

    def _destroy(self, request: Request, id: int) -> Answer:
        if id not in self.instances:
            return Answer(404, {"success": False, "error": "not_found", "msg": "Instance not found"})
        self._remove(id)
        return Answer(200, {"success": True, "msg": "Instance destroyed successfully"})

    def _destroy_many(self, request: Request) -> Answer:
        for id in request.body["instance_ids"]:
            if id in self.instances:
                self._remove(id)
        return Answer(200, {"success": True})

    def _remove(self, id: int) -> None:
        self.offers[self.instances.pop(id)["ask"]]["rented"] = False
        if id in self.machines:
            self.machines.pop(id).kill()

    def _user(self, request: Request) -> Answer:
        return Answer(
            200, {"id": 7, "key_id": 8, "email": "me@example.com", "balance": 12.5, "ssh_key": "", "sid": "1"}
        )

    def _add_key(self, request: Request) -> Answer:
        number = next(self._ids)
        self.keys[number] = {"id": number, "user_id": 7, "key": request.body["ssh_key"], "deleted_at": None}
        key = {"id": number, "user_id": 7, "public_key": request.body["ssh_key"], "deleted_at": None}
        return Answer(200, {"success": True, "key": key})

    def _list_keys(self, request: Request) -> Answer:
        return Answer(200, list(self.keys.values()))


_ROUTES: Mapping[str, Callable[..., Answer]] = {
    "POST /api/v0/bundles": FakeVastAI._search,
    r"PUT /api/v0/asks/(\d+)": FakeVastAI._rent,
    "GET /api/v1/instances": FakeVastAI._list,
    r"GET /api/v0/instances/(\d+)": FakeVastAI._show,
    r"PUT /api/v0/instances/(\d+)": FakeVastAI._manage,
    r"DELETE /api/v0/instances/(\d+)": FakeVastAI._destroy,
    "DELETE /api/v0/instances": FakeVastAI._destroy_many,
    "GET /api/v0/users/current": FakeVastAI._user,
    "POST /api/v0/ssh": FakeVastAI._add_key,
    "GET /api/v0/ssh": FakeVastAI._list_keys,
}


def _priced(ask: Mapping[str, Any], disk: float, bid: bool) -> dict[str, Any]:
    """Return an offer with its price in a market, for a disk of that size."""
    storage = ask["storage_cost"] * disk / _HOURS
    base = ask["min_bid"] if bid else ask["dph_base"]
    total = {"dph_base": base, "dph_total": base + storage, "storage_total_cost": storage, "is_bid": bid}
    return {**ask, **total, "reliability": ask["reliability2"]}


def _fits(ask: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    known = {
        **ask,
        "reliability": ask["reliability2"],
        "verified": ask["verification"] == "verified",
        "geolocation": ask["geolocation"].rpartition(",")[2].strip(),
        "dph_total": _priced(ask, wanted.get("allocated_storage", 8.0), wanted.get("type") == "bid")["dph_total"],
    }
    for name, way in wanted.items():
        if name in _NO_FILTERS:
            continue
        for how, value in way.items():
            if not _OPERATORS[how](known[name], _as_listed(value, known[name])):
                return False
    return True


def _as_listed(value: Any, listed: Any) -> Any:
    """Return a value of a filter as offers have it: names may have underscores, and numbers may be text."""
    if isinstance(value, list):
        return [_as_listed(each, listed) for each in value]
    if isinstance(value, str):
        return value.replace("_", " ") if isinstance(listed, str) else float(value)
    return value
