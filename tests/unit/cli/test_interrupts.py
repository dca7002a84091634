"""Signals of a command that has nodes, and which of them count as a second one."""

import subprocess
import sys

import pytest

COMMAND = """
import os, signal, sys, time
from skyward.cli.terminal import interrupts
from skyward.cli.terminal.interrupts import Interrupts, Signalled

def send(name):
    os.kill(os.getpid(), getattr(signal, name))

interrupts._ONE_REQUEST = float(sys.argv[1])
with Interrupts("test", lambda: Signalled("stopping", "closing", "ends it", "left")) as signals:
    try:
        send(sys.argv[2])
    except KeyboardInterrupt:
        send(sys.argv[3])
        print("given back", signals.status)
"""


def command(within: float, first: str, second: str) -> tuple[int, str, str]:
    words = [sys.executable, "-c", COMMAND, str(within), first, second]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [("SIGTERM", "SIGTERM", 143), ("SIGINT", "SIGINT", 130), ("SIGHUP", "SIGTERM", 129)],
)
def test_signals_at_once_are_one_request(first: str, second: str, status: int) -> None:
    """Regression: `timeout` signals its child and then its group, which ended the command and lost its files."""
    done = command(3600.0, first, second)
    further = "Ctrl-C again" if first == "SIGINT" else "a second signal"
    assert done == (0, f"given back {status}\n", f"\ntest: stopping; {further} ends it\n")


def test_later_signal_ends_the_command() -> None:
    status, out, err = command(0.0, "SIGTERM", "SIGINT")
    assert (status, out) == (130, "")
    assert err.endswith("\ntest: left\n")
