"""Buckets, or parts of them, on the nodes of a pool."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from posixpath import normpath
from typing import Self

from skyward.errors import SpecError
from skyward.specs.storage import Storage, checked_bucket, checked_prefix
from skyward.values.validation import Value, choice, of_type, shown
from skyward.values.volumes import VolumeMode

__all__ = ["Volume", "VolumeMode", "check_mounts"]

_NEEDED = (
    *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/opt/skyward", "/proc", "/root"),
    *("/run", "/sbin", "/sys", "/tmp", "/usr", "/var"),
)
"""Folders that a node needs as they are."""

_NEEDED_BELOW = ("/dev/", "/opt/skyward/", "/proc/", "/sys/")
"""Folders below which nothing is mounted."""

_TEXT = re.compile(r"(?P<scheme>[A-Za-z0-9][\w.-]*)://(?P<bucket>[^/:]+)(?:/(?P<prefix>.*?))?:(?P<mount>/.*)")
_MODES = ("auto", "mount", "copy", "sync")
_SUCH_AS = "'s3://bucket/prefix:/data', with ':rw' or a mode such as ':copy' after it if needed"


@dataclass(frozen=True, slots=True)
class Volume(Value):
    """Bucket, or the part of it under `prefix`, on every node.

    Attributes:
        bucket: name of the bucket.
        mount: absolute path on the node.
        prefix: first part of the keys of its objects, without a slash at its ends; "" for the whole bucket.
        read_only: True if tasks may only read it.
        storage: store of the bucket; the name of a `[storages.NAME]` table; or None for the provider's own store. With
            `sky.RunPod`, None is for a network volume, and `bucket` is its id or name.
        mode: "mount" reads and writes the store as files are used; "copy" fetches the objects before the first task,
            for reading; "sync" does so too, and uploads what a task has changed when it ends; "auto" takes the first
            that the node can.

    Raises:
        SpecError: a field has a value that is not allowed, or the mode does not fit `read_only`.

    Example:
        >>> sky.Volume("datasets", "/data", prefix="images")
        >>> sky.Volume("results", "/results", read_only=False, storage=sky.Storage.s3("eu-west-1"))
    """

    bucket: str
    mount: str
    prefix: str = ""
    read_only: bool = True
    storage: Storage | str | None = None
    mode: VolumeMode = "auto"

    def __post_init__(self) -> None:
        bucket = checked_bucket(self.bucket, "Volume bucket")
        if not isinstance(self.mount, str) or not self.mount.startswith("/"):
            raise SpecError(f"Volume mount must be an absolute path, such as '/data', but got {shown(self.mount)}.")
        if not self.mount.isprintable():
            raise SpecError(f"Volume mount must have no control characters, but got {shown(self.mount)}.")
        path = "/" + normpath(self.mount).lstrip("/")
        if path in _NEEDED or path.startswith(_NEEDED_BELOW):
            raise SpecError(
                f"Volume mount {self.mount!r} would hide a folder that the node needs: use another path, such as "
                "'/data'."
            )
        of_type(self.read_only, "Volume read_only", bool, "read_only=False")
        if self.storage is not None:
            of_type(self.storage, "Volume storage", (Storage, str), "storage=sky.Storage.s3('eu-west-1')")
        choice(self.mode, "Volume mode", VolumeMode)
        if self.mode == "copy" and not self.read_only:
            raise SpecError(
                "Volume mode 'copy' is for reading only: use mode='sync' to upload what tasks have changed when they "
                "end, mode='mount' to write as they run, or read_only=True."
            )
        if self.mode == "sync" and self.read_only:
            raise SpecError(
                "Volume mode 'sync' uploads what tasks have changed: write read_only=False, or use mode='copy' for "
                "reading only."
            )
        self._set(bucket=bucket, mount=path, prefix=checked_prefix(self.prefix, "Volume prefix"))

    def __str__(self) -> str:
        scheme = self.storage if isinstance(self.storage, str) else "s3"
        words = ["" if self.read_only or self.mode == "sync" else ":rw", "" if self.mode == "auto" else f":{self.mode}"]
        prefix = f"/{self.prefix}" if self.prefix else ""
        return f"{scheme}://{self.bucket}{prefix}:{self.mount}{''.join(words)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the volume that a text describes: "s3://bucket/prefix:/data", with ":rw" or ":MODE" after it.

        The part before "://" is "s3" for the provider's own store, "gs" for Google Cloud Storage, or the name of a
        `[storages.NAME]` table.

        Raises:
            SpecError: the text is not of this form.
        """
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise SpecError(f"A volume must be written as {_SUCH_AS}, but got {shown(text)}.")
        mount, *words = found["mount"].split(":")
        if any("/" in word for word in words):  # a prefix with a colon and a slash in it
            raise SpecError(f"The prefix of a volume must have no ':/' in it, but got {shown(text)}.")
        access = [word for word in words if word in ("ro", "rw")]
        modes = [word for word in words if word in _MODES]
        if len(access) > 1 or len(modes) > 1 or len(access) + len(modes) < len(words):
            raise SpecError(
                f"A volume ends with its mount, then 'ro' or 'rw', then one of {', '.join(_MODES)}, each with a ':' "
                f"before it, but got {shown(text)}."
            )
        mode = modes[0] if modes else "auto"
        read_only = access[0] == "ro" if access else mode != "sync"
        storage: Storage | str | None = {"s3": None, "gs": Storage.gcs()}.get(found["scheme"].lower(), found["scheme"])
        return cls(found["bucket"], mount, found["prefix"] or "", read_only, storage, mode)  # type: ignore[arg-type]


def check_mounts(volumes: Iterable[Volume]) -> None:
    """Check that the mounts of volumes are different, and none is below another.

    Raises:
        SpecError: two are not.
    """
    mounts = sorted(volume.mount for volume in volumes)
    for first, second in pairwise(mounts):
        if first == second:
            raise SpecError(f"volumes mount two buckets at {first!r}: give each a mount of its own.")
    for outer in mounts:
        for inner in mounts:
            if inner.startswith(f"{outer}/"):
                raise SpecError(
                    f"volumes mount {inner!r} below {outer!r}, where it would hide files: give them mounts beside each "
                    "other."
                )
