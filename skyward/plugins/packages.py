"""Packages of plugins in the environment of nodes."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skyward.errors import SpecError
from skyward.values.validation import shown

if TYPE_CHECKING:
    from skyward.specs.image import Image
    from skyward.specs.spec import Spec

__all__ = ["NEWEST", "check_version", "has_own_packages", "versioned", "with_packages"]

NEWEST: Final = "latest"

_VERSION: Final = re.compile(r"latest|(?:(?:[<>=!~]=|[<>])?\s*[0-9][\w.*+!-]*\s*,?\s*)+")


def check_version(version: object, name: str, *, optional: bool = False) -> None:
    """Check a version: "latest", one such as "2.13.0", or a range such as ">=2.10,<3".

    Raises:
        SpecError: it is none of them.
    """
    if version is None and optional:
        return
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise SpecError(
            f"{name} must be a version, such as '2.13.0', a range, such as '>=2.10,<3', or 'latest'"
            f"{', or None' if optional else ''}, but got {shown(version)}."
        )


def versioned(package: str, version: str) -> str:
    """Return the requirement of a package in a version: a range as given, a bare version exactly.

    Example:
        >>> versioned("torch", "2.13.0")
        'torch==2.13.0'
    """
    if version == NEWEST:
        return package
    return f"{package}{version}" if version[0] in "<>=!~" else f"{package}=={version}"


def has_own_packages(spec: "Spec") -> bool:
    """Return whether nodes need packages: local ones have those of this process."""
    return spec.provider is not None and getattr(spec.provider, "name", spec.provider) != "local"


def with_packages(image: "Image", *packages: str) -> "Image":
    """Return an environment with requirements, each once."""
    return replace(image, pip=(*image.pip, *(each for each in packages if each not in image.pip)))
