"""The magics that a cell can use on a node: `%time`, `%%bash` and a few more, without IPython.

The client uses this module too, to check names and options before anything is sent.
"""

import os
import re
import resource
import shlex
import statistics
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter  # tasks may replace the attributes of the module
from typing import Any

from skyward.errors import UsageError
from skyward.worker.code.program import build

__all__ = [
    "CELL_MAGICS",
    "IGNORED",
    "LINE_MAGICS",
    "Repeated",
    "change_folder",
    "environment",
    "repeated",
    "script_arguments",
    "timed",
    "timeit_duration",
    "write_file",
]

LINE_MAGICS = frozenset({"time", "timeit", "cd", "pwd", "env", "set_env"})
CELL_MAGICS = frozenset({"time", "timeit", "bash", "sh", "writefile", "file"})

IGNORED = frozenset({"matplotlib", "config"})
"""Magics for the notebook's display. Ignored on a node, which renders figures by itself."""

_FLAG = re.compile(r"-(?P<flag>[a-zA-Z])\s*(?P<value>\d*)(?:\s+|$)")
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "μs"), (1e-9, "ns"))
_LONG_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_LONG_ENOUGH = 0.2
"""Minimum seconds of one `%timeit` run without a number of loops."""


def timed(code: str, namespace: dict[str, Any], filename: str, line: int, say: Callable[[str], object]) -> Any:
    """Run `code`, which starts on line `line` of the cell `filename`, and print its duration, also if it raises.

    Returns:
        The value of its last expression.
    """
    program = build("\n" * (line - 1) + code, filename)
    user, system, wall = _clocks()
    try:
        exec(program.body, namespace)
        return None if program.last is None else eval(program.last, namespace)
    finally:
        user, system, wall = (end - start for end, start in zip(_clocks(), (user, system, wall), strict=True))
        used = f"user {timeit_duration(user)}, sys: {timeit_duration(system)}, total: {timeit_duration(user + system)}"
        say(f"CPU times: {used}\nWall time: {timeit_duration(wall)}\n")


@dataclass(frozen=True, slots=True)
class Repeated:
    """Parsed arguments of `%timeit`.

    Attributes:
        code: the code to measure.
        setup: code that runs once before.
        loops: executions in each run; 0 to choose a number that takes long enough.
        runs: number of measurements.
        digits: significant digits of printed times.
        quiet: print nothing.
    """

    code: str
    setup: str = "pass"
    loops: int = 0
    runs: int = 7
    digits: int = 3
    quiet: bool = False

    def measure(self, namespace: dict[str, Any], say: Callable[[str], object]) -> None:
        """Run the measurements, and print the duration of one loop."""
        timer = timeit.Timer(self.code, self.setup, globals=namespace)
        loops = self.loops
        if not loops:
            loops = next((10**power for power in range(9) if timer.timeit(10**power) >= _LONG_ENOUGH), 10**9)
        times = [seconds / loops for seconds in timer.repeat(self.runs, loops)]
        if not self.quiet:
            mean = timeit_duration(statistics.fmean(times), self.digits)
            spread = timeit_duration(statistics.pstdev(times), self.digits)
            runs = f"{self.runs} run{'s' * (self.runs != 1)}"
            say(f"{mean} ± {spread} per loop (mean ± std. dev. of {runs}, {loops:,} loop{'s' * (loops != 1)} each)\n")


def repeated(line: str, body: str | None) -> Repeated:
    """Parse `%timeit LINE`, or `%%timeit LINE` above `body`.

    Raises:
        UsageError: an option is not supported on nodes, or there is no code.
    """
    options: dict[str, Any] = {}
    rest = line.strip()
    while (found := _FLAG.match(rest)) is not None:
        match found["flag"], found["value"]:
            case "q", "":
                options["quiet"] = True
            case ("n" | "r" | "p") as flag, value if value and int(value):
                options[{"n": "loops", "r": "runs", "p": "digits"}[flag]] = int(value)
            case flag, _:
                raise UsageError(f"%timeit on a node takes -n N, -r N, -p N and -q, but got -{flag}: leave it out.")
        rest = rest[found.end() :]
    if body is None:
        code = rest
    else:
        code, options["setup"] = body, rest or "pass"
    if not code.strip():
        raise UsageError("%timeit has no code to measure: write it after %timeit, or below %%timeit.")
    return Repeated(code, **options)


def script_arguments(name: str, line: str) -> list[str]:
    """Return the arguments of the script below `%%bash LINE`, where LINE is empty or `-s ARGUMENTS`.

    Raises:
        UsageError: there are other options.
    """
    words = shlex.split(line)
    if words and words[0] != "-s":
        raise UsageError(
            f"%%{name} on a node takes only -s and the arguments of the script, but got {words[0]}: leave it out; "
            "`lines = !command` gives what a command prints."
        )
    return words[1:]


def change_folder(line: str) -> str:
    """Run `%cd LINE`, and return the new working directory."""
    os.chdir(os.path.expanduser(line.strip().strip("'\"") or "~"))
    return os.getcwd()


def environment(line: str, say: Callable[[str], object]) -> str | Mapping[str, str] | None:
    """Run `%env` (all variables), `%env NAME` (one value) or `%env NAME=VALUE` (set it).

    Raises:
        UsageError: there is no such variable.
    """
    text = line.strip()
    if not text:
        return dict(os.environ)
    name, mark, value = text.partition("=") if "=" in text else text.partition(" ")
    name, value = name.strip(), value.strip()
    if mark:
        os.environ[name] = value
        say(f"env: {name}={value}\n")
        return None
    if name not in os.environ:
        raise UsageError(f"The node has no environment variable {name}: set it with `%env {name}=VALUE`.")
    return os.environ[name]


def write_file(line: str, body: str) -> str:
    """Run `%%writefile [-a] PATH`: write `body`, and return a message.

    Raises:
        UsageError: `line` is not one path.
    """
    words = shlex.split(line)
    append = bool(words) and words[0] in ("-a", "--append")
    match words[append:]:
        case [path] if not path.startswith("-"):
            path = os.path.expanduser(path)
        case _:
            raise UsageError("%%writefile takes the path of one file, such as `%%writefile -a out/log.txt`.")
    what = "Writing" if not os.path.exists(path) else "Appending to" if append else "Overwriting"
    with open(path, "a" if append else "w", encoding="utf-8") as file:
        file.write(body)
    return f"{what} {path}\n"


def timeit_duration(seconds: float, digits: int = 3) -> str:
    """Format a duration: `12.3 μs`, `1.5 s`, `2min 5s`."""
    if seconds >= 60:
        parts, left = [], round(seconds)
        for size, unit in _LONG_UNITS:
            count, left = divmod(left, size)
            if count:
                parts.append(f"{count}{unit}")
        return " ".join(parts)
    rounded = float(f"{seconds:.{digits}g}")
    scale, unit = next((each for each in _UNITS if rounded >= each[0]), _UNITS[-1])
    return f"{rounded / scale:.{digits}g} {unit}"


def _clocks() -> tuple[float, float, float]:
    """Return the seconds of this process in user mode, in system mode, and of wall time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime, perf_counter()
