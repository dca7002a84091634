"""Notes on requested system packages that were not installed on a node."""

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import pytest

from skyward.worker.tasks import missing_modules as missing
from skyward.worker.tasks.exceptions import as_ordinary_error

NOTE = "Image.apt asks for ffmpeg, jq, which Skyward does not install on this machine: install it yourself."


def raised(call: Any, *args: Any, **kwargs: Any) -> BaseException:
    try:
        call(*args, **kwargs)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


class Hostile(OSError):
    def __str__(self) -> str:
        raise RuntimeError("cannot be inspected")


ABOUT_THE_SYSTEM = {
    "no program": lambda: subprocess.run(["no-such-program-at-all"], check=True),
    "not found by a shell": lambda: subprocess.run(["sh", "-c", "exit 127"], check=True),
    "no library": lambda: ctypes.CDLL("libnosuchthing.so.1"),
}
OTHERS = {
    "no file": lambda: Path("no-such-file-at-all").read_text(),
    "a program failed": lambda: subprocess.run(["sh", "-c", "exit 1"], check=True),
    "an error": lambda: int("x"),
    "no module": lambda: __import__("no_such_module_at_all"),
}


@pytest.mark.parametrize("case", [*ABOUT_THE_SYSTEM, *OTHERS])
def test_note_is_added_to_errors_about_programs_and_libraries(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    call = (ABOUT_THE_SYSTEM | OTHERS)[case]
    assert not hasattr(as_ordinary_error(raised(call), "f()", 0), "__notes__")  # no package is missing
    monkeypatch.setattr(missing, "_NOT_INSTALLED", ["ffmpeg", "jq"])
    replaced = as_ordinary_error(raised(call), "f()", 0)
    assert getattr(replaced, "__notes__", []) == ([NOTE] if case in ABOUT_THE_SYSTEM else [])


def test_note_is_added_to_members_of_exception_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing, "_NOT_INSTALLED", ["ffmpeg", "jq"])
    member = raised(ABOUT_THE_SYSTEM["no program"])
    assert isinstance(member, Exception)
    as_ordinary_error(ExceptionGroup("several", [member, ValueError("x")]), "f()", 0)
    assert member.__notes__ == [NOTE]


def test_exception_that_cannot_be_inspected_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing, "_NOT_INSTALLED", ["ffmpeg", "jq"])
    error = Hostile()
    assert as_ordinary_error(error, "f()", 0) is error
