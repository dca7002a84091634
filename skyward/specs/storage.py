"""Scaffold until the branch of storage is merged."""

from dataclasses import dataclass

from skyward.storage.location import BucketLocation
from skyward.values.validation import Secret, Value


@dataclass(frozen=True, slots=True)
class Storage(Value):
    """Storage."""

    endpoint: str
    region: str = ""
    access_key: str | None = None
    secret_key: str | None = None
    path_style: bool = False

    def __post_init__(self) -> None:
        self._set(secret_key=Secret(self.secret_key or ""), access_key=Secret(self.access_key or ""))

    def location(self, bucket: str, prefix: str = "") -> BucketLocation:
        """Location."""
        return BucketLocation(
            bucket,
            prefix.strip("/"),
            self.endpoint,
            self.region,
            self.path_style,
            str(self.access_key),
            str(self.secret_key),
        )
