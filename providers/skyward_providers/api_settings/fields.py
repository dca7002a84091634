"""Checks of the fields of settings."""

from ipaddress import ip_network
from urllib.parse import urlsplit

from skyward.errors import SpecError
from skyward.values.validation import Secret, of_type, shown

__all__ = ["check_ranges", "check_texts", "check_urls"]


def check_texts(settings: object, *names: str) -> None:
    """Check that these fields are None or texts that are not empty. An `api_key` becomes a `Secret`.

    Raises:
        SpecError: a field is not.
    """
    for name in names:
        if (value := getattr(settings, name)) is not None:
            of_type(value, name, str, f"{name}='...'")
            if not value.strip():
                raise SpecError(f"{name} must not be empty.")
            if name == "api_key":
                object.__setattr__(settings, name, Secret(value))


def check_urls(settings: object, *names: str, optional: bool = False) -> None:
    """Check that these fields are URLs of HTTP or HTTPS with a host; with `optional`, they may be None.

    Raises:
        SpecError: a field is not.
    """
    for name in names:
        value = getattr(settings, name)
        if not (_is_url(value) or (optional and value is None)):
            raise SpecError(f"{name} must be a URL, such as {name}='https://api.example.com', but got {shown(value)}.")


def _is_url(value: object) -> bool:
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # such as a port that is no number
        return False


def check_ranges(ranges: str | None) -> None:
    """Check that `caller_cidr` is None, or IPv4 ranges separated by commas.

    Raises:
        SpecError: it is not.
    """
    if ranges is not None and not all(map(_is_range, ranges.split(","))):
        raise SpecError(f"caller_cidr must be IPv4 addresses such as '203.0.113.7/32', but got {shown(ranges)}.")


def _is_range(text: str) -> bool:
    try:
        return ip_network(text.strip(), strict=False).version == 4
    except ValueError:
        return False
