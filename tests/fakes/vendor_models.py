"""Models of a vendor's client, in a process of its own, against which a fake checks requests and answers."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

from tests.fakes.vendor import vendor_python

__all__ = ["VendorModels"]


class VendorModels:
    """A process with a vendor's client. Used with `with`. Without the client, the test is skipped.

    Args:
        name: the client, as in scripts/vendors.sh.
        script: a script in this folder, which answers each line of JSON, a name of a model and a value, with the list
            of differences.
    """

    def __init__(self, name: str, script: str) -> None:
        # -P: modules of this folder must not hide the client's.
        command = [str(vendor_python(name)), "-P", str(Path(__file__).with_name(script))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lock = threading.Lock()
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", f"{script} does not start"

    def differences(self, model: str, value: Any) -> list[str]:
        """Return where `value` differs from a model."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps([model, value]) + "\n")
            self._process.stdin.flush()
            found: list[str] = json.loads(self._process.stdout.readline())
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its input, which ends it
            pass
