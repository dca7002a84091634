"""The command `kubectl`: runs it with a deadline, and tells its errors apart.

The command is used instead of a client library: every user of a cluster has it, and it knows all kinds of logins, which
are programs of their own. Its errors are texts of the server, with a reason of a fixed list: "Error from server
(Reason): message".
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from skyward.errors import (
    CredentialsError,
    ProviderMissingError,
    ProvisioningError,
    QuotaError,
    RateLimitError,
    SpecError,
)
from skyward_providers.kubernetes.settings import SERVICE_ACCOUNT, Kubernetes

__all__ = ["Kubectl", "KubectlError", "NoAnswerError"]

_WITHIN = 60.0
"""Default timeout of a command in seconds."""

_GONE_WITHIN = 120.0
"""Seconds in which deleted objects must be gone."""

_REASON = re.compile(r"^Error from server \((\w+)\): (.*)", re.MULTILINE | re.DOTALL)
_NOT_ALLOWED = re.compile(r'User "(.*?)" cannot (\w+) resource "(.*?)" in API group ".*?"')
_DENIED = re.compile(r'admission webhook "(.*?)" denied the request: (.*)', re.DOTALL)
_NOT_SENT = ("connection refused", "was refused - did you specify", "no such host", "network is unreachable")
_LOGIN = ("You must be logged in", "provide credentials", "getting credentials", "Unauthorized", "enter Username")
_PROMPT = 100
"""Bytes of the output in which kubectl may ask for a login."""

_SENDING = re.compile(
    r'\b(Get|Post|Put|Patch|Delete) "?https?://|Unable to connect to the server|EOF|timeout|stream error'
)
"""Text of errors of the connection, and not of the server. The request may have been carried out."""

_NO_ANSWER = ("Timeout", "ServerTimeout", "ServiceUnavailable", "InternalError")
"""Reasons of the server after which a request may have been carried out."""


class KubectlError(ProvisioningError):
    """The cluster refused a request, which was not carried out.

    Attributes:
        reason: the server's reason, such as "NotFound"; "" if it was not the server.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class NoAnswerError(ProvisioningError):
    """There was no answer. The request may have been carried out."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """`kubectl` for one namespace of one cluster, whatever the current context becomes later.

    Attributes:
        binary: path of the command.
        kubeconfig: value of `KUBECONFIG`; "" for none.
        context: name of the context; "" for the service account of a pod.
        namespace: the namespace.
    """

    binary: str
    kubeconfig: str
    context: str
    namespace: str

    @classmethod
    async def find(cls, settings: Kubernetes) -> Self:
        """Find the context and the namespace of the settings.

        Raises:
            ProviderMissingError: `kubectl` is not installed.
            CredentialsError: there is no such context.
        """
        found = cls(_found(settings.binary), _kubeconfig(settings), settings.context or "", settings.namespace or "")
        try:
            words = json.loads(await found.call("config", "view", "--minify", "--output=json", within=10))
            (context,) = words["contexts"]
        except (KubectlError, ValueError, KeyError, TypeError) as error:
            if settings.context is None and settings.kubeconfig is None and (SERVICE_ACCOUNT / "token").exists():
                own = (SERVICE_ACCOUNT / "namespace").read_text().strip()
                return cls(found.binary, "", "", found.namespace or own)
            what = f"context {settings.context!r}" if settings.context else "current context"
            raise CredentialsError(
                f"kubectl has no {what}: log in to the cluster so that `kubectl get pods` works, or name a context of "
                "`kubectl config get-contexts` with `sky.Kubernetes(context=...)`."
            ) from error
        namespace = found.namespace or context["context"].get("namespace") or "default"
        return cls(found.binary, found.kubeconfig, context["name"], namespace)

    @classmethod
    def of(cls, settings: Kubernetes, specific: Mapping[str, Any]) -> Self:
        """Return the one that `specific` describes."""
        return cls(_found(settings.binary), specific["kubeconfig"], specific["context"], specific["namespace"])

    @property
    def specific(self) -> dict[str, str]:
        """The part that the journal keeps."""
        return {"kubeconfig": self.kubeconfig, "context": self.context, "namespace": self.namespace}

    @property
    def words(self) -> tuple[str, ...]:
        """First arguments of every command. A variable is the only way to give several kubeconfigs."""
        words: tuple[str, ...] = (self.binary,)
        if self.kubeconfig:
            words = ("env", f"KUBECONFIG={self.kubeconfig}", *words)
        if self.context:
            words += ("--context", self.context)
        return (*words, "--namespace", self.namespace) if self.namespace else words

    async def call(self, *words: str, given: object = None, within: float | None = None) -> str:
        """Run a command with `given` as JSON on its standard input, and return its output.

        Raises:
            KubectlError: the cluster refused it; or a more precise class of `ProvisioningError`, or `SpecError`.
            NoAnswerError: it did not end within `within` seconds, or the cluster did not answer.
        """
        within = _WITHIN if within is None else within
        # No retries and no endless waits: a request takes a little less than the command.
        limit = () if "--wait" in words else (f"--request-timeout={max(1, round(within - 2))}s",)
        # A file, not a pipe: kubectl may end before it has read its input.
        with tempfile.TemporaryFile() as file:
            if given is not None:
                file.write(json.dumps(given).encode())
                file.seek(0)
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.words, *words, *limit,
                    stdin=file, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C in a terminal must not reach it
                )  # fmt: skip  # one option a line would hide the command
            except OSError as error:
                raise ProviderMissingError(f"`{self.binary}` could not be started: {error}.") from None
        try:
            async with asyncio.timeout(within):
                out, err = await process.communicate()
        except TimeoutError:
            raise NoAnswerError(
                f"`kubectl {words[0]}` did not end within {within:.0f} s; check that the cluster answers `kubectl "
                "get pods`."
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with the program that it logs in with
                await process.wait()
        if process.returncode:
            text = "\n".join(each.decode(errors="replace").strip() for each in (out[:_PROMPT], err))
            raise self._error(text.strip() or f"`kubectl {words[0]}` ended with {process.returncode}")
        return out.decode(errors="replace")

    async def get(self, *words: str) -> Any:
        """Return what `kubectl get` finds, decoded; None for nothing, with `--ignore-not-found`."""
        text = await self.call("get", *words, "--output=json")
        return json.loads(text) if text.strip() else None

    async def create(self, manifest: Mapping[str, Any], *, validate: bool = False) -> Any:
        """Create an object, and return it as the cluster has it. With `validate`, unknown fields are refused."""
        (created,) = await self._create(manifest, validate=validate)
        return created

    async def _create(self, manifest: Mapping[str, Any], *, validate: bool) -> Sequence[Any]:
        checked = f"--validate={'true' if validate else 'false'}"
        return _documents(await self.call("create", "--filename=-", checked, "--output=json", given=manifest))

    async def delete(self, *words: str) -> None:
        """Delete objects, and wait until they are gone. The processes of pods end within a second. Idempotent.

        Raises:
            KubectlError: they are not gone after two minutes.
        """
        waiting = ("--ignore-not-found", "--grace-period=1", "--wait", f"--timeout={_GONE_WITHIN:.0f}s")
        await self.call("delete", *words, *waiting, within=_GONE_WITHIN + 15)

    async def may(self, permissions: Sequence[tuple[str, str, str]]) -> Sequence[bool]:
        """Return whether the user has permissions in the namespace, each given as verb, resource and subresource."""
        reviews = [
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {
                    "resourceAttributes": {
                        "namespace": self.namespace, "verb": verb, "resource": resource, "subresource": subresource,
                    }
                },
            }
            for verb, resource, subresource in permissions
        ]  # fmt: skip  # the attributes of one permission are one line
        answers = await self._create({"apiVersion": "v1", "kind": "List", "items": reviews}, validate=False)
        return [bool(each.get("status", {}).get("allowed")) for each in answers]

    def _error(self, text: str) -> ProvisioningError | SpecError:
        """Return the error for what kubectl printed."""
        found = _REASON.search(text)
        reason, message = (found[1], found[2]) if found else ("", text.splitlines()[-1])
        message = _without_source(message)
        if reason == "Unauthorized" or any(each in text for each in _LOGIN):
            return CredentialsError(
                f"The cluster of context {self.context!r} does not accept the login ({_short(message)}); log in "
                "again so that `kubectl get pods` works."
            )
        if denied := _DENIED.search(message):
            return SpecError(f"The cluster's rule {denied[1]!r} refuses the pod: {_short(denied[2])}.")
        if reason == "Forbidden":
            return self._forbidden(message)
        if reason in ("Invalid", "BadRequest") or " is invalid: " in message or "error validating data" in message:
            return SpecError(
                f"The cluster refuses the pod: {_short(message)}; change the settings of `sky.Kubernetes`."
            )
        if reason == "NotFound" and message.startswith("namespaces "):
            return SpecError(
                f"There is no namespace {self.namespace!r}: create it with `kubectl create namespace {self.namespace}`,"
                " or name another with `sky.Kubernetes(namespace=...)`."
            )
        if reason == "TooManyRequests":
            return RateLimitError("The cluster takes no more requests for a while; try again later.")
        if not reason and any(each in text for each in _NOT_SENT):  # with a reason, it is of a webhook
            return KubectlError(
                f"The cluster of context {self.context!r} cannot be reached ({_short(message)}); check the "
                "network, or name another with `sky.Kubernetes(context=...)`."
            )
        if reason in _NO_ANSWER or (not reason and _SENDING.search(text)):
            return NoAnswerError(
                f"The cluster of context {self.context!r} did not answer ({_short(message)}); try again."
            )
        return KubectlError(f"{_short(message)}.", reason)

    def _forbidden(self, message: str) -> ProvisioningError | SpecError:
        """Return the error for a request that authorization, or an admission rule of the cluster, refuses."""
        if found := _NOT_ALLOWED.search(message):
            return CredentialsError(
                f"{found[1]!r} may not {found[2]} {found[3]} in namespace {self.namespace!r}: ask for a role with this "
                "permission; `sky.Kubernetes().policy` is the smallest one."
            )
        _, _, why = message.partition(" is forbidden: ")
        if why.startswith("exceeded quota: "):
            return QuotaError(
                f"Namespace {self.namespace!r} has no quota left ({_short(why.removeprefix('exceeded quota: '))}); ask "
                "for less, or wait until others have finished."
            )
        if "being terminated" in why:
            return KubectlError(f"Namespace {self.namespace!r} is being deleted; name another.", "Forbidden")
        return SpecError(f"The cluster does not allow the pod: {_short(why or message)}; change the settings.")


def _kubeconfig(settings: Kubernetes) -> str:
    """Return the paths of the kubeconfigs, absolute, in the form of `KUBECONFIG`."""
    given = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    return os.pathsep.join(os.path.abspath(os.path.expanduser(each)) for each in given.split(os.pathsep) if each)


def _found(binary: str) -> str:
    found = shutil.which(binary)
    if found is None:
        raise ProviderMissingError(
            f"sky.Kubernetes needs the command `{binary}`, which is not on PATH: install kubectl, or give its path "
            "with `sky.Kubernetes(binary=...)`."
        )
    return found


def _documents(text: str) -> Sequence[Any]:
    """Return the JSON documents of a text, one after the other."""
    decoder, documents = json.JSONDecoder(), []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        documents.append(document)
        text = text[end:]
    return documents


def _without_source(message: str) -> str:
    """Return a message without the file that kubectl read the object from, which is its standard input."""
    return re.sub(r'^(error: )?(error when (creating|deleting) "STDIN": )?', "", message)


def _short(message: str) -> str:
    text = " ".join(message.split()).rstrip(".")
    return text if len(text) <= 300 else f"{text[:300]}..."
