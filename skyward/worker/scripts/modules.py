"""Modules of the client beside a script, in a folder for PYTHONPATH."""

import hashlib
import os
from collections.abc import Mapping

from skyward.errors import PayloadError
from skyward.worker.tasks.folder import directories

__all__ = ["place_modules"]


def place_modules(modules: Mapping[str, bytes]) -> str:
    """Write the sources to a folder of their own, named by their content, unless it is there; return the folder.

    Raises:
        PayloadError: they cannot be written.
    """
    around = directories()
    digest = hashlib.sha256(repr(sorted(modules.items())).encode()).hexdigest()[:16]
    folder = os.path.join(os.getcwd() if around is None else around.own, f"modules-{digest}")
    try:
        for path, source in modules.items():
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            temporary = f"{target}.{os.getpid()}"
            with open(temporary, "wb") as file:
                file.write(source)
            os.replace(temporary, target)
    except OSError as error:
        raise PayloadError(f"The modules of the script cannot be written to {folder}: {error.strerror}.") from None
    return folder
