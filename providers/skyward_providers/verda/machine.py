"""A machine of Verda: its names, its tags, its image, and its state.

There are no tags. A machine's are in its description, and its name is made from them, so that a machine whose request
was not answered is found again. Names of what else exists hold the pool and its owner.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from skyward.errors import SpecError

__all__ = [
    "choose_image",
    "description_of",
    "hostname_of",
    "pool_named",
    "shared_name",
    "status_of",
    "tags_of",
    "volume_name",
]

_TAGS: Final = ("skyward-pool", "skyward-owner", "skyward-request")
_HEAD: Final = "skyward"
_LONGEST_POOL = 40
"""Characters of a pool's id in the name of a machine, which may have 63."""

_ENDED: Final = frozenset(
    {"offline", "error", "no_capacity", "installation_failed", "starting_hibernation", "hibernating"}
)
"""States in which a machine does not run, and will not by itself; it is billed."""

_IMAGE = re.compile(r"ubuntu-(?P<ubuntu>\d+\.\d+)(?:-cuda-(?P<cuda>\d+\.\d+))?(?P<rest>(?:-open|-docker)*)")


def description_of(tags: Mapping[str, str]) -> str:
    """Return the description of a machine: its tags, in a fixed order."""
    return " ".join((_HEAD, *(tags[name] for name in _TAGS)))


def tags_of(machine: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a machine; none if it is not ours."""
    match (machine.get("description") or "").split():
        case [str(head), *values] if head == _HEAD and len(values) == len(_TAGS):
            return dict(zip(_TAGS, values, strict=True))
        case _:
            return {}


def hostname_of(tags: Mapping[str, str], number: int) -> str:
    """Return the name of the machine with that number in a request: always the same."""
    pool = re.sub(r"[^a-z0-9]+", "-", tags["skyward-pool"].lower()).strip("-")[:_LONGEST_POOL]
    return f"sky-{pool}-{_digest(f'{description_of(tags)} {number}')}"


def shared_name(pool: str, owner: str) -> str:
    """Return the name of what the machines of a pool share."""
    return f"{_HEAD}-{pool}-{owner}"


def volume_name(pool: str, owner: str, hostname: str) -> str:
    """Return the name of the disk of a machine."""
    return f"{shared_name(pool, owner)}-{_digest(hostname)}"


def pool_named(name: str, owner: str) -> str | None:
    """Return the pool in the name of a disk or of a shared object of this owner; None if it is another's."""
    found = re.fullmatch(rf"{_HEAD}-(.+)-{re.escape(owner)}(?:-[0-9a-f]{{10}})?", name)
    return None if found is None else found[1]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def status_of(machine: Mapping[str, Any]) -> str:
    """Return the state of a machine: "provisioning", "running" or "exited"."""
    status = machine["status"]
    return "running" if status == "running" else "exited" if status in _ENDED else "provisioning"


def choose_image(images: Sequence[str], cuda: str | None, *, with_gpu: bool) -> str:
    """Return the image with the newest Ubuntu; for a GPU, the one with the newest CUDA, or with that of the user.

    Raises:
        SpecError: there is none.
    """
    parsed = [(name, found) for name in images if (found := _IMAGE.fullmatch(name)) is not None]
    fitting = [
        (
            _version(found["cuda"]),
            _version(found["ubuntu"]),
            "open" in found["rest"],
            "docker" not in found["rest"],
            name,
        )
        for name, found in parsed
        if (found["cuda"] is not None) == with_gpu and cuda in (None, found["cuda"])
    ]
    if not fitting:
        wanted = f"Ubuntu with CUDA {cuda}" if cuda else "Ubuntu with CUDA" if with_gpu else "Ubuntu"
        some = ", ".join(sorted(images)[:8]) or "none"
        raise SpecError(f"Verda has no image of {wanted} for this machine; name one with image=...: {some}.")
    return max(fitting)[-1]


def _version(text: str | None) -> Iterable[int]:
    return [int(each) for each in (text or "0").split(".")]
