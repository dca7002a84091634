"""An archive of the interpreter of this process, for machines of the same platform."""

import shutil
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

__all__ = ["pack_folder", "pack_interpreter"]

_LEFT_OUT = frozenset({
    "__pycache__", "dist-packages", "ensurepip", "idlelib", "site-packages", "test", "tests", "tkinter", "turtledemo",
})  # fmt: skip  # one name a line would be no clearer


def pack_folder(folder: Path, archive: Path) -> None:
    """Pack a folder, by its name."""
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(folder, folder.name)


def pack_interpreter(name: str, archive: Path) -> None:
    """Pack the interpreter of this process, its shared library and its standard library as a folder `name`.

    Raises:
        FileNotFoundError: it has not the usual folders.
    """
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    shared = base / "lib" / str(sysconfig.get_config_var("INSTSONAME"))
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed, tempfile.TemporaryDirectory() as folder:
        program = Path(folder, minor)
        shutil.copyfile((base / "bin" / minor).resolve(strict=True), program)
        program.chmod(0o755)
        if shared.suffix != ".a" and shared.is_file():
            _find_library_beside(program, base)
            packed.add(shared.resolve(), f"{name}/lib/{shared.name}")
        packed.add(program, f"{name}/bin/{minor}")
        link = tarfile.TarInfo(f"{name}/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, minor
        packed.addfile(link)
        packed.add(sysconfig.get_path("stdlib"), f"{name}/lib/{minor}", filter=_needed)


def _find_library_beside(program: Path, base: Path) -> None:
    """Replace an absolute path of the shared library by one relative to the program. The path ends with a zero byte."""
    absolute, relative = f"{base / 'lib'}\0".encode(), b"$ORIGIN/../lib\0"
    if len(relative) <= len(absolute):
        program.write_bytes(program.read_bytes().replace(absolute, relative.ljust(len(absolute), b"\0")))


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith((".a", ".pyc")) or not _LEFT_OUT.isdisjoint(entry.name.split("/")) else entry
