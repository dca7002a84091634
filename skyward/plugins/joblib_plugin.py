"""Plugins for joblib and scikit-learn, whose parallel calls run on the pool.

Joblib knows the backend without them, too: they add the packages to the nodes' environment, and make the backend
the default in a `with` block.
"""

import importlib.metadata
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from skyward.errors import SpecError
from skyward.functions.target import current_pool
from skyward.specs.plugin import Plugin
from skyward.values.validation import of_type

if TYPE_CHECKING:
    from skyward.pool.compute import Compute  # circular: what the context is entered with
    from skyward.specs.image import Image
    from skyward.specs.spec import Spec

__all__ = ["Joblib", "Sklearn"]


class _Parallel(Plugin):
    """Plugin that makes the pool a backend of joblib.

    Attributes:
        packages: the packages that nodes need, the one with the version first.
    """

    __slots__ = ()

    packages: ClassVar[tuple[str, ...]]
    version: str | None

    def image(self, image: "Image", spec: "Spec") -> "Image":
        """Return the environment with the packages: the client's versions, unless one is given.

        Raises:
            SpecError: the client does not have the first package, and no version is given.
        """
        first, *others = self.packages
        theirs = [package for package in others if not any(map(_pin(package).match, image.pip))]
        wanted = [_requirement(first, self.version), *map(_like_here, theirs)]
        return replace(image, pip=(*image.pip, *(each for each in wanted if each not in image.pip)))

    def around_pool(self, pool: "Compute") -> AbstractContextManager[None]:
        """Make the backend joblib's default in a `with` block of the pool, on its thread.

        Elsewhere, nothing is redirected: joblib's setting belongs to a thread, so all coroutines of an `async with`
        block would share it, and a pool that is open without a block would keep it. Write
        `with joblib.parallel_config("skyward"):` there.
        """
        return _default(pool) if pool.is_scoped and current_pool.get() is pool else nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Joblib(_Parallel):
    """Run the calls of `joblib.Parallel` on the pool.

    Attributes:
        version: version of joblib on nodes; None for that of the client.

    Raises:
        SpecError: `version` is not a string.

    Example:
        >>> with sky.Compute(nodes=4, plugins=[sky.plugins.joblib()]):
        ...     results = joblib.Parallel(n_jobs=-1)(joblib.delayed(simulate)(seed) for seed in range(1000))
    """

    name = "joblib"
    packages = ("joblib", "threadpoolctl")

    version: str | None = None

    def __post_init__(self) -> None:
        _check_version(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sklearn(_Parallel):
    """Run the parallel parts of scikit-learn on the pool.

    Attributes:
        version: version of scikit-learn on nodes; None for that of the client.

    Raises:
        SpecError: `version` is not a string.

    Example:
        >>> with sky.Compute(nodes=4, plugins=[sky.plugins.sklearn()]):
        ...     search = GridSearchCV(SVC(), {"C": [1, 10, 100]}, n_jobs=-1).fit(X, y)
    """

    name = "sklearn"
    after = frozenset({"joblib"})  # whose version counts
    packages = ("scikit-learn", "joblib")

    version: str | None = None

    def __post_init__(self) -> None:
        _check_version(self.version)


def _check_version(version: object) -> None:
    if version is not None:
        of_type(version, "version", str, "version='1.5.2'")


def _requirement(package: str, version: str | None) -> str:
    """Return a requirement: with an operator, as given; a bare version and that of the client, exactly.

    Raises:
        SpecError: no version is given, and the client does not have the package.
    """
    if version is not None:
        return f"{package}{version}" if version[:1] in "<>=!~" else f"{package}=={version}"
    if (found := _like_here(package)) == package:
        raise SpecError(f"The plugin needs {package} on this machine too: `pip install {package}`.")
    return found


def _like_here(package: str) -> str:
    """Return a requirement of the client's version of a package; of any, if the client does not have it."""
    try:
        return f"{package}=={importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


def _pin(package: str) -> re.Pattern[str]:
    """Return a pattern of requirements that say which versions of a package are wanted."""
    return re.compile(rf"\s*{package}\s*(\[[^]]*\]\s*)?[(<>=!~@]", re.IGNORECASE)


@contextmanager
def _default(pool: "Compute") -> Iterator[None]:
    import joblib

    with joblib.parallel_config("skyward", pool=pool):
        yield
