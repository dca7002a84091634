"""The plugin for the Hugging Face Hub: its token, its cache, and what to fetch before tasks run."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from skyward.errors import SpecError
from skyward.plugins.packages import has_own_packages, with_packages
from skyward.specs.plugin import Plugin, PluginStep
from skyward.values.validation import Secret, of_type, shown, strings

if TYPE_CHECKING:
    from skyward.specs.image import Image
    from skyward.specs.spec import Spec  # circular: a spec has plugins, whose methods take it

__all__ = ["HuggingFace"]

_PACKAGE: Final = "huggingface_hub>=0.34"
"""The package with the command `hf`, from the first version that has it."""

_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_DIRECTORY = re.compile(r"(/|~/)[^\x00-\x1f]+")
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFace(Plugin):
    """Fetch models and data sets from the Hugging Face Hub to each node, and give tasks the token.

    Without a token, they are fetched by the set-up of a machine, with its output and its time limit,
    `bootstrap_timeout` of `Image`; nodes without a set-up, as local ones, fetch what they use as they use it. The text
    of the set-up must not have secrets. So with a token, the first process of each node fetches them instead, before
    the node counts as ready, within `bootstrap_timeout` of the pool. What the cache has is not fetched again.

    Attributes:
        models, datasets: repositories to fetch, such as "org/name".
        token: token of the Hub, for private and gated repositories; tasks have it as `HF_TOKEN`.
        cache: directory of the cache on nodes, such as the mount of a volume; "~/..." is below the home there. None
            for the cache of the machine in Skyward's directory; local nodes use that of their user.

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> hub = sky.plugins.huggingface(models=["org/model"], token=os.environ["HF_TOKEN"], cache="/data/hub")
        >>> sky.Compute(accelerator="A100", plugins=[hub])
    """

    name = "huggingface"
    on_node = "skyward.plugins.nodes.huggingface_node:HuggingFaceOnNode"

    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    token: str | None = None
    cache: str | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            models: Iterable[str] = (),
            datasets: Iterable[str] = (),
            token: str | None = None,
            cache: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        self._set(
            models=_repositories(self.models, "models"),
            datasets=_repositories(self.datasets, "datasets"),
            token=_token(self.token),
        )
        if self.cache is not None:
            of_type(self.cache, "cache", str, "cache='/data/hub'")
            if not _DIRECTORY.fullmatch(self.cache):
                raise SpecError(f"cache must be an absolute path, or begin with '~/', but got {shown(self.cache)}.")

    def image(self, image: "Image", spec: "Spec") -> "Image":
        """Return the environment with the library of the Hub. Local nodes have the packages of this process."""
        return with_packages(image, _PACKAGE) if has_own_packages(spec) else image

    def steps(self, spec: "Spec") -> tuple[PluginStep, ...]:
        """Return the step that fetches the repositories; none with a token."""
        fetched = [f"fetch {kind} {shlex.quote(name)}\n" for kind, name in self._repositories()]
        if self.token is not None or not fetched:
            return ()
        return (PluginStep("huggingface", "".join([self._home(spec), _commands(), *fetched])),)

    def settings(self) -> Mapping[str, Any]:
        """Return the token, the cache, and what the node has to fetch with them."""
        fetched = self._repositories() if self.token is not None else ()
        return {"token": self.token, "cache": self.cache, "repositories": [list(each) for each in fetched]}

    def _repositories(self) -> Iterator[tuple[str, str]]:
        """Yield kind and name of each repository."""
        yield from (("model", name) for name in self.models)
        yield from (("dataset", name) for name in self.datasets)

    def _home(self, spec: "Spec") -> str:
        """Return shell text that sets the directory of the cache, unless the user has set the variable for it."""
        if self.cache is None or "HF_HOME" in spec.image.env:
            return ""
        below_home = self.cache.removeprefix("~/")
        start = "" if below_home == self.cache else '"$HOME"/'
        return f"export HF_HOME={start}{shlex.quote(below_home)}\n"


@cache
def _commands() -> str:
    return files("skyward.plugins").joinpath("huggingface.sh").read_text(encoding="utf-8")


def _repositories(given: object, name: str) -> tuple[str, ...]:
    found = strings(given, name, "['org/name']")
    for each in found:
        if not _REPOSITORY.fullmatch(each):
            raise SpecError(f"{name} must have names of repositories, such as 'org/name', but it has {shown(each)}.")
    return found


def _token(given: object) -> Secret | None:
    """Return a token as a secret. Errors do not show it."""
    if given is None:
        return None
    if not isinstance(given, str) or not _TOKEN.fullmatch(given):
        kind = "a string with blanks or other characters" if isinstance(given, str) else type(given).__name__
        raise SpecError(f"token must be a token of the Hugging Face Hub, such as 'hf_...', but it is {kind}.")
    return Secret(given)
