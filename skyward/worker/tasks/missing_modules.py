"""Errors about modules, programs and system libraries that are not installed on a node."""

import contextlib
import os
import traceback
from json import loads  # tasks may replace the attributes of the module
from subprocess import CalledProcessError

from skyward.errors import MissingModuleError

__all__ = ["KNOWN_PACKAGES", "missing_module", "note_system_packages", "pip_name"]

_PACKAGES = os.environ.get("SKYWARD_PIP")
_NOT_INSTALLED = os.environ.get("SKYWARD_APT", "").split()
"""Requirements that are installed on this node, as JSON, and requested system packages that are not. Read as the worker
starts: tasks may change the variables."""

_COMMAND_NOT_FOUND = 127

KNOWN_PACKAGES = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "IPython": "ipython",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "PyQt5": "pyqt5",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "gitpython",
    "github": "pygithub",
    "google.protobuf": "protobuf",
    "haystack": "haystack-ai",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "ldap": "python-ldap",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "nacl": "pynacl",
    "osgeo": "gdal",
    "pkg_resources": "setuptools",
    "psycopg2": "psycopg2-binary",
    "pythoncom": "pywin32",
    "rest_framework": "djangorestframework",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "socks": "pysocks",
    "tlz": "toolz",
    "umap": "umap-learn",
    "usb": "pyusb",
    "wx": "wxpython",
    "xdist": "pytest-xdist",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Packages whose name differs from that of their module."""


def pip_name(module: str) -> str:
    """Return the package that provides `module`, by its name for pip."""
    parts = module.split(".")
    return KNOWN_PACKAGES.get(".".join(parts[:2])) or KNOWN_PACKAGES.get(parts[0], parts[0].replace("_", "-"))


def missing_module(error: ModuleNotFoundError, node: int | None = None) -> MissingModuleError:
    """Return an error that names the module and the node. The client adds advice: it knows where the module is from."""
    module = error.name or str(error).partition("'")[2].partition("'")[0] or str(error)
    where = "the node" if node is None else f"node {node}"
    missing = MissingModuleError(f"module {module!r} is not installed on {where}", name=module)
    missing.__cause__ = error
    if _PACKAGES is not None:
        missing.packages = tuple(loads(_PACKAGES))
    return missing


def note_system_packages(error: BaseException) -> None:
    """Add a note to an error about a system program or library, if a missing system package may provide it."""
    if not _NOT_INSTALLED:
        return
    with contextlib.suppress(Exception):  # inspecting a user's exception may raise anything
        if _is_of_the_system(error):
            error.add_note(
                f"Image.apt asks for {', '.join(_NOT_INSTALLED)}, which Skyward does not install on this machine: "
                "install it yourself."
            )


def _is_of_the_system(error: BaseException) -> bool:
    """Return whether an error says that a system program or library was not found."""
    match error:
        case FileNotFoundError():
            frames = traceback.extract_tb(error.__traceback__, limit=-1)
            return bool(frames) and os.path.basename(frames[-1].filename) == "subprocess.py"
        case OSError() | ImportError():
            return "cannot open shared object file" in str(error)
        case CalledProcessError():
            return error.returncode == _COMMAND_NOT_FOUND
    return False
