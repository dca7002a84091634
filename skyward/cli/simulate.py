"""Parsers of the options of `skyward simulate`."""

import contextlib
import math
import re

from skyward.commands.reading import lifetime
from skyward.errors import SpecError
from skyward.scaling.snapshot import Group, TargetWait
from skyward.simulator.workload import Distribution
from skyward.values.needs import capability_set

__all__ = ["boot_time", "duration", "group_of", "node_bounds", "positive", "rate", "target_wait", "whole_number"]

_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
MOST_NODES = 100_000


def positive(text: str, option: str, *, zero: bool = False, example: str = "") -> float:
    """Parse a number, such as "3.2".

    Args:
        zero: True if it may be 0.
        example: how the option is given, for the error; `OPTION 3.2` if empty.

    Raises:
        SpecError: it is not a number, or out of range.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        kind = "a number of at least 0" if zero else "a number above 0"
        raise SpecError(f"{option} must be {kind}, as in `{example or f'{option} 3.2'}`, but got {text!r}.")
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
    return duration(text, "--target", zero=True, kinds="cheap, balanced or fast, or ")


def duration(text: str, option: str, *, zero: bool = False, kinds: str = "") -> float:
    """Parse a duration as the magics take it, such as "90" or "5m", into seconds.

    Args:
        zero: True if it may be 0.
        kinds: what the option may be instead, for the error.

    Raises:
        SpecError: it is none, or out of range.
    """
    with contextlib.suppress(ValueError):
        if (found := lifetime(text)) or zero:
            return found
    least = "of at least 0" if zero else "above 0"
    raise SpecError(
        f"{option} must be {kinds}a duration {least}, as in `{option} 300` or `{option} 5m`, but got {text!r}."
    )


def node_bounds(text: str, option: str = "--nodes ") -> tuple[int, int]:
    """Parse the bounds of the number of nodes: "0:1000", or "8" for exactly 8.

    Args:
        option: what is written before them, such as `--group gpu=`.

    Raises:
        SpecError: the format is wrong, or the two are in the wrong order.
    """
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text.strip())
    name = option.rstrip(" =")
    if found is None:
        raise SpecError(f"{name} must be MIN:MAX or one number, as in `{option}0:1000`, but got {text!r}.")
    least = int(found[1])
    most = int(found[2]) if found[2] is not None else least
    if most < least:
        raise SpecError(f"{name} has a maximum ({most}) below its minimum ({least}); write `{option}{most}:{least}`.")
    if not 1 <= most <= MOST_NODES:
        raise SpecError(f"{name} must allow 1 to {MOST_NODES:,} nodes, as in `{option}0:1000`, but got {text!r}.")
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
    name = name.strip()
    least, most = node_bounds(bounds, f"--group {name}=")
    slots, price = 1, 0.0
    resources: dict[str, float] = {}
    capabilities: set[str] = set()
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key:
            raise SpecError(f"--group {name} has {setting!r}; write NAME=VALUE, as in `--group {name}={bounds},GPU=4`.")
        what, example = f"{key} of --group {name}", f"--group {name}={bounds},{key}="
        if key == "can":
            names = value.split("+")
            if not all(each.strip() for each in names):
                raise SpecError(f"{what} must be names, as in `{example}fast+big`, but got {value!r}.")
            capabilities |= capability_set(names)
        elif key == "slots":
            slots = whole_number(value, what, example=f"{example}4")
        elif key == "price":
            price = positive(value, what, zero=True, example=f"{example}3.2")
        else:
            resources[key] = positive(value, what, example=f"{example}4")
    return Group(name, least, most, slots, resources, frozenset(capabilities), price)


def whole_number(text: str, option: str, *, zero: bool = False, example: str = "") -> int:
    """Parse a whole number, such as slots per node.

    Args:
        zero: True if it may be 0.
        example: how the option is given, for the error; `OPTION 4` if empty.

    Raises:
        SpecError: it is not such a number.
    """
    if not re.fullmatch(r"0|[1-9]\d{0,5}" if zero else r"[1-9]\d{0,5}", text.strip()):
        least = 0 if zero else 1
        shown = example or f"{option} 4"
        raise SpecError(f"{option} must be a whole number of at least {least}, as in `{shown}`, but got {text!r}.")
    return int(text)
