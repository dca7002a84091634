"""The settings of Verda."""

import os
import re
from configparser import ConfigParser, Error
from dataclasses import dataclass, field
from pathlib import Path

from skyward.errors import SpecError
from skyward.providers import SETUP_FIELDS, ActsOn, CredentialSource, Provider
from skyward.values import limits
from skyward.values.validation import Secret, number, seconds
from skyward_providers.api_settings import check_texts, check_urls

__all__ = ["Verda", "find_credentials"]

_ID, _SECRET, _FILE = "VERDA_CLIENT_ID", "VERDA_CLIENT_SECRET", "VERDA_SHARED_CREDENTIALS_FILE"


@dataclass(frozen=True, slots=True)
class Verda:
    """Virtual machines with GPUs of Verda (formerly DataCrunch).

    Offers are what is in stock, and their prices are without the disk. A machine of Verda cannot end its own billing:
    if this computer is lost, its machines cost money until `skyward reap` runs on a computer with the same journal.

    Attributes:
        client_id, client_secret: the credentials of the API; None for `VERDA_CLIENT_ID` and `VERDA_CLIENT_SECRET`, or
            those that the command `verda` has saved.
        region: the location to use, such as "FIN-01"; None for all. `region` of the spec is one of them.
        image: operating system, such as "ubuntu-24.04-cuda-12.8-open"; None for the newest Ubuntu with CUDA.
        cuda: version of CUDA to choose that image by, such as "12.8"; None for the newest.
        disk_gb: disk of a machine, GB, where the spec does not set `disk_gb`.
        request_timeout: seconds for one request.
        endpoint: another server with the same API; None for Verda's.

    Example:
        with sky.Compute(provider=sky.Verda(), accelerator="H100", nodes=2) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: a value is not allowed.
    """

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    region: str | None = None
    image: str | None = None
    cuda: str | None = None
    disk_gb: int = 100
    request_timeout: float = 30.0
    endpoint: str | None = None

    def __post_init__(self) -> None:
        check_texts(self, "client_id", "client_secret", "region", "image", "cuda")
        check_urls(self, "endpoint", optional=True)
        if (self.client_id is None) != (self.client_secret is None):
            raise SpecError("client_id and client_secret belong together: give both, or neither.")
        if self.client_secret is not None:
            object.__setattr__(self, "client_secret", Secret(self.client_secret))
        if self.cuda is not None and not re.fullmatch(r"\d+\.\d+", self.cuda):
            raise SpecError(f"cuda takes a version such as '12.8', but got {self.cuda!r}.")
        if self.image is not None and self.cuda is not None:
            raise SpecError("Give image or cuda, not both: cuda chooses the image.")
        number(self.disk_gb, "disk_gb", most=limits.GIB)
        seconds(self.request_timeout, "request_timeout")

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "verda"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        fields = SETUP_FIELDS | {"accelerator", "vcpus", "memory_gb", "disk_gb", "architecture", "region", "ttl"}
        return ActsOn(frozenset(fields), "Machines of Verda cannot end themselves")

    @property
    def boot_timeout(self) -> float:
        """Seconds that a launched machine may take to run."""
        return 600.0

    @property
    def offers_ttl(self) -> float:
        """Seconds for which listed offers count as current: they depend on the stock."""
        return 600.0

    def credentials(self) -> CredentialSource:
        """Look for the client id and the secret."""
        found, _, _ = find_credentials(self)
        how = f"set {_ID} and {_SECRET}, run `verda auth login`, or give `sky.Verda(client_id=..., client_secret=...)`"
        return CredentialSource(found, how)

    @property
    def policy(self) -> str:
        """The least permissions of the credentials; "" because Verda has no smaller ones."""
        return ""

    def create_provider(self) -> Provider:
        """Create the provider."""
        from skyward_providers.verda.provider import VerdaProvider  # circular: loaded when a pool opens

        return VerdaProvider(self)


def find_credentials(settings: Verda) -> tuple[str, str, Secret]:
    """Return the place of the credentials, the client id and the secret; empty strings if there are none."""
    if settings.client_id is not None and settings.client_secret is not None:
        return "the settings", settings.client_id, Secret(settings.client_secret)
    id, secret = os.environ.get(_ID, "").strip(), os.environ.get(_SECRET, "").strip()
    if id and secret:
        return f"environment variables {_ID} and {_SECRET}", id, Secret(secret)
    file = Path(os.environ.get(_FILE) or "~/.verda/credentials").expanduser()
    words = ConfigParser(interpolation=None)
    try:
        words.read_string(file.read_text())
    except (OSError, ValueError, Error):
        return "", "", Secret("")
    id = words.get("default", _ID.lower(), fallback="").strip()
    secret = words.get("default", _SECRET.lower(), fallback="").strip()
    if id and secret:
        return str(file), id, Secret(secret)
    return "", "", Secret("")
