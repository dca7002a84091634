"""Programs that mount buckets: their command lines, their environments, and the files that they have not uploaded.

Credentials are in the environment of the program only, which no task inherits: never among its arguments, nor in a
file.
"""

import base64
import json
import os
import re
import secrets
import shutil
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Protocol

from skyward.wire.protocol.volumes import NodeVolume

__all__ = ["MountTool", "Rclone", "S3fs", "Unflushed", "find_tool", "fuse_problem"]

_PASSED_ON = (
    "LANG",
    "PATH",
    "TMPDIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)
"""Variables that a program gets from the worker. `AWS_CA_BUNDLE` is not one: rclone fails with it."""

_LOOPBACK = "127.0.0.1"
_USER = "skyward"
_SERVING = re.compile(rf"Serving remote control on http://({re.escape(_LOOPBACK)}:\d+)")


@dataclass(frozen=True, slots=True)
class Unflushed:
    """A file that was closed, and is not in the store yet. `name`: its path below the mount."""

    name: str
    nbytes: int


class MountTool(Protocol):
    """A program that mounts a bucket in the foreground."""

    @property
    def name(self) -> str:
        """Its name."""

    def command(self, volume: NodeVolume, folder: Path, state: Path) -> list[str]:
        """Return the command that mounts a volume at an empty folder. `state`: a folder of the mount's own."""

    def environment(self, volume: NodeVolume) -> dict[str, str]:
        """Return its whole environment."""

    def unflushed(self, volume: NodeVolume, state: Path) -> list[Unflushed]:
        """Return the files that it has not uploaded yet."""

    def has_control(self, volume: NodeVolume) -> bool:
        """Return whether it keeps listings of the volume's folders for a while, and can be told to forget them."""

    def control_address(self, line: str) -> str:
        """Return the address at which it can be told so, if this line of its log has it; else ""."""

    def forget(self, address: str, timeout: float) -> None:
        """Make it forget the listings; it has done so on return.

        Raises:
            OSError: it did not answer within `timeout` seconds, or refused.
        """


class _Named:
    """Common parts of the programs."""

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """Its name."""
        return Path(self._path).name

    def _environment(self, volume: NodeVolume) -> dict[str, str]:
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        bundle = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
        certificates = {} if bundle is None else {"SSL_CERT_FILE": bundle, "CURL_CA_BUNDLE": bundle}
        return {"HOME": "/nonexistent", **passed, **certificates, **volume.location.environment()}


class S3fs(_Named):
    """s3fs: what a program closes is in the store when `close` returns, or `close` fails."""

    def command(self, volume: NodeVolume, folder: Path, state: Path) -> list[str]:
        """Return the command that mounts a volume."""
        location = volume.location
        prefix = location.prefix.strip("/")
        options = [
            f"url={location.endpoint or 'https://s3.amazonaws.com'}",
            f"fsname=skyward-{folder.parent.name}",
            f"tmpdir={state}",
            # With any cache, a file that another node has replaced would be read with its former size.
            "stat_cache_expire=0",
            "attr_timeout=0",
            "entry_timeout=0",
            "connect_timeout=10",
            "readwrite_timeout=60",
            "retries=5",
            "umask=0022",
        ]
        if location.region:
            options.append(f"endpoint={location.region}")
        if location.path_style:
            options.append("use_path_request_style")
        if volume.read_only:
            options.append("ro")
        if not location.access_key:
            options.append("iam_role=auto")
        words = [word for option in options if option for word in ("-o", option)]
        return [self._path, f"{location.bucket}:/{prefix}" if prefix else location.bucket, str(folder), "-f", *words]

    def environment(self, volume: NodeVolume) -> dict[str, str]:
        """Return its environment."""
        return self._environment(volume)

    def unflushed(self, volume: NodeVolume, state: Path) -> list[Unflushed]:
        """Return nothing: what is closed was uploaded."""
        return []

    def has_control(self, volume: NodeVolume) -> bool:
        """Return False: it always asks the store."""
        return False

    def control_address(self, line: str) -> str:
        """Return nothing."""
        return ""

    def forget(self, address: str, timeout: float) -> None:
        """Do nothing."""


class Rclone(_Named):
    """rclone: what a program closes is uploaded at once in the background, from a cache on the node's disk.

    Without writing, it keeps listings for a second, since it would list a folder again for each path. It forgets them
    when it is told so by HTTP on this machine. SIGHUP has the same effect, but nothing says when.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._password = secrets.token_hex(16)

    def command(self, volume: NodeVolume, folder: Path, state: Path) -> list[str]:
        """Return the command that mounts a volume."""
        prefix = volume.location.prefix.strip("/")
        words = [
            *(self._path, "mount", f":s3:{volume.location.bucket}/{prefix}".rstrip("/"), str(folder)),
            *("--config", "/dev/null", "--devname", f"skyward-{folder.parent.name}", "--cache-dir", str(state)),
            *("--attr-timeout", "0s", "--contimeout", "10s", "--timeout", "60s"),
            *("--buffer-size", "64M", "--vfs-read-chunk-size", "64M", "--transfers", "8", "--umask", "022"),
        ]
        if volume.read_only:
            words += ["--rc", "--rc-addr", f"{_LOOPBACK}:0", "--rc-user", _USER]
            return [*words, "--read-only", "--dir-cache-time", "1s", "--vfs-cache-mode", "off", "--no-modtime"]
        return [*words, "--dir-cache-time", "0s", "--vfs-cache-mode", "writes", "--vfs-write-back", "0s"]

    def environment(self, volume: NodeVolume) -> dict[str, str]:
        """Return its environment, with the address of the store."""
        location = volume.location
        remote = {
            "RCLONE_S3_PROVIDER": "Other" if location.endpoint else "AWS",
            "RCLONE_S3_ENV_AUTH": "true",
            "RCLONE_S3_ENDPOINT": location.endpoint,
            "RCLONE_S3_REGION": location.region,
            "RCLONE_S3_FORCE_PATH_STYLE": str(location.path_style).lower(),
            "RCLONE_S3_NO_CHECK_BUCKET": "true",
            "RCLONE_RC_PASS": self._password,
        }
        return {**self._environment(volume), **{name: value for name, value in remote.items() if value}}

    def unflushed(self, volume: NodeVolume, state: Path) -> list[Unflushed]:
        """Return the files that its cache marks as changed."""
        found = []
        below = len(Path(volume.location.prefix.strip("/")).parts) + 2  # after the remote and the bucket
        root = state / "vfsMeta"
        for file in root.rglob("*"):
            try:
                known = json.loads(file.read_text()) if file.is_file() else {}
            except (OSError, ValueError):  # being written
                continue
            if known.get("Dirty"):
                found.append(Unflushed("/".join(file.relative_to(root).parts[below:]), int(known.get("Size", 0))))
        return found

    def has_control(self, volume: NodeVolume) -> bool:
        """Return True if nothing is written: otherwise it keeps no listings."""
        return volume.read_only

    def control_address(self, line: str) -> str:
        """Return the address, if this line has it."""
        found = _SERVING.search(line)
        return found[1] if found else ""

    def forget(self, address: str, timeout: float) -> None:
        """Make it forget all listings."""
        connection = HTTPConnection(address, timeout=timeout)
        key = base64.b64encode(f"{_USER}:{self._password}".encode()).decode()
        try:
            connection.request("POST", "/vfs/forget", headers={"Authorization": f"Basic {key}", "Content-Length": "0"})
            status = connection.getresponse().status
        except HTTPException as error:
            raise OSError(f"it broke off its answer ({type(error).__name__})") from error
        finally:
            connection.close()
        if status != 200:
            raise OSError(f"it answered with status {status}")


def fuse_problem() -> str:
    """Return why this process cannot mount buckets, as the end of a sentence; "" if it probably can."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse cannot be used there ({error.strerror})"
    if not (shutil.which("rclone") or shutil.which("s3fs")):
        return "neither s3fs nor rclone is installed there"
    return "" if find_tool(read_only=True) is not None else "fusermount3 is not installed there"


def find_tool(*, read_only: bool) -> MountTool | None:
    """Return the installed program that suits a volume best; None if none can mount.

    s3fs reports a failed upload to the program that wrote the file, so it comes first for writing. Only s3fs can mount
    without fusermount, as root.
    """
    has_helper = bool(shutil.which("fusermount3") or shutil.which("fusermount"))
    s3fs = shutil.which("s3fs") if has_helper or os.geteuid() == 0 else None
    rclone = shutil.which("rclone") if has_helper else None
    if s3fs is not None and not (read_only and rclone is not None):
        return S3fs(s3fs)
    return None if rclone is None else Rclone(rclone)
