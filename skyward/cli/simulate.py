"""Parsers of the options of `sky simulate`."""

import math
import re

from skyward.errors import SpecError
from skyward.scaling.snapshot import Group, TargetWait
from skyward.simulator.workload import Distribution
from skyward.values.needs import capability_set

__all__ = ["boot_time", "group_of", "node_bounds", "positive", "rate", "slot_count"]

_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
MOST_NODES = 100_000


def positive(text: str, option: str, *, zero: bool = False) -> float:
    """Parse a number, such as "3.2".

    Raises:
        SpecError: it is not a number, or out of range.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        kind = "a number of at least 0" if zero else "a number above 0"
        raise SpecError(f"{option} must be {kind}, as in `{option} 3.2`, but got {text!r}.")
    return value


def target_wait(text: str) -> TargetWait:
    """Parse a target of the waiting time: a name, or seconds.

    Raises:
        SpecError: it is neither.
    """
    match text:
        case "cheap" | "balanced" | "fast":
            return text
        case _:
            pass
    try:
        return positive(text, "--target", zero=True)
    except SpecError:
        raise SpecError(
            f"--target must be cheap, balanced or fast, or seconds, as in `--target 300`, but got {text!r}."
        ) from None


def node_bounds(text: str, option: str = "--nodes") -> tuple[int, int]:
    """Parse the bounds of the number of nodes: "0:1000", or "8" for exactly 8.

    Raises:
        SpecError: the format is wrong, or the two are in the wrong order.
    """
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text.strip())
    if found is None:
        raise SpecError(f"{option} must be MIN:MAX or one number, as in `{option} 0:1000`, but got {text!r}.")
    least = int(found[1])
    most = int(found[2]) if found[2] is not None else least
    if most < least:
        raise SpecError(
            f"{option} has a maximum ({most}) below its minimum ({least}); write `{option} {most}:{least}`."
        )
    if not 1 <= most <= MOST_NODES:
        raise SpecError(f"{option} must allow 1 to {MOST_NODES:,} nodes, as in `{option} 0:1000`, but got {text!r}.")
    return least, most


def boot_time(text: str) -> Distribution:
    """Parse a boot time in seconds: "60", or "60±20" (also "60+-20") for 40 to 80.

    Raises:
        SpecError: the format is wrong, or the time could be negative.
    """
    found = re.fullmatch(rf"({_NUMBER})\s*s?\s*(?:(?:±|\+-|\+/-)\s*({_NUMBER})\s*s?)?", text.strip())
    if found is None:
        raise SpecError(f"--boot must be seconds, as in `--boot 60` or `--boot 60±20`, but got {text!r}.")
    mean, width = float(found[1]), float(found[2] or 0)
    if width > mean:
        raise SpecError(f"--boot {text} could be below 0 s; make what follows ± at most {mean:g}.")
    return Distribution(mean, width)


def rate(text: str, option: str = "--spot-loss") -> float:
    """Parse a rate: "0.02/h" or "0.5/d"; the default unit is per hour. Return events per hour.

    Raises:
        SpecError: the format is wrong.
    """
    found = re.fullmatch(rf"({_NUMBER})\s*(?:/\s*(h|hour|d|day))?", text.strip())
    if found is None:
        raise SpecError(f"{option} must be a rate, as in `{option} 0.02/h`, but got {text!r}.")
    return float(found[1]) / (24 if found[2] in ("d", "day") else 1)


def group_of(text: str) -> Group:
    """Parse a group of nodes: "gpu=0:8,slots=2,price=12,GPU=4,can=fast": bounds first, then settings and resources.

    Raises:
        SpecError: the format is wrong.
    """
    name, equals, rest = text.partition("=")
    bounds, *settings = rest.split(",")
    if not equals or not name.strip():
        raise SpecError(f"--group must be NAME=MIN:MAX,..., as in `--group gpu=0:8,price=12,GPU=4`, but got {text!r}.")
    least, most = node_bounds(bounds, f"--group {name}")
    slots, price = 1, 0.0
    resources: dict[str, float] = {}
    capabilities: set[str] = set()
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key:
            raise SpecError(f"--group {name} has {setting!r}; write NAME=VALUE, as in `GPU=4`.")
        if key == "can":
            capabilities |= capability_set(value.split("+"), f"--group {name} can")
        elif key == "slots":
            slots = slot_count(value, f"--group {name} slots")
        elif key == "price":
            price = positive(value, f"--group {name} price", zero=True)
        else:
            resources[key] = positive(value, f"--group {name} {key}")
    return Group(name.strip(), least, most, slots, resources, frozenset(capabilities), price)


def slot_count(text: str, option: str = "--slots") -> int:
    """Parse a whole number of at least 1, such as slots per node.

    Raises:
        SpecError: it is not such a number.
    """
    if not re.fullmatch(r"[1-9]\d{0,5}", text.strip()):
        raise SpecError(f"{option} must be a whole number of at least 1, as in `--slots 4`, but got {text!r}.")
    return int(text)
