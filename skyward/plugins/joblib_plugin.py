"""Plugins for joblib and scikit-learn, whose parallel calls run on the pool.

Joblib knows the backend without them, too: they add the packages to the nodes' environment, and make the backend
the default in a `with` block.
"""

import importlib.metadata
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from skyward.errors import SpecError
from skyward.plugins.packages import check_version, versioned, with_packages
from skyward.specs.plugin import Plugin

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
            SpecError: the client does not have the first package, or joblib 1.5.
        """
        first, *others = self.packages
        for package in (first, "joblib"):
            if _like_here(package) == package:
                raise SpecError(f"The plugin needs {package} on this machine too: `pip install {package}`.")
        if re.match(r"0\.|1\.[0-4](\D|$)", here := importlib.metadata.version("joblib")):
            raise SpecError(f"A pool needs joblib 1.5 or newer, but {here} is installed: update joblib.")
        wanted = _like_here(first) if self.version is None else versioned(first, self.version)
        theirs = [package for package in others if not any(map(_pin(package).match, image.pip))]
        return with_packages(image, wanted, *map(_like_here, theirs))

    def around_block(self, pool: "Compute") -> AbstractContextManager[None]:
        """Make the backend joblib's default in a `with` block of the pool, on its thread.

        Elsewhere, nothing is redirected: joblib's setting belongs to a thread, so all coroutines of an `async with`
        block would share it, and a pool that is open without a block would keep it. Write
        `with joblib.parallel_config("skyward"):` there.
        """
        return _default(pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joblib(_Parallel):
    """Run the calls of `joblib.Parallel` on the pool.

    Attributes:
        version: version of joblib on nodes: one, a range, or "latest"; None for that of the client.

    Raises:
        SpecError: `version` is none of them.

    Example:
        >>> with sky.Compute(nodes=4, plugins=[sky.plugins.joblib()]):
        ...     results = joblib.Parallel(n_jobs=-1)(joblib.delayed(simulate)(seed) for seed in range(1000))
    """

    name = "joblib"
    packages = ("joblib", "threadpoolctl")

    version: str | None = None

    def __post_init__(self) -> None:
        check_version(self.version, "version", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sklearn(_Parallel):
    """Run the parallel parts of scikit-learn on the pool.

    Attributes:
        version: version of scikit-learn on nodes: one, a range, or "latest"; None for that of the client.

    Raises:
        SpecError: `version` is none of them.

    Example:
        >>> with sky.Compute(nodes=4, plugins=[sky.plugins.sklearn()]):
        ...     search = GridSearchCV(SVC(), {"C": [1, 10, 100]}, n_jobs=-1).fit(X, y)
    """

    name = "sklearn"
    after = frozenset({"joblib"})  # whose version counts
    packages = ("scikit-learn", "joblib")

    version: str | None = None

    def __post_init__(self) -> None:
        check_version(self.version, "version", optional=True)


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
