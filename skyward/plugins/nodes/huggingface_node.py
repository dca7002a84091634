"""The part of the plugin for the Hugging Face Hub that runs on nodes."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from skyward.errors import NodeStartError
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode
from skyward.values.validation import Secret

__all__ = ["HuggingFaceOnNode"]

_WITHIN = 3600.0
"""Seconds that the fetch of one repository may take."""

_HOW = {"HF_XET_HIGH_PERFORMANCE": "1", "NO_COLOR": "1"}
"""Variables of the command that fetches."""


class HuggingFaceOnNode(OnNode):
    """Sets the token and the cache of the Hub, and fetches repositories that need the token.

    Args:
        token: token of the Hub; None for none.
        cache: directory of the cache; None for the library's own.
        repositories: kind and name of each repository to fetch.
    """

    def __init__(self, token: str | None, cache: str | None, repositories: Sequence[Sequence[str]]) -> None:
        self._token = None if token is None else Secret(token)
        self._cache = None if cache is None else os.path.expanduser(cache)
        self._repositories = repositories

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, str]:
        """Return the variables of the library of the Hub. They are the only place where the token is shown."""
        found: dict[str, str] = {}
        if self._token is not None:
            found["HF_TOKEN"] = str(self._token)
        if self._cache is not None:
            found["HF_HOME"] = self._cache
        return found

    @contextmanager
    def around_process(self, node: InstanceInfo) -> Iterator[None]:
        """Fetch the repositories, unless another process of this machine has done so for the pool.

        The process has the variables of `environment` already, except those that the user has set to other values.

        Raises:
            NodeStartError: one cannot be fetched.
        """
        for kind, name in self._repositories:
            self._fetch(kind, name, {**self.environment(node, 0), **os.environ, **_HOW})
        yield

    def _fetch(self, kind: str, name: str, variables: Mapping[str, str]) -> None:
        """Fetch a repository once for each pool: a file in the cache names the last one."""
        marks = Path(variables.get("HF_HOME") or Path.home() / ".cache" / "huggingface", "skyward")
        marks.mkdir(parents=True, exist_ok=True)
        pool = os.environ.get("SKYWARD_POOL", "")
        with (marks / hashlib.sha256(f"{kind} {name}".encode()).hexdigest()[:16]).open("a+") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX)
            mark.seek(0)
            if not pool or mark.read() != pool:
                self._download(kind, name, variables)
                mark.truncate(0)
                mark.write(pool)

    def _download(self, kind: str, name: str, variables: Mapping[str, str]) -> None:
        command = shutil.which("hf", path=f"{Path(sys.executable).parent}{os.pathsep}{variables.get('PATH', '')}")
        if command is None:
            raise NodeStartError(
                "Plugin 'huggingface' needs the command `hf` on this node: add 'huggingface_hub' to its environment."
            )
        try:
            done = subprocess.run(
                [command, "download", "--quiet", "--repo-type", kind, name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=variables,
                timeout=_WITHIN,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NodeStartError(f"The {kind} {name} was not fetched from the Hub within {_WITHIN:g} s.") from None
        if done.returncode:
            said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            errors = [line.removeprefix("Error: ") for line in said if line.startswith("Error: ")]
            reason = [*errors, *reversed(said), "it said nothing"][0]
            if token := variables.get("HF_TOKEN"):
                reason = reason.replace(token, "***")
            raise NodeStartError(f"The {kind} {name} could not be fetched from the Hub: {reason}")
