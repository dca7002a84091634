"""Part of a bucket with the credentials to reach it: plain strings, as they travel to a node."""

import re
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import urlsplit, urlunsplit

__all__ = ["BucketLocation", "printable"]

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """Objects of a bucket whose keys begin with a prefix, and the credentials to reach them.

    Attributes:
        bucket: name of the bucket.
        prefix: first part of the keys, without a slash at its ends; "" for the whole bucket.
        endpoint: address of the store, such as "https://host"; "" for that of AWS in `region`.
        region: region of the bucket; "" if it is to be found out.
        path_style: True if the bucket is part of the path of an address, and not of its host.
        access_key, secret_key, session_token: the credentials; "" for those of the machine's own role.

    Example:
        >>> store = sky.Storage.minio("https://minio.example.com:9000", access_key="me", secret_key="...")
        >>> location = store.location("datasets", "train")
    """

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    path_style: bool = False
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)

    @property
    def describe(self) -> str:
        """Address for users, without secrets: "s3://bucket/prefix"."""
        return self.address("")

    @property
    def root(self) -> str:
        """First part of the keys of all objects: the prefix and a slash; "" for the whole bucket."""
        return f"{self.prefix}/" if self.prefix else ""

    @property
    def store(self) -> str:
        """Name of the store for messages: its endpoint, or "AWS S3"."""
        return self.endpoint or "AWS S3"

    def address(self, key: str) -> str:
        """Return the address of an object for users: "s3://bucket/prefix/key"; `key` is relative to the prefix."""
        return printable(f"s3://{self.bucket}/{self.root}{key}".rstrip("/") if not key else self._full(key))

    def _full(self, key: str) -> str:
        return f"s3://{self.bucket}/{self.root}{key}"

    def environment(self) -> dict[str, str]:
        """Return the variables by which s3fs, rclone and the AWS tools find the credentials and the region."""
        named = {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
        }
        return {name: value for name, value in named.items() if value}

    @property
    def uses_path(self) -> bool:
        """True if the bucket is part of the path of addresses, as asked for, or since it cannot be part of the host."""
        host = urlsplit(self.endpoint).netloc
        return self.path_style or "." in self.bucket or (bool(host) and _needs_path_style(host))

    @property
    def endpoint_for_bucket(self) -> str:
        """Endpoint with the bucket in its host, unless the bucket is part of the path."""
        if self.uses_path or not self.endpoint:
            return self.endpoint
        parts = urlsplit(self.endpoint)
        return urlunsplit(parts._replace(netloc=f"{self.bucket}.{parts.netloc}"))

    def address_for_requests(self, region: str) -> str:
        """Return the address below which the objects of the bucket are."""
        found = self if self.endpoint else replace(self, endpoint=f"https://s3.{region}.amazonaws.com")
        return f"{found.endpoint_for_bucket.rstrip('/')}{f'/{self.bucket}' if found.uses_path else ''}"


def _needs_path_style(host: str) -> bool:
    """Return whether a bucket cannot be part of the host: an address in digits, or a name without a dot."""
    name = urlsplit(f"//{host}").hostname or ""
    if "." not in name:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def printable(text: str) -> str:
    """Return a key or a path for a message, with control characters escaped."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
