"""A fake of RunPod whose pods are data, in a process of its own; `GET /requests` returns all requests so far."""

import sys

from tests.fakes.openapi import description
from tests.fakes.runpod import FakeRunPod
from tests.fakes.server import Answer, Request

__all__: list[str] = []


class _Counted(FakeRunPod):
    """RunPod, which lists and forgets the requests that it has had."""

    def handle(self, request: Request) -> Answer:
        """Carry out a request."""
        if request.path != "/requests":
            return super().handle(request)
        seen = [(each.method, each.path, each.query, each.body) for each in self.requests[:-1]]
        self.requests.clear()
        return Answer(200, seen)


if __name__ == "__main__":
    published = description("runpod-openapi-v1.json"), description("runpod-openapi-v2.json")
    with _Counted(*published) as cloud:
        print(cloud.url, flush=True)
        sys.stdin.read()
