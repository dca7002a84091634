"""Builds the side panel and the widget, tests their models, and stores the digest of the sources. Needs node and npm.

    python scripts/panel_build.py

Both builds, `labextension/dist` and `skyward_jupyter/view/front/pool.js`, are in the repository, so installing needs no
node. A test checks that they were built from the current sources.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from scripts.panel_types import PATH, typescript

FOLDER = Path(__file__).parents[1] / "labextension"
NOTE = FOLDER / "dist" / "made-from"
VERSION = re.compile(r'(?<="name": "skyward-panel",\n)( *"version": )"[^"]*"')
"""The version of the panel, in `package.json`, and twice in `package-lock.json`."""

SOURCES = ("package.json", "package-lock.json", "tsconfig.json", "webpack.config.js", "schema", "src", "style")


def digest() -> str:
    """Return the digest of the sources of the panel."""
    files = [path for name in SOURCES for path in (FOLDER / name, *(FOLDER / name).rglob("*")) if path.is_file()]
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(f"{path.relative_to(FOLDER).as_posix()}\n".encode())
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def with_version(text: str) -> str:
    """Return the text of `package.json` or `package-lock.json` with the version of the project."""
    version = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["project"]["version"]
    return VERSION.sub(rf'\1"{version}"', text)


def main() -> int:
    """Build; return 0 on success."""
    if shutil.which("npm") is None:
        sys.stderr.write("panel: building the side panel takes node and npm; install node 20 or newer.\n")
        return 1
    PATH.write_text(typescript())
    for name in ("package.json", "package-lock.json"):
        (FOLDER / name).write_text(with_version((FOLDER / name).read_text()))
    installed, lock = FOLDER / "node_modules" / ".made-from", (FOLDER / "package-lock.json").read_text()
    # The builder is installed with JupyterLab, as a command beside this interpreter.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    steps = [["npm", "ci", "--no-audit", "--no-fund"]] if _read(installed) != lock else []
    for step in (*steps, ["npm", "run", "check"], ["npm", "test"], ["npm", "run", "build"]):
        done = subprocess.run(step, cwd=FOLDER, env={**os.environ, "PATH": path}, check=False)
        if done.returncode:
            return done.returncode
    installed.write_text(lock)
    for leftover in (FOLDER / "dist" / "schemas").rglob("*.orig"):
        leftover.unlink()
    NOTE.write_text(f"{digest()}\n")
    # Make the JupyterLab of this environment load the new build.
    return subprocess.run(["sh", "scripts/setup.sh"], cwd=FOLDER.parent, check=False).returncode


def _read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main())
