"""Builds the side panel and the widget, tests their models, and notes what they were built from. Takes node and npm.

    python scripts/panel_build.py

What it builds, `labextension/dist` and `skyward_jupyter/view/front/pool.js`, is in the repository: who installs needs
no node. A test holds that it was built from the sources as they are.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.panel_types import PATH, typescript

FOLDER = Path(__file__).parents[1] / "labextension"
NOTE = FOLDER / "dist" / "made-from"
SOURCES = ("package.json", "package-lock.json", "tsconfig.json", "webpack.config.js", "schema", "src", "style")


def digest() -> str:
    """What the panel would be built from now."""
    files = [path for name in SOURCES for path in (FOLDER / name, *(FOLDER / name).rglob("*")) if path.is_file()]
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(f"{path.relative_to(FOLDER).as_posix()}\n".encode())
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def main() -> int:
    """Build; 0 if all went well."""
    if shutil.which("npm") is None:
        sys.stderr.write("panel: building the side panel takes node and npm; install node 20 or newer.\n")
        return 1
    PATH.write_text(typescript())
    installed, lock = FOLDER / "node_modules" / ".made-from", (FOLDER / "package-lock.json").read_text()
    # The builder comes with JupyterLab, and is a command beside this interpreter.
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
    # The JupyterLab of this environment shows what was built from now on.
    return subprocess.run(["sh", "scripts/setup.sh"], cwd=FOLDER.parent, check=False).returncode


def _read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main())
