"""A minimal system, like a plain image of a cloud.

debootstrap creates it from the mirror that this host installs from: the base system, and sshd. Next to it is a mirror
with the packages that its machines may install with apt. Both are cached between runs, in a folder for each release and
choice of packages: creating them takes most of a minute.

    python -m tests.machines.minimal    # create it now, or print the reason why it cannot be created
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

__all__ = ["KEPT", "add_package", "described_python", "machine_type", "make_python", "packages", "system", "why_not"]

KEPT = Path("/var/cache/skyward-tests")
_INCLUDED = ("openssh-server",)
_OFFERED = ("python3-venv", "bc")
"""Packages that machines may install with apt."""

_MAKE = """
set -eu
debootstrap --variant=minbase --include={included} {release} {made}/root {mirror}
cd {made}
mkdir -p root/etc/ssl packages
rm -f root/var/cache/apt/archives/*.deb
mount --bind /etc/ssl root/etc/ssl
chroot root apt-get -q -y --no-install-recommends --download-only install {offered}
umount root/etc/ssl
mv root/var/cache/apt/archives/*.deb packages/
rm -rf root/var/lib/apt/lists/* root/var/cache/apt/*.bin
: >root/etc/resolv.conf
: >root/etc/apt/sources.list
"""
"""Script that creates the system. The chroot uses the certificates of this host for the mirror, and none afterwards."""


def why_not() -> str:
    """Return the reason why the system cannot be created here; empty if it can, or exists."""
    missing = [command for command in ("debootstrap", "dpkg-deb") if not shutil.which(command)]
    if missing:
        return f"a minimal system needs {', '.join(missing)}"
    try:
        system()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return str(error)
    return ""


def system() -> Path:
    """Return the folder with the files of the system. Read-only: machines use it as the base of an overlay."""
    return _kept() / "root"


def packages() -> Path:
    """Return the folder with the packages that its machines may install."""
    return _kept() / "packages"


def _kept() -> Path:
    """Return the folder of both, and create it if needed. Concurrent runs wait for it."""
    choice = hashlib.sha256(repr((_MAKE, _INCLUDED, _OFFERED)).encode()).hexdigest()[:8]
    found = KEPT / f"{_release()}-{machine_type()}-{choice}"
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.is_dir():
            part = found.with_name(f"{found.name}.new")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            _make(part)
            for package in (part / "packages").iterdir():
                _note(package)
            part.rename(found)
    return found


def _make(folder: Path) -> None:
    """Create both. Mounts are made in a separate namespace, so none of them is left after an error."""
    names = {"made": folder, "release": _release(), "mirror": _mirror()}
    words = {name: shlex.quote(str(value)) for name, value in names.items()}
    script = _MAKE.format(included=",".join(_INCLUDED), offered=" ".join(_OFFERED), **words)
    proxy = _output("apt-config", "shell", "proxy", "Acquire::http::Proxy").partition("=")[2].strip().strip("'")
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script],
        env={**os.environ, **({"http_proxy": proxy} if proxy else {})},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip  # one option a line would hide the command
    if done.returncode:
        raise RuntimeError(f"no minimal system could be made:\n{(done.stdout + done.stderr)[-3000:]}")


def machine_type() -> str:
    """Return the name of this host's processor architecture."""
    return os.uname().machine


def _release() -> str:
    """Return the release of this host, as its mirror names it."""
    lines = Path("/etc/os-release").read_text().splitlines()
    said = dict(line.split("=", 1) for line in lines if "=" in line)
    return said["VERSION_CODENAME"].strip('"')


def _mirror() -> str:
    """Return the address of the mirror of this host's release."""
    what = ("--format", "$(REPO_URI)", "Created-By: Packages", f"Release: {_release()}", "Component: main")
    found = _output("apt-get", "indextargets", *what).split()
    if not found:
        raise RuntimeError(f"apt-get of this host knows no mirror of {_release()}")
    return found[0]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def _note(package: Path) -> None:
    """Add a package to the index of its folder, which apt reads."""
    fields = _output("dpkg-deb", "--field", str(package)).rstrip("\n")
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    with (package.parent / "Packages").open("a") as listed:
        listed.write(f"{fields}\nFilename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n\n")


def make_python(folder: Path) -> Path:
    """Pack the Python that runs the tests as a relocatable archive with a folder `python`.

    It has the form that uv installs: the interpreter, its shared library if it has one, and the standard library
    without tests.
    """
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    interpreter = folder / minor
    # The path of its shared library is absolute: make it relative to the interpreter.
    own, relative = f"{base / 'lib'}\0".encode(), b"$ORIGIN/../lib\0"
    original = (base / "bin" / minor).resolve().read_bytes()
    interpreter.write_bytes(original.replace(own, relative.ljust(len(own), b"\0")))
    interpreter.chmod(0o755)
    archive = folder / "python.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(interpreter, f"python/bin/{minor}")
        link = tarfile.TarInfo("python/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, minor
        packed.addfile(link)
        shared = base / "lib" / str(sysconfig.get_config_var("INSTSONAME"))
        if shared.suffix != ".a" and shared.is_file():
            packed.add(shared, f"python/lib/{shared.name}")
        packed.add(sysconfig.get_path("stdlib"), f"python/lib/{minor}", filter=_needed)
    return archive


def described_python(address: str) -> dict[str, object]:
    """Return the description, for uv, of the archive that `make_python` makes and that is served at an address."""
    major, minor, patch = sys.version_info[:3]
    described = {
        "name": "cpython", "os": "linux", "libc": "gnu", "prerelease": "", "sha256": None, "variant": None,
        "arch": {"family": machine_type(), "variant": None}, "major": major, "minor": minor, "patch": patch,
        "url": address,
    }  # fmt: skip  # as a table
    return {f"cpython-{major}.{minor}.{patch}-linux-{machine_type()}-gnu": described}


_LEFT_OUT = frozenset({"__pycache__", "test", "tests", "site-packages", "idlelib", "tkinter", "ensurepip"})


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith(".a") or not _LEFT_OUT.isdisjoint(entry.name.split("/")) else entry


def add_package(folder: Path, name: str, version: str, archive: Path) -> None:
    """Add a package for apt to a folder with an index: the files of an archive, below `/usr`."""
    tree = folder / name
    (tree / "DEBIAN").mkdir(parents=True)
    fields = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: tests\nDescription: of the tests\n"
    (tree / "DEBIAN/control").write_text(fields)
    with tarfile.open(archive) as packed:
        packed.extractall(tree / "usr", [_placed(entry) for entry in packed], filter="tar")
    package = folder / f"{name}.deb"
    _output("dpkg-deb", "--build", "-Znone", str(tree), str(package))
    shutil.rmtree(tree)
    _note(package)


def _placed(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    return entry.replace(name=entry.name.partition("/")[2])


if __name__ == "__main__":
    sys.exit(why_not() or None)
