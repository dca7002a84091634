"""Access tokens for Google's APIs, by `google-auth`, which is loaded at first use and refreshes them in a thread."""

import asyncio
import os
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import Any

from skyward.errors import CredentialsError, ProvisioningError
from skyward_providers.gcp.settings import GCP, find_credentials, read_json

__all__ = ["AccessTokens"]

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_PROJECTS = ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")


class AccessTokens:
    """The credentials of one provider. It belongs to one event loop."""

    def __init__(self, settings: GCP) -> None:
        self._settings = settings
        self._credentials: Any = None
        self._project = self._default_project = ""
        self._lock = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        """Return the headers of a request, with a token that is valid for some minutes.

        Raises:
            CredentialsError: there are no credentials, or Google refuses them.
            ProvisioningError: Google cannot be reached.
        """
        async with self._lock:
            await self._ensure_loaded()
            if not self._credentials.valid:
                await asyncio.to_thread(self._refresh)
            headers: dict[str, str] = {}
            self._credentials.apply(headers)
            return headers

    async def project(self) -> str:
        """Return the id of the project.

        Raises:
            CredentialsError: there are no credentials, or no project is named anywhere.
        """
        if not self._project:
            named = self._settings.project or next(filter(None, map(os.environ.get, _PROJECTS)), "")
            if not named:
                async with self._lock:
                    await self._ensure_loaded()
            self._project = named or self._default_project or await asyncio.to_thread(_configured_project)
        if not self._project:
            raise CredentialsError(
                "Google Cloud needs a project: set GOOGLE_CLOUD_PROJECT, or give `sky.GCP(project='...')`."
            )
        return self._project

    async def _ensure_loaded(self) -> None:
        if self._credentials is None:
            await asyncio.to_thread(self._load)

    def _load(self) -> None:
        """Load the credentials from the first place that has them."""
        try:
            import google.auth
            from google.auth.exceptions import DefaultCredentialsError
            from google.auth.transport.requests import Request
        except ImportError as error:
            raise ProvisioningError(
                f"sky.GCP needs a package that is not installed ({error.name}); "
                "install it with `pip install 'skyward-jupyter[gcp]'`."
            ) from error
        place, file = find_credentials(self._settings)
        if not place:
            raise CredentialsError(f"Google Cloud needs credentials: {self._settings.credentials().how}.")
        request: Any = Request()
        try:
            found = _from_file(file) if file is not None else None
            if found is None and self._settings.credentials_file is not None:
                raise ValueError("a kind of credentials that only the usual places may have")
            if found is None:
                found = google.auth.default(_SCOPES, request=request)
        except (OSError, ValueError, KeyError, DefaultCredentialsError) as error:
            raise CredentialsError(
                f"The credentials in {file or place} cannot be used ({type(error).__name__}); "
                f"{self._settings.credentials().how}."
            ) from None  # its text may have a part of the file
        finally:
            request.session.close()
        self._credentials, self._default_project = found[0], found[1] or ""

    def _refresh(self) -> None:
        from google.auth.exceptions import RefreshError, TransportError
        from google.auth.transport.requests import Request

        request: Any = Request()
        try:
            self._credentials.refresh(request)
        except RefreshError as error:
            reason = str(error.args[0]).rstrip(".") if error.args else "no reason given"
            raise CredentialsError(
                f"Google refuses the credentials ({reason}); {self._settings.credentials().how}."
            ) from None
        except TransportError as error:
            raise ProvisioningError("Google Cloud cannot be reached for a token; check the network.") from error
        finally:
            request.session.close()


def _from_file(file: Path) -> tuple[Any, str | None] | None:
    """Return the credentials in a file, and their project; None for a kind that only the usual places may have."""
    from google.oauth2 import credentials, service_account

    content = read_json(file)
    project = content.get("project_id") or content.get("quota_project_id")
    if content["type"] == "service_account":
        account: Any = service_account.Credentials
        return account.from_service_account_info(content, scopes=_SCOPES), project
    if content["type"] == "authorized_user":
        user: Any = credentials.Credentials
        return user.from_authorized_user_info(content, scopes=_SCOPES), project
    return None


def _configured_project() -> str:
    """Return the project of the active configuration of `gcloud`; "" if there is none."""
    folder = Path(os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud").expanduser()
    parser = ConfigParser()
    try:
        active = os.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or (folder / "active_config").read_text().strip()
        parser.read(folder / "configurations" / f"config_{active}")
        return parser.get("core", "project", fallback="")
    except (OSError, ConfigError):
        return ""
