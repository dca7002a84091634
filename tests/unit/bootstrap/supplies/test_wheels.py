"""Wheels that are packed from the files which uv has unpacked."""

import zipfile
from pathlib import Path

import pytest

from skyward.bootstrap.supplies.wheels import archives, pack_wheel, wheel_name
from skyward.errors import NodeStartError


def unpacked(folder: Path) -> Path:
    """Make the files of a wheel, and a folder in which uv would have linked them."""
    archive, target = folder / "cache" / "Ab-3_x", folder / "target"
    files = {
        "torchy.py": "VERSION = 1\n",
        "torchy-2.0+cpu.dist-info/METADATA": "Name: torchy\nVersion: 2.0+cpu\n",
        "torchy-2.0+cpu.dist-info/WHEEL": "Wheel-Version: 1.0\nTag: cp313-cp313-linux_a\nTag: cp313-cp313-linux_b\n",
        "torchy-2.0+cpu.dist-info/RECORD": "",
        "torchy-2.0+cpu.data/scripts/run": "#!python\n",
    }
    for name, text in files.items():
        (archive / name).parent.mkdir(parents=True, exist_ok=True)
        (archive / name).write_text(text)
    (archive / "torchy-2.0+cpu.data/scripts/run").chmod(0o755)
    (target / "torchy-2.0+cpu.dist-info").mkdir(parents=True)
    (target / "torchy-2.0+cpu.dist-info/METADATA").symlink_to(archive / "torchy-2.0+cpu.dist-info/METADATA")
    return target


def test_wheel_has_the_unpacked_files(tmp_path: Path) -> None:
    ((name, version, archive),) = archives(unpacked(tmp_path))
    assert (name, version) == ("torchy", "2.0+cpu")
    assert wheel_name(archive) == "torchy-2.0+cpu-cp313-cp313-linux_a.linux_b.whl"
    pack_wheel(archive, tmp_path / "one.whl")
    (archive / "torchy.py").touch()
    pack_wheel(archive, tmp_path / "two.whl")
    assert (tmp_path / "one.whl").read_bytes() == (tmp_path / "two.whl").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.whl") as packed:
        assert len(packed.namelist()) == 5
        assert packed.read("torchy.py") == b"VERSION = 1\n"
        assert packed.getinfo("torchy-2.0+cpu.data/scripts/run").external_attr >> 16 & 0o111


def test_copied_packages_are_refused(tmp_path: Path) -> None:
    metadata = unpacked(tmp_path) / "torchy-2.0+cpu.dist-info/METADATA"
    metadata.unlink()
    metadata.write_text("")
    with pytest.raises(NodeStartError, match="uv installed torchy-2.0"):
        list(archives(tmp_path / "target"))
