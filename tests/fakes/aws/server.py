"""The server of the fake AWS, on 127.0.0.1."""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_api._internal.models import moto_api_backend
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from skyward.wire.transport.trust import Authority
from tests.fakes.aws.forms import Request
from tests.fakes.aws.shim import Shim, instances_of

if TYPE_CHECKING:
    from tests.fakes.server import Moment

__all__ = ["FakeAWS", "aws_server"]


class _Handler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Print nothing."""


class FakeAWS:
    """A running fake.

    Attributes:
        url: its address, for AWS_ENDPOINT_URL.
        shim: its faults, and what it was asked.
        environment: variables with which the SDK uses it.
        on_request: called before and after each call that changes something.
    """

    def __init__(self, url: str, shim: Shim, authorities: str) -> None:
        self.url = url
        self.shim = shim
        self.on_request: Callable[[Moment], None] = lambda moment: None
        shim.on_request = lambda moment: self.on_request(moment)
        self.environment = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
            "AWS_EC2_METADATA_DISABLED": "true",
            # Each client of the SDK reads the whole file, which takes longer than a call.
            "AWS_CA_BUNDLE": authorities,
        }

    def reset(self) -> None:
        """Forget everything."""
        with self.shim.lock:  # a request of the last test may be under way
            moto_api_backend.reset()
            self.shim.reset()

    @contextmanager
    def holding(self, action: str) -> Iterator[None]:
        """Hold the answers to a call within the block."""
        released, before = threading.Event(), self.on_request

        def hold(moment: "Moment") -> None:
            if moment == "after" and self.shim.requests[-1].action == action:
                released.wait()

        self.on_request = hold
        try:
            yield
        finally:
            self.on_request = before
            released.set()

    def asked(self, action: str) -> list[Request]:
        """Return the requests of one call, in order."""
        return [each for each in self.shim.requests if each.action == action]

    def machines(self, region: str = "us-east-1") -> list[Any]:
        """Return moto's machines that exist."""
        return [each for each in instances_of(region) if each.state != "terminated"]

    def tasks(self, region: str = "us-east-1") -> list[Any]:
        """Return moto's tasks that exist."""
        return self.shim.tasks.running(region)

    def left(self, region: str = "us-east-1") -> list[str]:
        """Return the ids of machines, templates, disks, images, snapshots, groups of pools, and what is in ECS."""
        backend = get_backend("ec2")[DEFAULT_ACCOUNT_ID][region]
        groups = [group for of_vpc in backend.groups.values() for group in of_vpc.values()]
        return [
            *(each.id for each in self.machines(region)),
            *backend.launch_templates,
            *(each for each, volume in [*backend.volumes.items()] if volume.get_tags()),
            *(each for each, image in [*backend.amis.items()] if image.get_tags()),
            *(each for each, snapshot in [*backend.snapshots.items()] if snapshot.get_tags()),
            *(group.id for group in groups if group.name != "default"),
            *self.shim.tasks.left(region),
        ]

    def template_data(self, version: int = -1, region: str = "us-east-1") -> Any:
        """Return the content of the only launch template, as moto read it."""
        (template,) = get_backend("ec2")[DEFAULT_ACCOUNT_ID][region].launch_templates.values()
        return template.versions[version].data


@contextmanager
def aws_server() -> Iterator[FakeAWS]:
    """Run a fake AWS."""
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    # Reset makes the thousand images that moto knows again: half a second.
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
    shim = Shim(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, shim, threaded=True, request_handler=_Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="fake-aws")
    thread.start()
    try:
        with NamedTemporaryFile(suffix=".pem") as authorities:
            authorities.write(Authority("aws", bytes(32)).issue("nobody").ca)
            authorities.flush()
            yield FakeAWS(f"http://127.0.0.1:{server.server_port}", shim, authorities.name)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        moto_api_backend.reset()
        del os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"]
