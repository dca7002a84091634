"""Exit statuses by which a worker says why it has ended, and the reason for users."""

__all__ = ["NOT_STOPPED", "NO_PROCESS", "exit_text"]

NOT_STOPPED = 75
"""A task did not stop, so the process ends with it and is replaced (EX_TEMPFAIL)."""

NO_PROCESS = 71
"""A slot got no process for its tasks (EX_OSERR)."""

_WHY = {
    NOT_STOPPED: "Skyward ended its process, since a task on it did not stop",
    NO_PROCESS: "Skyward ended its process, since a task could get no process on it",
}


def exit_text(status: int) -> str:
    """Return why a worker is gone whose process has ended with a status of at least 0."""
    return _WHY.get(status, f"its process ended with status {status}")
