"""A machine of Vast.ai: its tags, its start script, and its state.

Tags are words of its label, which the call that rents it sets. The last one is the offer, so that the label of each
machine is unique, and a rent whose answer was lost is found again.
"""

import base64
import gzip
import re
from collections.abc import Mapping
from typing import Any, Final

from skyward.errors import SpecError
from skyward.providers import KeyPair
from skyward_providers.cloud import sshd_setup, watchdog

__all__ = ["IMAGE", "detail_of", "endpoint_of", "gpu_of", "label_of", "onstart", "status_of", "tags_of"]

IMAGE: Final = "vastai/base-image:@vastai-automatic-tag"
"""Vast.ai's own image, which many hosts have already; the tag is that of the newest CUDA of the machine's driver."""

_LONGEST_ONSTART = 4048
_LONGEST_REASON = 120

_DEAD_ENDS = ("exited", "stopped", "frozen", "unknown", "offline")
"""States in which an instance never runs again by itself; a bid that is too low now pauses it for an unknown time."""

_END: Final = """\
for each in CONTAINER_ID CONTAINER_API_KEY; do
    export "$each=$(tr '\\0' '\\n' </proc/1/environ | sed -n "s/^$each=//p")"
  done
  url={base}/api/v0/instances/$CONTAINER_ID/
  header="Authorization: Bearer $CONTAINER_API_KEY"
  curl -fsS -X DELETE -H "$header" "$url" || wget -qO- --method=DELETE --header="$header" "$url"
"""
"""Commands that destroy the instance they run in. Vast.ai gives each one a key of its own, for that instance only."""


_SPELLINGS: Final = (
    (re.compile(r"((?:RTX|GTX) \d{4}) ?S"), r"\1 Super"),
    (re.compile(r"(RTX \d{4}) ?S Ti"), r"\1 Ti Super"),
    (re.compile(r"Q (RTX \d{4})"), r"Quadro \1"),
    (re.compile(r"(RTX PRO \d{4}) \w+"), r"\1"),
)
"""Vast.ai's abbreviations of GPUs, and the names that others use."""


def gpu_of(name: str) -> str:
    """Return the usual name of a GPU."""
    for abbreviation, usual in _SPELLINGS:
        if (found := abbreviation.fullmatch(name)) is not None:
            return found.expand(usual)
    return name


def label_of(tags: Mapping[str, str], ask: int) -> str:
    """Return the label of a machine that is rented by an offer."""
    return " ".join(f"{name}={value}" for name, value in {**tags, "skyward-offer": str(ask)}.items())


def tags_of(instance: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of an instance; none if it is not ours."""
    words = (word.partition("=") for word in (instance.get("label") or "").split())
    return {name: value for name, mark, value in words if mark and name.startswith("skyward-")}


def onstart(public_key: str, host_key: KeyPair, base: str) -> str:
    """Return the start script of a machine: the keys of SSH, and the watchdog; packed, since its length is limited.

    Args:
        base: URL of Vast.ai's API.

    Raises:
        SpecError: it is too long.
    """
    script = f"""\
touch /root/.no_auto_tmux
{sshd_setup(public_key, host_key)}
cat >/etc/skyward/watchdog <<'END'
{watchdog(_END.replace("{base}", base))}END
setsid sh /etc/skyward/watchdog </dev/null >/dev/null 2>&1 &
"""
    packed = base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
    command = f"echo {packed} | base64 -d | gunzip | sh"
    if len(command) > _LONGEST_ONSTART:
        raise SpecError(f"The start script of a machine of Vast.ai is too long ({len(command)} characters).")
    return command


def status_of(instance: Mapping[str, Any]) -> str:
    """Return the state of an instance: "provisioning", "running" or "exited"."""
    status = instance.get("actual_status")
    if status in _DEAD_ENDS or instance.get("intended_status") == "stopped":
        return "exited"
    return "running" if status == "running" else "provisioning"


def detail_of(instance: Mapping[str, Any]) -> str:
    """Return what Vast.ai says about the state of an instance, on one line."""
    status = instance.get("actual_status") or "being created"
    if status == "exited" and instance.get("is_bid") and instance.get("intended_status") == "running":
        return "another renter has bid more for it"
    said = " ".join((instance.get("status_msg") or "").split())[:_LONGEST_REASON]
    return f"Vast.ai reports that it is {status}" + (f" ({said})" if said else "")


def endpoint_of(instance: Mapping[str, Any], *, direct_only: bool) -> tuple[str, int] | None:
    """Return address and port of the SSH server of a running instance: its own, or else the proxy's; None for none."""
    address = (instance.get("public_ipaddr") or "").strip()
    direct = (instance.get("ports") or {}).get("22/tcp") or ()
    if address and direct:
        return address, int(direct[0]["HostPort"])
    if direct_only or not instance.get("ssh_host") or not instance.get("ssh_port"):
        return None
    return instance["ssh_host"], int(instance["ssh_port"])
