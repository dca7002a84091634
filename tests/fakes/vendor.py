"""The vendors' own clients, run as processes of their own against fakes."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.required import leave_out_for

__all__ = ["VENDORS", "run_vendor", "vendor_python"]

VENDORS = Path(__file__).parents[2] / ".cache" / "vendors"


def vendor_python(name: str) -> Path:
    """Return the interpreter of a vendor's client. Without the client, the test is skipped."""
    python = VENDORS / name / "bin" / "python"
    reason = "" if python.exists() else f"the client of {name} is not installed: run `make vendors`"
    leave_out_for(reason, "SKYWARD_VENDORS")
    return python


def run_vendor(name: str, script: str, environment: Mapping[str, str], home: Path) -> str:
    """Run a script with a vendor's client; return its output. Without the client, the test is skipped.

    Args:
        name: the client, as in scripts/vendors.sh.
        environment: variables besides those of this process.
        home: a folder for its files.
    """
    python = vendor_python(name)
    variables = {**os.environ, "HOME": str(home), **environment}
    done = subprocess.run(
        [str(python), "-c", script], env=variables, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, f"the client of {name} failed: {done.stderr}"
    return done.stdout
