"""Credentials of the machine's own role: of an instance, a container or a pod at AWS."""

import json
import os
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from skyward.errors import CredentialsError
from skyward.process.clock import clock

__all__ = ["RoleCredentials", "role_credentials"]

_WITHIN = 2.0
_INSTANCE = "http://169.254.169.254"
_CONTAINER = "http://169.254.170.2"
_EARLIER_NS = 300 * 1_000_000_000
"""Time before their end at which credentials are replaced."""


@dataclass(frozen=True, slots=True)
class RoleCredentials:
    """Short-lived credentials of a role."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str = field(repr=False)
    expires_ns: int = 0

    def is_expired(self) -> bool:
        """Return whether they end soon."""
        return bool(self.expires_ns) and clock.time_ns() > self.expires_ns - _EARLIER_NS


def role_credentials() -> RoleCredentials:
    """Return the credentials of the role of this machine.

    Raises:
        CredentialsError: it has none.
    """
    try:
        found = _of_container() or _of_instance()
    except (OSError, HTTPException, ValueError, KeyError):
        found = None
    if found is None:
        raise CredentialsError(
            "No credentials for the object store were found, and this machine has no role: give the storage an "
            "access_key and a secret_key, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    expires = datetime.fromisoformat(str(found["Expiration"])).timestamp() if found.get("Expiration") else 0.0
    return RoleCredentials(found["AccessKeyId"], found["SecretAccessKey"], found["Token"], int(expires * 1e9))


def _of_container() -> dict[str, Any] | None:
    """Return what the agent of a container (ECS, EKS) gives; None if there is none."""
    relative = os.environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    address = f"{_CONTAINER}{relative}" if relative else os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if not address:
        return None
    token = os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    if file := os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        token = Path(file).read_text().strip()
    return _parsed(_ask("GET", address, {"Authorization": token} if token else {}))


def _of_instance() -> dict[str, Any] | None:
    """Return what the metadata service of an instance gives; None if it has no role."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", _INSTANCE).rstrip("/")
    token = _ask("PUT", f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"})
    headers = {"X-aws-ec2-metadata-token": token}
    roles = f"{base}/latest/meta-data/iam/security-credentials/"
    role = _ask("GET", roles, headers).split("\n")[0].strip()
    return _parsed(_ask("GET", f"{roles}{role}", headers)) if role else None


def _parsed(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("no credentials")
    return found


def _ask(method: str, address: str, headers: dict[str, str]) -> str:
    parts = urlsplit(address)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.netloc, timeout=_WITHIN)
    try:
        connection.request(method, f"{parts.path}?{parts.query}" if parts.query else parts.path, headers=headers)
        response = connection.getresponse()
        text = response.read(1 << 20).decode()
        if response.status != 200:
            raise OSError(f"status {response.status}")
        return text
    finally:
        connection.close()
