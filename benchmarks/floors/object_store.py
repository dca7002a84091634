"""An object store in memory, as fast as one process may be: it checks nothing. Run as a module, it is the server."""

import contextlib
import re
import socket
import sys
import threading
from collections.abc import Mapping
from email.utils import formatdate
from hashlib import blake2b
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

__all__: list[str] = []

NOW = formatdate(usegmt=True)
LISTED_AT = "2026-01-01T00:00:00.000Z"
PAGE = 1000
SHORT = 65_536

objects: dict[str, bytes] = {}
"""Content by bucket and key."""

uploads: dict[str, dict[int, bytes]] = {}
"""Parts by upload and number."""


def etag(body: bytes) -> str:
    """Return a version tag that no client takes for an MD5."""
    return f'"{blake2b(body[:64], digest_size=16).hexdigest()}-{len(body)}"'


def serve(connection: socket.socket) -> None:
    """Answer the requests of a connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb", buffering=1 << 16) as reader, contextlib.suppress(OSError):
        while first := reader.readline().decode("latin-1"):
            method, target, _ = first.split(" ")
            headers: dict[str, str] = {}
            while line := reader.readline().decode("latin-1").strip():
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            if headers.get("expect"):
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = reader.read(int(headers.get("content-length") or 0))
            path, _, query = target.partition("?")
            parsed = parse_qs(query, keep_blank_values=True)
            reply(connection, method, unquote(path.strip("/")), parsed, headers, body)


def reply(
    connection: socket.socket,
    method: str,
    key: str,
    query: Mapping[str, list[str]],
    headers: Mapping[str, str],
    body: bytes,
) -> None:
    """Answer a request."""
    match method:
        case "PUT" if "partNumber" in query:
            uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
            send(connection, 200, headers={"etag": etag(body)})
        case "PUT":
            if "/" in key:
                objects[key] = body
            send(connection, 200, headers={"etag": etag(body)})
        case "POST" if "uploads" in query:
            name = str(len(uploads))
            uploads[name] = {}
            bucket, _, own = key.partition("/")
            send(connection, 200, f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(own)}</Key>"
                 f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>".encode())  # fmt: skip
        case "POST":
            parts = uploads.pop(query["uploadId"][0])
            objects[key] = b"".join(parts[number] for number in sorted(parts))
            tag = escape(etag(objects[key]))
            send(
                connection,
                200,
                f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>".encode(),
            )
        case "DELETE":
            objects.pop(key, None)
            send(connection, 204)
        case _ if "/" not in key:
            send(connection, 200, listing(key, query))
        case _:
            content = objects.get(key)
            if content is None:
                send(connection, 404, b"<Error><Code>NoSuchKey</Code></Error>", is_head=method == "HEAD")
                return
            shared = {"etag": etag(content), "last-modified": NOW, "accept-ranges": "bytes"}
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
            if found is None:
                send(connection, 200, content, shared, is_head=method == "HEAD")
                return
            start, end = int(found[1]), min(int(found[2] or len(content)), len(content) - 1)
            shared["content-range"] = f"bytes {start}-{end}/{len(content)}"
            send(connection, 206, memoryview(content)[start : end + 1], shared)


def listing(bucket: str, query: Mapping[str, list[str]]) -> bytes:
    """Return a page of the objects of a bucket, of either version of the request."""
    prefix = query.get("prefix", [""])[0]
    after = (query.get("continuation-token") or query.get("marker") or query.get("start-after") or [""])[0]
    cut = len(bucket) + 1
    keys = sorted(key[cut:] for key in tuple(objects) if key.startswith(f"{bucket}/{prefix}") and key[cut:] > after)
    folders: set[str] = set()
    if "delimiter" in query:
        folders = {f"{prefix}{key[len(prefix) :].partition('/')[0]}/" for key in keys if "/" in key[len(prefix) :]}
        keys = [key for key in keys if "/" not in key[len(prefix) :]]
    page, more = keys[:PAGE], len(keys) > PAGE
    shown = "".join(
        f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[f'{bucket}/{key}'])}</Size>"
        f"<LastModified>{LISTED_AT}</LastModified><ETag>{escape(etag(objects[f'{bucket}/{key}']))}</ETag></Contents>"
        for key in page
    ) + "".join(f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders))
    last = escape(page[-1]) if more else ""
    return (
        f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><IsTruncated>{str(more).lower()}</IsTruncated>{shown}"
        f"<NextContinuationToken>{last}</NextContinuationToken><NextMarker>{last}</NextMarker></ListBucketResult>"
    ).encode()


def send(
    connection: socket.socket,
    status: int,
    body: bytes | memoryview = b"",
    headers: Mapping[str, str] | None = None,
    *,
    is_head: bool = False,
) -> None:
    """Send a reply."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", f"date: {NOW}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    head = "\r\n".join((*lines, "", "")).encode()
    if len(body) < SHORT or is_head:
        connection.sendall(head if is_head else head + bytes(body))
        return
    connection.sendall(head)
    connection.sendall(body)


def accept(server: socket.socket) -> None:
    """Serve each connection on a thread."""
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def main() -> None:
    """Serve until standard input ends."""
    server = socket.create_server(("127.0.0.1", 0), backlog=100)
    print(server.getsockname()[1], flush=True)
    threading.Thread(target=accept, args=(server,), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
