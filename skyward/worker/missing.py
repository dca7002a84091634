"""A module that is not installed on a node, told with the option that adds it."""

from skyward.errors import MissingModuleError

__all__ = ["missing_module", "pip_name"]

_PIP_NAMES = {
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
"""Packages whose name is not that of the module they bring."""


def pip_name(module: str) -> str:
    """The package that brings `module`, as pip calls it."""
    parts = module.split(".")
    return _PIP_NAMES.get(".".join(parts[:2])) or _PIP_NAMES.get(parts[0], parts[0].replace("_", "-"))


def missing_module(error: ModuleNotFoundError, node: int | None = None) -> MissingModuleError:
    """One sentence that names the module, where it is missing, and the option that adds it."""
    module = error.name or str(error).partition("'")[2].partition("'")[0] or str(error)
    where = "the node" if node is None else f"node {node}"
    pip = pip_name(module)
    missing = MissingModuleError(
        f"module {module!r} is not installed on {where}; "
        f"add it with `--pip {pip}` on the cell, or Image(pip=[{pip!r}]) in code",
        name=module,
    )
    missing.__cause__ = error
    return missing
