"""An object store for tests: moto's server, with a bucket."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import skyward as sky

__all__ = ["ACCESS_KEY", "SECRET_KEY", "Bucket", "object_store"]

ACCESS_KEY = "AKIAVOLUMETEST"
SECRET_KEY = "volume-secret-which-must-not-leak"


@dataclass(frozen=True)
class Bucket:
    """A bucket of a store.

    Attributes:
        name: its name.
        endpoint: address of the store on loopback.
        port: its port.
        client: client of boto3.
    """

    name: str
    endpoint: str
    port: int
    client: Any

    def storage(self, host: str = "127.0.0.1") -> sky.Storage:
        """Return the store as users write it, at an address of this host."""
        return sky.Storage.minio(f"http://{host}:{self.port}", ACCESS_KEY, SECRET_KEY)

    def put(self, key: str, data: bytes | str) -> None:
        """Write an object."""
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        """Read an object."""
        content: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return content

    def clear(self) -> None:
        """Delete all objects."""
        for key in self.keys():
            self.client.delete_object(Bucket=self.name, Key=key)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of the objects, without those that mark folders."""
        found = self.client.list_objects_v2(Bucket=self.name, Prefix=prefix).get("Contents", [])
        return sorted(each["Key"] for each in found if not each["Key"].endswith("/"))


@contextlib.contextmanager
def object_store(host: str = "127.0.0.1", name: str = "bucket") -> Iterator[Bucket]:
    """Run a server with an empty bucket."""
    import boto3
    from botocore.config import Config
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address=host, port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        endpoint = f"http://127.0.0.1:{port}" if host == "0.0.0.0" else f"http://{host}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2}),
        )
        client.create_bucket(Bucket=name)
        yield Bucket(name, endpoint, port, client)
        client.close()
    finally:
        server.stop()
