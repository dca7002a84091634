"""Deletion of objects, by the thousand where the store can."""

import base64
import hashlib
from collections.abc import Iterable
from functools import partial
from itertools import batched
from xml.sax.saxutils import escape

from skyward.errors import StorageError
from skyward.storage.client import BucketClient
from skyward.storage.jobs import run_jobs
from skyward.storage.location import BucketLocation, printable
from skyward.storage.replies import xml_of

__all__ = ["delete"]

_BATCH = 1000


def delete(location: BucketLocation, keys: Iterable[str], *, client: BucketClient | None = None) -> int:
    """Delete objects; those that are not there count as deleted. Return their number.

    Args:
        keys: relative to the prefix.

    Raises:
        StorageError: the store refuses; the error names the keys that may still be there.
    """
    if client is None:
        with BucketClient(location) as own:
            return delete(location, keys, client=own)
    count = 0
    for batch in batched(keys, _BATCH):
        whole = [location.root + key for key in batch]
        plain = [key for key in whole if key.isprintable()]
        odd = [key for key in whole if not key.isprintable()]  # XML cannot have all of their characters
        if len(plain) < 2 or not _delete_together(client, plain):
            odd = whole
        run_jobs((partial(_delete_one, client, key) for key in odd), client)
        count += len(whole)
    return count


def _delete_one(client: BucketClient, key: str) -> None:
    client.call("DELETE", key, accept=(404,))


def _delete_together(client: BucketClient, keys: list[str]) -> bool:
    """Delete objects with one request; return False if the store has no such request.

    Raises:
        StorageError: the store refuses some of them.
    """
    objects = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
    body = f"<Delete><Quiet>true</Quiet>{objects}</Delete>".encode()
    digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    reply = client.call("POST", None, [("delete", "")], body, {"content-md5": digest}, accept=(400, 404, 405, 411, 501))
    if reply.status >= 300:
        if reply.code == "NoSuchBucket":
            delete_error = f"There is no bucket {client.location.bucket!r} at {client.location.store}: check its name."
            raise StorageError(delete_error, code=reply.code)
        return False
    page = xml_of(reply.body)
    space = page.tag.partition("}")[0] + "}" if page.tag.startswith("{") else ""
    failed = [
        (each.findtext(f"{space}Key") or "", each.findtext(f"{space}Code") or "")
        for each in page.iterfind(f"{space}Error")
    ]
    if failed:
        key, code = failed[0]
        raise StorageError(
            f"{len(failed)} of {len(keys)} objects were not deleted, the first s3://{client.location.bucket}/"
            f"{printable(key)} ({code[:64]}).",
            code=code[:64],
            names=tuple(key for key, _ in failed),
        )
    return True
