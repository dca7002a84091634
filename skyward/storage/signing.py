"""Signatures of requests, version 4 of AWS: the form that every store with an S3 interface takes."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

__all__ = ["EMPTY_HASH", "Signer", "encoded", "query_string"]

EMPTY_HASH = hashlib.sha256(b"").hexdigest()
"""Digest of a request without a body."""


class Signer:
    """Signer with one pair of keys. It holds secrets, so its `repr` shows nothing."""

    def __init__(self, access_key: str, secret_key: str, session_token: str = "", service: str = "s3") -> None:
        self._access_key = access_key
        self._secret_key = secret_key
        self._session_token = session_token
        self._service = service
        self._derived: tuple[str, bytes] = ("", b"")

    def headers(
        self,
        method: str,
        host: str,
        path: str,
        query: str,
        region: str,
        body_hash: str,
        when_ns: int,
        extra: Mapping[str, str],
    ) -> dict[str, str]:
        """Return the headers of a request, with its signature.

        Args:
            path, query: as they are sent, encoded.
            body_hash: SHA-256 of the body, in hex.
            when_ns: time of the request, nanoseconds since the epoch.
            extra: further headers to sign, with names in lower case.
        """
        stamp = datetime.fromtimestamp(when_ns // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {**extra, "host": host, "x-amz-content-sha256": body_hash, "x-amz-date": stamp}
        if self._session_token:
            headers["x-amz-security-token"] = self._session_token
        names = sorted(headers)
        signed = ";".join(names)
        canonical = "\n".join(
            (method, path, query, *(f"{name}:{headers[name].strip()}" for name in names), "", signed, body_hash)
        )
        scope = f"{stamp[:8]}/{region}/{self._service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._key(stamp[:8], region), text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
        )
        return headers

    def _key(self, day: str, region: str) -> bytes:
        scope, key = self._derived
        if scope != f"{day}/{region}":
            key = f"AWS4{self._secret_key}".encode()
            for part in (day, region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._derived = (f"{day}/{region}", key)
        return key


def encoded(key: str) -> str:
    """Return a key as part of a path; "." and ".." and doubled slashes stay as they are."""
    return quote(key, safe="/~")


def query_string(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a query in the order that signatures need."""
    return "&".join(
        f"{name}={value}" for name, value in sorted((quote(n, safe="~"), quote(v, safe="~")) for n, v in pairs)
    )
