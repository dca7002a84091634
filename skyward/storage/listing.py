"""Objects below a location: listed page by page, looked up, and the check that a store answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import unquote_plus

from skyward.errors import StorageError
from skyward.storage.client import BucketClient
from skyward.storage.location import BucketLocation, printable
from skyward.storage.replies import NO_KEY, StoreReply, xml_of

__all__ = ["ObjectEntry", "check", "entry_of", "find", "head", "list_objects", "listed_keys", "safe_key"]

_PAGE = 1000
_CHECK_WITHIN = 15.0


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """Object of a store.

    Attributes:
        key: relative to the prefix of its location.
        size: in bytes.
        etag: version tag of its content, with its quotes; "" if the store has none.
        modified: time of its last change, seconds since the epoch; 0 if not known.
    """

    key: str
    size: int
    etag: str = ""
    modified: float = 0.0


def list_objects(location: BucketLocation, *, client: BucketClient | None = None) -> Iterator[ObjectEntry]:
    """Yield the objects below a location, in the order of their keys, as pages arrive.

    Objects that only mark a folder, whose keys end with a slash, are left out.

    Raises:
        StorageError: the store refuses, or a key could not be a file below a folder.
    """
    for entry in listed_keys(location, client=client):
        if not entry.key.endswith("/") and entry.key:
            safe_key(location, entry.key)
            yield entry


def listed_keys(
    location: BucketLocation, start: str = "", *, client: BucketClient | None = None
) -> Iterator[ObjectEntry]:
    """Yield all objects below a location whose relative keys begin with `start`, with any keys, as pages arrive.

    Raises:
        StorageError: the store refuses.
    """
    if client is None:
        with BucketClient(location) as own:
            yield from listed_keys(location, start, client=own)
        return
    root = location.root
    query = [("list-type", "2"), ("prefix", root + start), ("max-keys", str(_PAGE)), ("encoding-type", "url")]
    after = ""
    while True:
        reply = client.call("GET", query=[*query, ("continuation-token", after)] if after else query)
        entries, after = _page(reply, len(root))
        yield from entries
        if not after:
            return


def _page(reply: StoreReply, cut: int) -> tuple[list[ObjectEntry], str]:
    """Return the objects of a page and the token of the next one; `cut`: length of the root."""
    page = xml_of(reply.body)
    space = page.tag.partition("}")[0] + "}" if page.tag.startswith("{") else ""
    is_encoded = page.findtext(f"{space}EncodingType") == "url"
    found = []
    for each in page.iterfind(f"{space}Contents"):
        key = each.findtext(f"{space}Key") or ""
        key = unquote_plus(key) if is_encoded else key
        modified = each.findtext(f"{space}LastModified")
        found.append(
            ObjectEntry(
                key[cut:],
                int(each.findtext(f"{space}Size") or 0),
                each.findtext(f"{space}ETag") or "",
                datetime.fromisoformat(modified).timestamp() if modified else 0.0,
            )
        )
    is_last = (page.findtext(f"{space}IsTruncated") or "false").lower() != "true"
    return found, "" if is_last else page.findtext(f"{space}NextContinuationToken") or ""


def find(location: BucketLocation, key: str, *, client: BucketClient | None = None) -> ObjectEntry | None:
    """Return an object; None if there is none of this key.

    Args:
        key: relative to the prefix.

    Raises:
        StorageError: the store refuses, or there is no such bucket.
    """
    if client is None:
        with BucketClient(location) as own:
            return find(location, key, client=own)
    reply = client.call("HEAD", location.root + key, accept=(404,))
    if reply.status != 404:
        return entry_of(reply, key)
    client.call("GET", query=[("list-type", "2"), ("max-keys", "1")], accept=(403,))  # is there such a bucket?
    return None


def head(location: BucketLocation, key: str, *, client: BucketClient | None = None) -> ObjectEntry:
    """Return an object.

    Args:
        key: relative to the prefix.

    Raises:
        StorageError: there is no such object, or the store refuses.
    """
    found = find(location, key, client=client)
    if found is None:
        raise StorageError(
            f"There is no object {location.address(key)}: check its key, which is case-sensitive.", code=NO_KEY
        )
    return found


def entry_of(reply: StoreReply, key: str) -> ObjectEntry:
    """Return the object that a reply describes by its headers."""
    headers = reply.headers
    told = headers.get("last-modified") or headers.get("date") or ""
    try:
        modified = parsedate_to_datetime(told).timestamp() if told else 0.0
    except ValueError:
        modified = 0.0
    return ObjectEntry(key, int(headers.get("content-length") or 0), headers.get("etag", ""), modified)


def check(location: BucketLocation, *, within: float = _CHECK_WITHIN) -> BucketLocation:
    """Check that the store answers, and that the credentials may list the prefix. Return the location with its region.

    Args:
        within: seconds that it may take.

    Raises:
        StorageError: it does not: one sentence about the endpoint, the region, the bucket or the credentials.
    """
    from dataclasses import replace

    with BucketClient(location, first_reply=within, patience=within) as client:
        client.call("GET", query=[("list-type", "2"), ("max-keys", "1"), ("prefix", location.root)])
        return replace(location, region=client.region)


def safe_key(location: BucketLocation, key: str) -> str:
    """Return a relative key that may be the path of a file below a folder.

    Raises:
        StorageError: it may not: it would be a file elsewhere, or the same file as that of another key.
    """
    if any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key:
        raise StorageError(
            f"The object {location.address(key)!r} cannot be a file below a folder, because a part of its key is "
            "empty, '.' or '..': rename it in the store, or choose a prefix without it.",
            names=(printable(key),),
        )
    return key
