"""`python -m benchmarks.cloud_client URL COUNT`: rent machines of a fake RunPod, wait until they run, remove them.

Prints JSON: the seconds, the CPU seconds and the growth of the peak memory of this process, in MB; then the same for
the bare requests, sent one after another by `http.client`. The requests are those that the fake has seen.
"""

import asyncio
import http.client
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from skyward.control.act.machines.booting import until_running
from skyward.control.act.nodes.launching import Launcher, launchers_of
from skyward.journal import PoolRecord
from skyward.specs import Options, Spec
from skyward_providers.runpod import RunPod
from tests.fakes.runpod import KEY

__all__ = ["main"]

WITHIN = 60.0


def main(url: str, count: int) -> dict[str, Any]:
    """Return the costs of the launch, of the end, and of the bare requests."""
    asyncio.run(_rent(url, 1))  # imports, and the connection's certificates
    _requests(url)
    ours = _costs(lambda: asyncio.run(_rent(url, count)))
    requests = _requests(url)
    bare = _costs(lambda: _bare(url, requests))
    return {"ours": ours, "bare": bare, "requests": len(requests)}


async def _rent(url: str, count: int) -> None:
    spec = Spec(provider=RunPod(api_key=KEY, endpoint=url), accelerator="RTX_4090", nodes=count)
    options = Options()
    record = PoolRecord.new("bench", {"": [spec]}, options, spec.ttl)
    launcher = launchers_of(record, {"": [spec]}, options)[""]
    await launcher.prepare()
    machines = await launcher.provision(launcher.sources[0], count)
    assert len(machines) == count
    await asyncio.gather(*(until_running(each, launcher.state_of, WITHIN) for each in machines))
    await _end(launcher, machines)


async def _end(launcher: Launcher, machines: Sequence[Any]) -> None:
    await asyncio.gather(*map(launcher.terminate, machines))
    await launcher.teardown()


def _bare(url: str, requests: Sequence[Any]) -> None:
    """Send the requests; those for a pod go to one of the new pods."""
    place = urlsplit(url)
    made: list[str] = []
    for method, path, query, body in requests:
        connection = http.client.HTTPConnection(place.hostname or "", place.port)
        where = f"/v1/pods/{made.pop()}" if method == "DELETE" else path
        text = None if body is None else json.dumps(body)
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        connection.request(method, f"{where}?{urlencode(query)}" if query else where, text, headers)
        answer = connection.getresponse().read()
        if method == "POST" and path == "/v1/pods":
            made.append(json.loads(answer)["id"])
        elif answer:
            json.loads(answer)
        connection.close()


def _requests(url: str) -> Any:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port)
    connection.request("GET", "/requests", headers={"authorization": f"Bearer {KEY}"})
    return json.loads(connection.getresponse().read())


def _costs(call: Callable[[], None]) -> dict[str, float]:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    return {"seconds": wall, "cpu": cpu, "megabytes": grown / 1024}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
