"""Records of the images of machines that this user has built, in a SQLite file of their own.

Images are kept on purpose, and billed until they are deleted. So the records do not share the journal's fate, which is
set aside with another version of Skyward.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from skyward.errors import JournalError
from skyward.journal.installation import data_directory
from skyward.providers.protocol import ProviderImage

__all__ = ["BuiltImage", "ImageRecord", "ImageRecords"]

_BUSY = 10.0
"""Seconds to wait for other writing processes."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS images (
    provider TEXT NOT NULL, scope TEXT NOT NULL, environment TEXT NOT NULL, id TEXT NOT NULL, pool TEXT NOT NULL,
    image TEXT NOT NULL, settings BLOB NOT NULL, PRIMARY KEY (provider, scope, id)
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image of a machine with an environment, which pools with the same environment launch machines from.

    Attributes:
        provider: name of the provider.
        id: the provider's id of the image.
        region: where it is; "" if that does not matter.
        architecture: architecture of the machines.
        environment: digest of the environment in it: 12 hex digits.
        contents: the packages that were asked for, as text.
        size_gb: size that it is billed for, in GB, or the most that it may be; 0 if unknown.
        monthly_price: USD per month for its storage, at most; None if unknown.
        built: time at which it was finished.

    Example:
        >>> [image.id for image in sky.images() if image.provider == "aws"]
    """

    provider: str
    id: str
    region: str
    architecture: str
    environment: str
    contents: str
    size_gb: float
    monthly_price: float | None
    built: datetime


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """A recorded image.

    Attributes:
        built: the image, as users see it.
        image: the image, as its provider knows it.
        scope: the provider's text on the machines that it fits; see `ImageBuildingProvider`.
        pool: id of the pool whose machine it was made of.
        settings: the provider's settings, pickled; empty if they cannot be pickled.
    """

    built: BuiltImage
    image: ProviderImage
    scope: str
    pool: str
    settings: bytes = b""


class ImageRecords:
    """The records of built images. Each method is one transaction, which is on disk when it returns.

    Raises:
        JournalError: the file cannot be read or written.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.path = (directory or data_directory()) / "images.db"

    def add(self, record: ImageRecord) -> None:
        """Record an image that is finished."""
        built = record.built
        image = {
            "region": built.region,
            "architecture": built.architecture,
            "contents": built.contents,
            "size_gb": built.size_gb,
            "monthly_price": built.monthly_price,
            "built": built.built.timestamp(),
            "specific": dict(record.image.specific),
        }
        values = (built.provider, record.scope, built.environment, built.id, record.pool, json.dumps(image))
        self._run("INSERT OR REPLACE INTO images VALUES (?, ?, ?, ?, ?, ?, ?)", *values, record.settings)

    def all(self) -> list[ImageRecord]:
        """Return all records, the latest image first."""
        if not self.path.exists():
            return []
        found = [_record(*row) for row in self._run("SELECT * FROM images")]
        return sorted(found, key=lambda each: each.built.built, reverse=True)

    def of(self, provider: str, environment: str) -> list[ImageRecord]:
        """Return the records of images of a provider with an environment, the latest first."""
        return [each for each in self.all() if (each.built.provider, each.built.environment) == (provider, environment)]

    def forget(self, record: ImageRecord) -> None:
        """Delete the record of an image that is gone."""
        chosen = "DELETE FROM images WHERE provider = ? AND scope = ? AND id = ?"
        self._run(chosen, record.built.provider, record.scope, record.built.id)

    def _run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            with self._opened() as db, db:
                return db.execute(statement, values).fetchall()
        except (OSError, sqlite3.Error) as error:
            raise JournalError(
                f"Skyward records the images of machines that it builds in {self.path}, which cannot be used "
                f"({error}); name another directory in the environment variable SKYWARD_DATA_DIR."
            ) from error

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
        with contextlib.closing(sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.executescript(_SCHEMA)
            yield db


def _record(
    provider: str, scope: str, environment: str, id: str, pool: str, image: str, settings: bytes
) -> ImageRecord:
    words = json.loads(image)
    built = BuiltImage(
        provider,
        id,
        words["region"],
        words["architecture"],
        environment,
        words["contents"],
        words["size_gb"],
        words["monthly_price"],
        datetime.fromtimestamp(words["built"], UTC),
    )
    stored = ProviderImage(id, built.region, built.size_gb, built.monthly_price, words["specific"])
    return ImageRecord(built, stored, scope, pool, settings)
