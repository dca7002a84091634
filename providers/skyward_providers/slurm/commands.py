"""Commands of Slurm, run on this machine or on a login node, and what their errors mean."""

import asyncio
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyward.errors import (
    CredentialsError,
    ProviderMissingError,
    ProvisioningError,
    QuotaError,
    RateLimitError,
    SpecError,
)

__all__ = ["LoginNodeError", "SlurmCommands", "SlurmError", "UnansweredError", "refusal"]

_WITHIN = 60.0
"""Seconds that a command may take; Slurm's own timeout of a message is 10 s by default."""

_KEPT = ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SHELL", "SLURM_CONF", "TZ", "USER")
"""Variables that commands on this machine get, besides those of SSH and `SBATCH_*`. `sbatch` passes them on to the job,
so it must get no others: they may hold secrets, and those of a surrounding job would be its options."""

_NOT_FOR_SBATCH = ("SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT")
"""Variables that stand for options which `options` refuses: each changes what `sbatch` submits, where, or prints."""

_FOR_SSH = ("DISPLAY", "KRB5CCNAME", "SSH_ASKPASS", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR")

_IN_STEPS = "HOME,LANG,LOGNAME,PATH,SHELL,USER"
"""Variables of the client that the commands on a node get."""

_PERSIST = 60
"""Seconds for which a connection to the login node stays open after the last command."""

_NOT_FOUND = 127
_CONNECTION_FAILED = 255
"""Exit statuses of a shell and of `ssh`."""

_LOST = re.compile(r"closed|broken pipe|reset by|not responding|disconnect|aborted", re.IGNORECASE)
"""Text of errors of `ssh` about a connection that existed: the command may have been carried out."""


class SlurmError(ProvisioningError):
    """Raised if a command of Slurm fails. The message is the reason that it printed."""


class LoginNodeError(SlurmError):
    """Raised if the login node cannot be reached, or has no commands of Slurm."""


class UnansweredError(Exception):
    """Raised if the controller may have carried out a command, and its answer was lost."""


class SlurmCommands:
    """Runner of Slurm's commands.

    Args:
        host: login node, as `ssh` takes it; None for this machine.

    Raises:
        ProviderMissingError: the commands are not on this machine.
    """

    def __init__(self, host: str | None) -> None:
        self._host = host
        self._ssh: tuple[str, ...] | None = None
        needed = ("sbatch", "srun", "squeue", "scancel", "scontrol") if host is None else ("ssh",)
        if missing := [command for command in needed if shutil.which(command) is None]:
            fix = (
                "install an OpenSSH client"
                if host is not None
                else "run this on a login node, or name one with `sky.Slurm(host=...)`"
            )
            raise ProviderMissingError(f"sky.Slurm needs {', '.join(f'`{each}`' for each in missing)} on PATH: {fix}.")

    async def call(self, *words: str, stdin: str = "") -> str:
        """Run a command, and return its output.

        Raises:
            SlurmError: the command failed; nothing was changed.
            UnansweredError: it may have been carried out.
        """
        words = await self._words(words)
        name = words[0] if self._host is None else f"{self._host}"
        try:
            done = await _run(words, stdin, _environment(self._host is not None))
        except TimeoutError:
            raise UnansweredError(f"`{name}` did not end within {_WITHIN:.0f} s") from None
        if done.status == 0:
            return done.out
        reason = _reason(f"{done.out}\n{done.err}") or f"it ended with status {done.status}"
        if self._host is not None and done.status == _CONNECTION_FAILED:
            if _LOST.search(reason):
                raise UnansweredError(f"the connection to {self._host} was lost: {reason}")
            raise LoginNodeError(
                f"Login node {self._host} cannot be reached: {reason}; check that `ssh {self._host}` works without "
                "a password."
            )
        if self._host is not None and done.status == _NOT_FOUND:
            raise LoginNodeError(
                f"There are no commands of Slurm on {self._host} ({reason}): add them to PATH of non-interactive "
                "shells there, or name a login node with `sky.Slurm(host=...)`."
            )
        if any(text in reason for text in _UNANSWERED):
            raise UnansweredError(reason)
        raise SlurmError(reason)

    async def _words(self, words: tuple[str, ...]) -> tuple[str, ...]:
        return words if self._host is None else (*await self._prefix(), shlex.join(words))

    async def ask(self, job: str, *words: str) -> str:
        """Run a command in a job, and return its output.

        Raises:
            SlurmError: the job cannot be entered, or the command failed.
        """
        remote = words if self._host is None else tuple(map(shlex.quote, words))
        environ = dict(os.environ)  # uvloop takes no other mapping
        try:
            done = await _run((*await self.entering(job), *remote), "", environ)
        except TimeoutError:
            raise SlurmError(f"it did not answer within {_WITHIN:.0f} s") from None
        if done.status:
            raise SlurmError(_reason(done.err) or f"a command ended with status {done.status}")
        return done.out

    async def entering(self, job: str) -> tuple[str, ...]:
        """Return the arguments of the command that runs commands in a job; those of the command follow."""
        if self._host is not None:
            return (*await self._prefix(), *_step(job))
        # A step takes the variables of a surrounding job for its options.
        foreign = sorted(name for name in os.environ if name.startswith("SLURM_") and name != "SLURM_CONF")
        unset = ("env", *(word for name in foreign for word in ("-u", name))) if foreign else ()
        return (*unset, *_step(job))

    async def terminal(self, job: str, shell: str) -> tuple[str, ...]:
        """Return the arguments of the command that opens a terminal in a job."""
        words = (*_step(job), "--pty", "sh", "-c", shell)
        if self._host is None:
            return (*(await self.entering(job)), *words[len(_step(job)) :])
        return (*await self._prefix("-t"), shlex.join(words))

    async def _prefix(self, *options: str) -> tuple[str, ...]:
        """Return the arguments of `ssh`. The commands share one connection."""
        assert self._host is not None
        if self._ssh is None:
            shared: tuple[str, ...] = ()
            settings = await _run(("ssh", "-G", self._host), "", _environment(True))
            if not re.search(r"^controlpath (?!none$)", settings.out, re.MULTILINE):  # the user's own comes first
                path = str(_socket_directory() / _name_of(settings.out))
                options_of_ours = {"ControlMaster": "auto", "ControlPath": path, "ControlPersist": f"{_PERSIST}"}
                shared = tuple(word for name, value in options_of_ours.items() for word in ("-o", f"{name}={value}"))
            self._ssh = ("ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", *shared)
        return (*self._ssh, *options, self._host)


@dataclass(frozen=True, slots=True)
class _Done:
    """Result of a command."""

    status: int
    out: str
    err: str


async def _run(words: Sequence[str], stdin: str, environ: Mapping[str, str]) -> _Done:
    """Run a program. It is killed if the caller is cancelled, or after a minute.

    Raises:
        TimeoutError: it did not end in time.
        SlurmError: it could not be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=environ, start_new_session=True,  # Ctrl-C in a terminal must not reach it
        )  # fmt: skip  # one option a line would hide the command
    except OSError as error:
        raise SlurmError(f"`{words[0]}` could not be started: {error}") from None
    try:
        async with asyncio.timeout(_WITHIN):
            out, err, _ = await asyncio.gather(
                _read(process.stdout), _read(process.stderr), _feed(process.stdin, stdin)
            )
            await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    assert process.returncode is not None
    return _Done(process.returncode, out, err)


async def _read(reader: asyncio.StreamReader | None) -> str:
    return "" if reader is None else (await reader.read()).decode(errors="replace")


async def _feed(writer: asyncio.StreamWriter | None, text: str) -> None:
    if writer is None:
        return
    with contextlib.suppress(ConnectionError, RuntimeError):  # it has ended; uvloop raises RuntimeError then
        writer.write(text.encode())
        await writer.drain()
    writer.close()


def _name_of(settings: str) -> str:
    """Return the name of the socket for a host with its settings: `%C` of ssh makes paths too long for some systems."""
    return hashlib.sha256(settings.encode()).hexdigest()[:16]


def _socket_directory() -> Path:
    """Return the directory of connections to login nodes, which only this user can enter.

    Raises:
        SlurmError: another user has created it.
    """
    path = Path(tempfile.gettempdir(), f"sky-slurm-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    state = path.lstat()
    if path.is_symlink() or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise SlurmError(f"{path} must be a directory that only you can access (mode 700).")
    return path


def _step(job: str) -> tuple[str, ...]:
    alone = ("--overlap", "--nodes=1", "--ntasks=1", "--quiet", "--unbuffered")
    return ("srun", f"--jobid={job}", *alone, f"--export={_IN_STEPS}")


def _environment(ssh: bool) -> Mapping[str, str]:
    kept = (*_KEPT, *_FOR_SSH) if ssh else _KEPT
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept
        or name.startswith("LC_")
        or (name.startswith("SBATCH_") and not ssh and name not in _NOT_FOR_SBATCH)
    }


_PREFIX = re.compile(
    r"^(?:[\w-]+: )?(?:error|fatal|allocation failure): |^slurm_\w+ error: |^Batch job submission failed: "
)


def _reason(output: str) -> str:
    """Return the reason of a failure: the last line of the output, without the name of the program."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith('Try "')]
    last = lines[-1] if lines else ""
    while (found := _PREFIX.match(last)) is not None:
        last = last[found.end() :]
    return last.rstrip(".")


_UNANSWERED = (
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unexpected message received",
    "Message receive failure",
    "Transport endpoint",
)
"""Errors after which the controller may have carried out a command."""

_QUOTA = ("QOS", "Assoc", "submit limit", "MaxSubmit")
_TOO_FAST = ("temporarily unable to accept", "Resource temporarily unavailable", "MaxJobCount")
_DENIED = ("not permitted", "denied", "Invalid user id", "authentication", "Munge", "User not found")
_IMPOSSIBLE = (
    *("Requested node configuration", "Requested time limit", "More processors requested", "Node count"),
    *("Invalid ", "invalid ", "specification", "unrecognized option"),
)
"""Parts of the reasons of refusals, by kind. An earlier kind comes first."""


def refusal(error: SlurmError) -> ProvisioningError | SpecError:
    """Return the error for a job that `sbatch` has refused; `error` itself if it could not be asked."""
    if isinstance(error, LoginNodeError):
        return error
    reason = str(error)
    if any(text in reason for text in _TOO_FAST):
        return RateLimitError(f"Slurm takes no more jobs now: {reason}; wait, or ask for fewer nodes.")
    if any(text in reason for text in _QUOTA):
        return QuotaError(
            f"Slurm refuses the job because of a limit of your account or QOS: {reason}; ask for fewer or smaller "
            "nodes, or name another with `sky.Slurm(account=..., options=['--qos=...'])`."
        )
    if any(text in reason for text in _DENIED):
        return CredentialsError(
            f"Slurm refuses the job: {reason}; name a partition and an account that you may use, as in "
            "`sky.Slurm(partition=..., account=...)`."
        )
    if any(text in reason for text in _IMPOSSIBLE):
        return SpecError(
            f"Slurm can never run such a job: {reason}; check vcpus, memory_gb and accelerator of the spec, and "
            "partition, account, time, gres and options of sky.Slurm."
        )
    return error
