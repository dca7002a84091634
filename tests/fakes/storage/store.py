"""Moto's S3 in this process, as a store of a test's own buckets."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import boto3
from moto.server import ThreadedMotoServer

from skyward.specs.storage import Storage
from skyward.storage.location import BucketLocation

__all__ = ["ACCESS_KEY", "SECRET_KEY", "FakeStore", "object_store"]

ACCESS_KEY = "AKIAFAKEFAKEFAKEFAKE"
SECRET_KEY = "secret/Of+The/Store/0123456789abcdefghij"


class FakeStore:
    """A store.

    Attributes:
        url: its endpoint.
        client: the client of the vendor, to look at it from outside.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )

    def bucket(self) -> str:
        """Make a bucket."""
        name = f"bucket-{uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=name)
        return name

    def put(self, bucket: str, **objects: bytes) -> None:
        """Put objects, by key; keys that are no names go through `client`."""
        for key, body in objects.items():
            self.client.put_object(Bucket=bucket, Key=key, Body=body)

    def keys(self, bucket: str) -> list[str]:
        """Return the keys of a bucket."""
        return [each["Key"] for each in self.client.list_objects_v2(Bucket=bucket).get("Contents", ())]

    def get(self, bucket: str, key: str) -> bytes:
        """Return the content of an object."""
        body: bytes = self.client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body

    def uploads(self, bucket: str) -> list[Any]:
        """Return the unfinished uploads in parts."""
        return list(self.client.list_multipart_uploads(Bucket=bucket).get("Uploads", ()))

    def location(self, bucket: str, prefix: str = "", endpoint: str = "") -> BucketLocation:
        """Return a part of a bucket, through another endpoint if one is given."""
        return BucketLocation(bucket, prefix, endpoint or self.url, "us-east-1", True, ACCESS_KEY, SECRET_KEY)

    def storage(self, endpoint: str = "") -> Storage:
        """Return the store as a user has it."""
        return Storage.minio(endpoint or self.url, ACCESS_KEY, SECRET_KEY)


@contextmanager
def object_store(host: str = "127.0.0.1") -> Iterator[FakeStore]:
    """Run a store that listens at an address of this host."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=host, port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        store = FakeStore(f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}")
        try:
            yield store
        finally:
            store.client.close()
    finally:
        server.stop()
