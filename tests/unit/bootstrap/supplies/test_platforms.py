"""Platforms of machines, from what `uname` and `getconf` say."""

import platform

import pytest

from skyward.bootstrap.supplies import Platform


@pytest.mark.parametrize(
    ("system", "machine", "libc", "for_wheels", "for_python"),
    [
        ("Linux", "x86_64", "glibc 2.36", "x86_64-manylinux_2_36", "linux-x86_64-gnu"),
        ("Linux", "x86_64", "glibc 2.30", "x86_64-manylinux_2_28", "linux-x86_64-gnu"),
        ("Linux", "x86_64", "ldd (GNU libc) 2.99", "x86_64-manylinux_2_40", "linux-x86_64-gnu"),
        ("Linux", "aarch64", "glibc 2.12", "aarch64-manylinux_2_17", "linux-aarch64-gnu"),
        ("Linux", "x86_64", "musl libc (x86_64)", "x86_64-unknown-linux-musl", "linux-x86_64-musl"),
        ("Darwin", "arm64", "", "aarch64-apple-darwin", "macos-aarch64-none"),
    ],
)
def test_platform_is_named_as_uv_names_it(
    system: str, machine: str, libc: str, for_wheels: str, for_python: str
) -> None:
    found = Platform.of(system, machine, libc)
    assert found is not None
    assert (found.for_wheels, found.for_python) == (for_wheels, for_python)


@pytest.mark.parametrize(("system", "machine"), [("FreeBSD", "amd64"), ("Linux", "armv7l"), ("Linux", "")])
def test_platform_without_packages_has_no_name(system: str, machine: str) -> None:
    assert Platform.of(system, machine, "glibc 2.36") is None


def test_programs_run_on_the_same_or_a_newer_system() -> None:
    old, new = Platform("linux", "x86_64", 28), Platform("linux", "x86_64", 36)
    assert new.runs_programs_of(old)
    assert not old.runs_programs_of(new)
    assert not new.runs_programs_of(Platform("linux", "aarch64", 28))
    assert not new.runs_programs_of(Platform("linux", "x86_64", None))
    assert Platform("macos", "aarch64", None).runs_programs_of(Platform("macos", "aarch64", None))


@pytest.mark.parametrize(
    ("wheel", "runs"),
    [
        ("six-1.17.0-py2.py3-none-any.whl", True),
        ("numpy-2.0-cp313-cp313-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl", True),
        ("mine-1.0-cp313-cp313-linux_x86_64.whl", False),
        ("mine-1.0-cp313-cp313-macosx_14_0_arm64.whl", False),
    ],
)
def test_wheels_that_were_built_for_the_client_are_not_sent_elsewhere(
    monkeypatch: pytest.MonkeyPatch, wheel: str, runs: bool
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    assert Platform("linux", "aarch64", 36).runs_wheel(wheel) == runs
    assert Platform("linux", "x86_64", 39).runs_wheel("mine-1.0-cp313-cp313-linux_x86_64.whl")
