"""Object stores that speak the S3 interface: where they are, and the credentials to reach them."""

import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from skyward.errors import CredentialsError, SpecError
from skyward.values.validation import Secret, Value, of_type, shown

if TYPE_CHECKING:
    from skyward.storage.listing import ObjectEntry
    from skyward.storage.location import BucketLocation

__all__ = ["Credential", "Storage", "VariableCredential", "checked_bucket", "checked_prefix", "lacks_keys"]

type Credential = str | Callable[[], str] | Callable[[], Awaitable[str]] | None
"""Text, or a function that returns it when it is used, or None for the one that the client finds."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,221}")
_ADDRESS = re.compile(r"https?://(?P<host>[^\s/?#\\]+?)(?::\d{1,5})?(?:/[^\s?#]*)?")
_KEYS = ("access_key", "secret_key", "session_token")


@dataclass(frozen=True, slots=True)
class Storage(Value):
    """Object store with an S3 interface. Keys are never shown, and never stored in plain text.

    Attributes:
        endpoint: address of the store, such as "https://host"; "" for AWS.
        region: region of its buckets; "" for the one that the store tells.
        access_key, secret_key, session_token: text, or functions, plain or async, that return it and are called at each
            use. If they are not given, the client's own are used: those of the environment (`AWS_ACCESS_KEY_ID`, ...),
            of the profile files of AWS, or of the role of its machine.
        path_style: True if the store takes the bucket as part of the path only.

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> storage = sky.Storage.r2("account", access_key="...", secret_key="...")
        >>> storage.upload("datasets", "images/", key="train")
        >>> sky.Volume("datasets", "/data", prefix="train", storage=storage)
    """

    endpoint: str = ""
    region: str = ""
    access_key: Credential = None
    secret_key: Credential = None
    session_token: Credential = None
    path_style: bool = False

    def __post_init__(self) -> None:
        of_type(self.endpoint, "Storage endpoint", str, "endpoint='https://host'")
        of_type(self.region, "Storage region", str, "region='us-east-1'")
        of_type(self.path_style, "Storage path_style", bool, "path_style=True")
        _check_endpoint(self.endpoint)
        for name in _KEYS:
            value = getattr(self, name)
            if isinstance(value, str) and value and value.isprintable() and value.strip() == value:
                self._set(**{name: Secret(value)})
            elif value is not None and (isinstance(value, str) or not callable(value)):
                raise SpecError(  # the value is not shown: it may be a secret with a line break
                    f"Storage {name} must be a text without spaces around it, a function that returns one, or None; "
                    "its value is not shown here."
                )
        if (self.access_key is None) != (self.secret_key is None):
            given, other = ("access_key", "secret_key") if self.secret_key is None else ("secret_key", "access_key")
            raise SpecError(f"Storage got {given} without {other}: give both, or neither to use those of this machine.")
        if self.session_token is not None and self.access_key is None:
            raise SpecError("Storage got session_token without access_key and secret_key: give all three, or none.")
        self._set(endpoint=self.endpoint.rstrip("/"))

    def __repr__(self) -> str:
        # A function is not shown: the `repr` of a partial one has its arguments.
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        shown_values = (f"{name}={'...' if callable(value) else repr(value)}" for name, value in values.items())
        return f"Storage({', '.join(shown_values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A function may carry a secret in its closure, which would be stored in the clear.
        values = [getattr(self, each.name) for each in fields(self)]
        return type(self), tuple(
            _left_behind if callable(each) and not _is_importable(each) else each for each in values
        )

    @classmethod
    def s3(
        cls,
        region: str = "",
        access_key: Credential = None,
        secret_key: Credential = None,
        session_token: Credential = None,
    ) -> Self:
        """Return the store of AWS."""
        return cls("", region, access_key, secret_key, session_token)

    @classmethod
    def gcs(cls, access_key: Credential = None, secret_key: Credential = None) -> Self:
        """Return Google Cloud Storage by its S3 interface, which takes HMAC keys."""
        return cls("https://storage.googleapis.com", "auto", access_key, secret_key)

    @classmethod
    def r2(
        cls,
        account_id: str,
        access_key: Credential = None,
        secret_key: Credential = None,
        session_token: Credential = None,
        jurisdiction: str = "",
    ) -> Self:
        """Return R2 of Cloudflare; `jurisdiction` is that of the bucket, such as "eu", if it has one."""
        _check_part(account_id, "account_id", "the identifier of the account, as in the address of its R2 API")
        if jurisdiction:
            _check_part(jurisdiction, "jurisdiction", "'eu' or 'fedramp'")
        host = ".".join(filter(None, (account_id, jurisdiction, "r2.cloudflarestorage.com")))
        return cls(f"https://{host}", "auto", access_key, secret_key, session_token)

    @classmethod
    def minio(
        cls,
        endpoint: str,
        access_key: Credential = None,
        secret_key: Credential = None,
        region: str = "",
    ) -> Self:
        """Return a MinIO server, or another one of your own."""
        if not endpoint:
            raise SpecError("Storage.minio needs the address of the server: endpoint='https://minio.example.com:9000'.")
        return cls(endpoint, region, access_key, secret_key, None, path_style=True)

    @classmethod
    def wasabi(cls, region: str, access_key: Credential = None, secret_key: Credential = None) -> Self:
        """Return Wasabi, in a region such as "eu-central-2"."""
        _check_part(region, "region", "a region of Wasabi, such as 'us-east-1'")
        return cls(f"https://s3.{region}.wasabisys.com", region, access_key, secret_key)

    @classmethod
    def backblaze(cls, region: str, key_id: Credential = None, app_key: Credential = None) -> Self:
        """Return B2 of Backblaze by its S3 interface; the region is part of the bucket's endpoint."""
        _check_part(region, "region", "a region of Backblaze, such as 'us-west-004'")
        return cls(f"https://s3.{region}.backblazeb2.com", region, key_id, app_key)

    @classmethod
    def hyperstack(
        cls,
        endpoint: str,
        access_key: Credential = None,
        secret_key: Credential = None,
        region: str = "CANADA-1",
    ) -> Self:
        """Return the object store of Hyperstack. Its console tells the endpoint, and makes keys."""
        if not endpoint:
            raise SpecError("Storage.hyperstack needs the endpoint that the console of Hyperstack tells.")
        return cls(endpoint, region, access_key, secret_key, None, path_style=True)

    def location(self, bucket: str, prefix: str = "") -> "BucketLocation":
        """Return a part of a bucket, with the credentials as they are now, in plain text. This may ask for them.

        Raises:
            CredentialsError: no credentials were found, or a function that should return them failed.
            SpecError: the bucket or the prefix is not allowed.
        """
        return self._located(bucket, prefix, with_role=True)

    def upload(self, bucket: str, path: str | Path, key: str | None = None, *, progress: bool | None = None) -> int:
        """Upload a file, or a folder with everything below it. Return the number of objects that were written.

        Large files go up in parts. A repeated call sends only what an interrupted one has not sent, and of a folder the
        files that were changed since. Links in folders are followed; empty folders are left out.

        Args:
            key: key of the object, or first part of the keys of a folder's objects; the name of the file or of the
                folder if None. A key that ends with "/" is a folder for the file.
            progress: whether to show a bar; None to show it on a terminal and in a notebook.

        Raises:
            StorageError: the store refuses or does not answer, or a file cannot be read or is changed meanwhile.
            CredentialsError: no credentials were found.
        """
        from skyward.transfers.verbs import upload

        return upload(self._located(bucket), Path(path), key, progress)

    def download(self, bucket: str, key: str, path: str | Path | None = None, *, progress: bool | None = None) -> int:
        """Download an object, or all objects below a key. Return the number of files that were written.

        Large objects come in parts. A repeated call fetches only what an interrupted one has not fetched, and of a
        folder the objects that were changed since. A file appears complete or not at all.

        Args:
            key: key of the object, or first part of the keys of several; "" for the whole bucket.
            path: the file, or the folder for several objects; in the working directory, by the last part of the key, if
                None. An existing folder gets the object as a file in it.
            progress: whether to show a bar; None to show it on a terminal and in a notebook.

        Raises:
            StorageError: there is no such object, the store refuses or does not answer, or a file cannot be written.
            CredentialsError: no credentials were found.
        """
        from skyward.transfers.verbs import download

        return download(self._located(bucket), key, None if path is None else Path(path), progress)

    def ls(self, bucket: str, prefix: str = "") -> "list[ObjectEntry]":
        """Return the objects whose keys begin with `prefix`, in the order of their keys.

        Raises:
            StorageError: the store refuses or does not answer.
            CredentialsError: no credentials were found.
        """
        from skyward.transfers.verbs import ls

        return list(ls(self._located(bucket), prefix))

    def exists(self, bucket: str, key: str) -> bool:
        """Return whether there is an object of this key, or one below it.

        Raises:
            StorageError: the store refuses or does not answer, or there is no such bucket.
            CredentialsError: no credentials were found.
        """
        from skyward.transfers.verbs import exists

        return exists(self._located(bucket), key)

    def rm(self, bucket: str, key: str, recursive: bool = False) -> int:
        """Delete an object, or with `recursive` all objects below a key. Return the number of objects.

        Raises:
            StorageError: there is nothing to delete, or the store refuses or does not answer.
            CredentialsError: no credentials were found.
        """
        from skyward.transfers.verbs import rm

        return rm(self._located(bucket), key, recursive)

    def _located(self, bucket: str, prefix: str = "", *, with_role: bool = False) -> "BucketLocation":
        """Return a part of a bucket; without the credentials of the role of this machine, which are renewed in use."""
        from skyward.storage.location import BucketLocation
        from skyward.transfers.credentials import StoreKeys, found_keys, resolved

        bucket, prefix = checked_bucket(bucket, "bucket"), checked_prefix(prefix, "prefix")
        if len(bucket) < 3 or any(len(part) > 63 for part in bucket.split(".")):
            raise SpecError(
                f"bucket must have 3 to 63 characters, or parts of up to 63 between dots, but got {shown(bucket)}."
            )
        if self.access_key is None or self.secret_key is None:
            keys = found_keys(of_aws=not self.endpoint, with_role=with_role)
        else:
            token = self.session_token
            keys = StoreKeys(
                resolved(self.access_key, "access_key"),
                resolved(self.secret_key, "secret_key"),
                "" if token is None else resolved(token, "session_token"),
            )
        own = keys.access_key, keys.secret_key, keys.session_token
        return BucketLocation(bucket, prefix, self.endpoint, self.region, self.path_style, *own)


@dataclass(frozen=True, slots=True)
class VariableCredential(Value):
    """Credential in an environment variable of the client, read when it is used.

    Attributes:
        env: name of the variable.
    """

    env: str

    def __post_init__(self) -> None:
        if not isinstance(self.env, str) or not self.env.isidentifier():
            raise SpecError(f"env must be the name of an environment variable, but got {shown(self.env)}.")

    def __call__(self) -> str:
        """Return the value of the variable.

        Raises:
            CredentialsError: it is not set.
        """
        import os  # values do no I/O, except for this one when it is used

        value = os.environ.get(self.env, "").strip()
        if not value:
            raise CredentialsError(f"The environment variable {self.env} is not set: a storage takes its key from it.")
        return value


def checked_bucket(value: object, name: str) -> str:
    """Return the name of a bucket.

    Raises:
        SpecError: it is none.
    """
    if isinstance(value, str) and "://" in value:
        raise SpecError(f"{name} must be the name of a bucket only, without '://', but got {shown(value)}.")
    if not isinstance(value, str) or _BUCKET.fullmatch(value) is None:
        raise SpecError(f"{name} must be the name of a bucket, but got {shown(value)}.")
    return value


def checked_prefix(value: object, name: str) -> str:
    """Return the first part of keys without slashes at its ends.

    Raises:
        SpecError: it could not be a folder.
    """
    of_type(value, name, str, "prefix='train'")
    prefix = str(value).strip("/")
    if prefix and any(part in ("", ".", "..") for part in prefix.split("/")):
        raise SpecError(f"{name} must have no part that is empty, '.' or '..', but got {shown(value)}.")
    if not prefix.isprintable():
        raise SpecError(f"{name} must have no control characters, but got {shown(value)}.")
    return prefix


def _check_endpoint(endpoint: str) -> None:
    if not endpoint:
        return
    found = _ADDRESS.fullmatch(endpoint)
    if found is None:
        raise SpecError(f"Storage endpoint must be an address, such as 'https://host:9000', but got {_bare(endpoint)}.")
    if "@" in found["host"]:
        raise SpecError("Storage endpoint must have no user and no password: give access_key and secret_key.")


def _bare(endpoint: str) -> str:
    """Return an address for a message, without what may be a password."""
    return shown(endpoint if "@" not in endpoint else f"...@{endpoint.rpartition('@')[2]}")


def _check_part(value: object, name: str, what: str) -> None:
    if not isinstance(value, str) or not value or not all(each.isalnum() or each == "-" for each in value):
        raise SpecError(f"{name} must be {what}, but got {shown(value)}.")


def _is_importable(function: Any) -> bool:
    """Return whether a function is stored by its name, and not by its content."""
    if isinstance(function, VariableCredential):
        return True
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in (None, "__main__") or "." in name:
        return False
    return getattr(sys.modules.get(module), name, None) is function


def lacks_keys(storage: object) -> bool:
    """Return whether the keys of a storage were given by a function that exists only in the process that made it."""
    return isinstance(storage, Storage) and any(getattr(storage, name) is _left_behind for name in _KEYS)


def _left_behind() -> str:
    """Stand in for a function that stayed in the process that made it."""
    raise CredentialsError(
        "The credentials of this storage were given by a function that exists only in the process that made it: make "
        "the storage again, here; a pool gets it with `pool.update(volumes=[sky.Volume(..., storage=...)])`. A "
        "function that is defined in a module is kept."
    )
