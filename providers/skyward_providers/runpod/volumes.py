"""Network volumes of RunPod: which one a pod can have, and where."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyward.errors import NoCapacityError, SpecError
from skyward.providers import Offer
from skyward.specs import Volume

__all__ = ["NetworkVolume", "check_place", "find_volume", "one_volume"]


@dataclass(frozen=True, slots=True)
class NetworkVolume:
    """A network volume.

    Attributes:
        id: its id.
        name: its name; others may have the same.
        size_gb: its size in GB.
        data_center: the data center that it is in, as are its pods.
        mount: absolute path in pods.
    """

    id: str
    name: str
    size_gb: int
    data_center: str
    mount: str

    @property
    def request(self) -> dict[str, Any]:
        """The part of the request for a pod that attaches it."""
        return {"networkVolumeId": self.id, "volumeMountPath": self.mount, "dataCenterIds": [self.data_center]}

    def __str__(self) -> str:
        return f"network volume {self.name!r} ({self.size_gb} GB in {self.data_center})"


def one_volume(volumes: Sequence[Volume]) -> Volume:
    """Return the volume of a pod.

    Raises:
        SpecError: RunPod cannot attach what is asked for.
    """
    if len(volumes) > 1:
        mounts = " and ".join(each.mount for each in volumes)
        raise SpecError(
            f"RunPod attaches one network volume to a pod, but {mounts} are {len(volumes)}: give the others a "
            "`storage=`."
        )
    (volume,) = volumes
    what = f"RunPod attaches network volume {volume.bucket!r}"
    if volume.read_only:
        raise SpecError(f"{what} for reading and writing, never read-only: write read_only=False.")
    if volume.prefix:
        raise SpecError(
            f"{what} as a whole: leave out prefix={volume.prefix!r}, and use the folder below {volume.mount}."
        )
    if volume.mode not in ("auto", "mount"):
        raise SpecError(f"{what} itself, without copies: leave out mode={volume.mode!r}.")
    return volume


def find_volume(volume: Volume, found: Iterable[Mapping[str, Any]]) -> NetworkVolume:
    """Return the network volume of the account whose id or name a volume has.

    Raises:
        SpecError: there is none, or several have the name.
    """
    known = [
        NetworkVolume(each["id"], each.get("name") or each["id"], each["size"], each["dataCenterId"], volume.mount)
        for each in found
    ]
    named = [each for each in known if each.id == volume.bucket] or [
        each for each in known if each.name == volume.bucket
    ]
    if len(named) > 1:
        ids = ", ".join(sorted(each.id for each in named))
        raise SpecError(
            f"{len(named)} network volumes at RunPod are called {volume.bucket!r}: give the id, one of {ids}."
        )
    if not named:
        others = ", ".join(sorted(f"{each.name} ({each.id})" for each in known)) or "none"
        raise SpecError(
            f"There is no network volume {volume.bucket!r} at RunPod; the account has: {others}. Make it in RunPod's "
            "console, or give the volume a `storage=` if it is a bucket."
        )
    return named[0]


def check_place(volume: NetworkVolume, offer: Offer, allowed: Sequence[str], gpus: Iterable[Mapping[str, Any]]) -> None:
    """Check that a pod of an offer can be where its volume is.

    Args:
        volume: the volume.
        offer: the offer.
        allowed: data centers that pods may be in; empty for all.
        gpus: the types of GPUs, with the data centers that have them if that is known.

    Raises:
        SpecError: pods may not be in its data center.
        NoCapacityError: no pod of the offer is there.
    """
    if allowed and volume.data_center not in allowed:
        raise SpecError(
            f"Pods may be in {', '.join(allowed)} only, but {volume} is not there, and is attached in its own data "
            f"center only: use region={volume.data_center!r}."
        )
    kind = offer.specific
    if kind["cloud"] != "SECURE":
        raise NoCapacityError(f"RunPod's community cloud attaches no network volumes: {volume} needs its secure cloud.")
    for gpu in gpus:
        if gpu["id"] == kind["id"] and "dataCenters" in gpu:
            there = {each["id"] for each in gpu["dataCenters"] if each.get("availability") != "NONE"}
            if volume.data_center not in there:
                places = ", ".join(sorted(there)) or "no data center"
                raise NoCapacityError(
                    f"RunPod has no {gpu['name']} in {volume.data_center}, where {volume} is, but in {places}: choose "
                    "another accelerator."
                )
