"""Source of Skyward for a node: a wheel of this copy, the package index, or its repository."""

import base64
import hashlib
import io
import tomllib
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from skyward.bootstrap.names import requirement_name
from skyward.errors import SpecError
from skyward.specs.image import SkywardSource

__all__ = ["WORKER_PACKAGES", "PackageSource", "find_source", "local_source", "worker_requirements"]

WORKER_PACKAGES = frozenset({"blake3", "casty", "cloudpickle", "uvloop"})
"""Dependencies of the distribution that a worker needs."""

_NAME = "skyward-jupyter"
_PACKAGE = Path(__file__).parents[1]
_LEFT_OUT = frozenset({"__pycache__"})
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""Time of each file in the wheel, so that equal sources give equal wheels."""


@dataclass(frozen=True)
class PackageSource:
    """Skyward, in a form that can be sent to a node.

    Attributes:
        requirement: requirement for pip, or the name of the wheel's file.
        dependencies: requirements of the worker.
        wheel: content of the wheel to send; empty if the node downloads it.
    """

    requirement: str
    dependencies: tuple[str, ...]
    wheel: bytes = field(default=b"", repr=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the wheel, in hex; "" if there is none."""
        return hashlib.sha256(self.wheel).hexdigest() if self.wheel else ""


def find_source(kind: SkywardSource = "auto") -> PackageSource:
    """Return the source of Skyward for a node.

    "auto" is the package index if this copy came from one, else this copy: an index may lack its version.

    Raises:
        SpecError: the repository or the version of this copy is unknown.
    """
    found = _installed()
    if kind == "auto":
        kind = "pypi" if found is not None and _is_from_index(found) else "local"
    if kind == "local":
        return local_source()
    if found is None:
        raise SpecError(f"skyward_source={kind!r} needs the version of Skyward, which is not installed; use 'local'.")
    dependencies = _for_worker(found.requires or ())
    if kind == "pypi":
        return PackageSource(f"{_NAME}=={found.version}", dependencies)
    return PackageSource(f"{_NAME} @ git+{_repository(found)}@v{found.version}", dependencies)


def worker_requirements() -> tuple[str, ...]:
    """Return the requirements of a worker, from this copy of Skyward.

    Raises:
        SpecError: this copy is neither installed nor in a checkout.
    """
    return _described(_PACKAGE)[1]


def local_source(package: Path | None = None) -> PackageSource:
    """Return a wheel of the package `skyward` as it is on disk now. Reproducible: equal files give equal bytes."""
    folder = package or _PACKAGE
    version, dependencies = _described(folder)
    files = {f"skyward/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in _sources(folder)}
    content = hashlib.sha256()
    for name, data in files.items():
        content.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode())
    version = f"{version}+local.{content.hexdigest()[:12]}"
    stem = f"{_NAME.replace('-', '_')}-{version}"
    return PackageSource(f"{stem}-py3-none-any.whl", dependencies, _wheel(files, stem, version, dependencies))


def _sources(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".pyo"))
    return sorted(path for path in found if _LEFT_OUT.isdisjoint(path.relative_to(folder).parts))


def _wheel(files: dict[str, bytes], stem: str, version: str, dependencies: tuple[str, ...]) -> bytes:
    info = f"{stem}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {_NAME}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in dependencies]
    tags = ["Wheel-Version: 1.0", "Generator: skyward", "Root-Is-Purelib: true", "Tag: py3-none-any"]
    all_files = {
        **files,
        f"{info}/METADATA": "\n".join([*metadata, ""]).encode(),
        f"{info}/WHEEL": "\n".join([*tags, ""]).encode(),
    }
    record = "".join(f"{name},sha256={_record_digest(data)},{len(data)}\n" for name, data in all_files.items())
    all_files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in all_files.items():
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.external_attr = 0o100644 << 16  # a regular file
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return buffer.getvalue()


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _described(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Return version and worker requirements of the package in `folder`, from its project file or its metadata."""
    project = folder.parent / "pyproject.toml"
    if project.is_file():
        described = tomllib.loads(project.read_text()).get("project", {})
        if described.get("name") == _NAME:
            return described["version"], _for_worker(described["dependencies"])
    found = _installed()
    if found is None:
        raise SpecError(f"{folder} is neither installed nor in a checkout, so the worker's requirements are unknown.")
    return found.version, _for_worker(found.requires or ())


def _installed() -> Distribution | None:
    try:
        return distribution(_NAME)
    except PackageNotFoundError:
        return None


def _is_from_index(found: Distribution) -> bool:
    """Return whether a distribution was installed by its name: not from a file, a folder or a repository (PEP 610)."""
    return found.read_text("direct_url.json") is None


def _for_worker(requirements: Iterable[str]) -> tuple[str, ...]:
    wanted = (text for text in requirements if requirement_name(text) in WORKER_PACKAGES)
    return tuple(sorted(text for text in wanted if "extra ==" not in text))


def _repository(found: Distribution) -> str:
    urls = (entry.partition(",") for entry in found.metadata.get_all("Project-URL") or ())
    known = {label.strip().lower(): url.strip() for label, _, url in urls}
    for label in ("repository", "source", "source code", "github"):
        if label in known:
            return str(known[label])
    raise SpecError(
        "skyward_source='github' needs the repository's address, which this copy does not have: use 'pypi'."
    )
