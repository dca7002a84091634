"""Wheels of installed packages, for machines that cannot fetch them.

uv keeps no wheels: it unpacks them into its cache. Packages that it installs as symbolic links lead there, and the
unpacked files are those of the wheel, unchanged, so that they can be packed again.
"""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from skyward.errors import NodeStartError

__all__ = ["archives", "pack_wheel", "wheel_name"]

_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""Time of each file, so that equal packages give equal wheels."""


def archives(target: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield name, version and unpacked wheel of each package that uv has installed in `target` as symbolic links.

    Raises:
        NodeStartError: a package is not such links.
    """
    for metadata in sorted(target.glob("*.dist-info/METADATA")):
        if not metadata.is_symlink():
            raise NodeStartError(f"uv installed {metadata.parent.name} as copies, so its wheel cannot be packed here")
        name, _, version = metadata.parent.name.removesuffix(".dist-info").rpartition("-")
        yield name, version, Path(os.readlink(metadata)).parents[1]


def wheel_name(archive: Path) -> str:
    """Return the name of the wheel whose files are in `archive`."""
    (described,) = archive.glob("*.dist-info/WHEEL")
    lines = described.read_text().splitlines()
    tags = [line.partition(":")[2].strip().split("-") for line in lines if line.startswith("Tag:")]
    parts = (".".join(dict.fromkeys(tag[place] for tag in tags)) for place in range(3))
    return f"{described.parent.name.removesuffix('.dist-info')}-{'-'.join(parts)}.whl"


def pack_wheel(archive: Path, path: Path) -> None:
    """Write the wheel whose files are in `archive`. Deterministic."""
    files = sorted(file for file in archive.rglob("*") if file.is_file())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(archive).as_posix(), _LONG_AGO)
            entry.external_attr = (file.stat().st_mode & 0o777 | 0o100000) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            with file.open("rb") as content, packed.open(entry, "w", force_zip64=True) as copy:
                while block := content.read(1 << 20):
                    copy.write(block)
