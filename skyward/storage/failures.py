"""Sentences for requests that an object store refuses or does not answer.

The errors of the client library repeat replies of the store, which may repeat a secret, so none is shown as it is.
"""

import re
from dataclasses import dataclass

from skyward.errors import CredentialsError, StorageError
from skyward.storage.location import BucketLocation, printable

__all__ = [
    "BAD_KEY",
    "CHANGED",
    "LASTING",
    "NO_BUCKET",
    "NO_KEY",
    "OF_STORE",
    "STOPPED",
    "UNREACHABLE",
    "Refusal",
    "may_pass",
]

NO_BUCKET = "NoSuchBucket"
NO_KEY = "NoSuchKey"
CHANGED = "PreconditionFailed"
UNREACHABLE = "Unreachable"
STOPPED = "Stopped"
BAD_KEY = "InvalidKey"
SKEWED = "RequestTimeTooSkewed"

LASTING = frozenset({
    "AccessDenied", "AllAccessDisabled", "ExpiredToken", "Forbidden", "InvalidAccessKeyId", "InvalidBucketName",
    "InvalidToken", "NoCredentials", "NoSuchBucket", "SignatureDoesNotMatch",
})  # fmt: skip
"""Codes of refusals that a repeated request would meet again."""

OF_STORE = (LASTING - {"AccessDenied", "Forbidden"}) | {UNREACHABLE, SKEWED}
"""Codes of failures that every object of a bucket would meet."""

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_DELETED = re.compile(r"DeleteObjects request failed for key .*\(code: ([A-Za-z0-9.]{1,64})\)", re.S)
"""Failure of one of several deletions, whose request as a whole has succeeded."""

_REGION = re.compile(r"<Region>([a-z0-9-]{1,40})</Region>")
_OF_TYPES = {
    "NotFoundError": 404,
    "FileNotFoundError": 404,
    "PreconditionError": 412,
    "PermissionDeniedError": 403,
    "UnauthenticatedError": 401,
}
_BY_STATUS = {401: "AccessDenied", 403: "AccessDenied", 404: NO_KEY, 412: CHANGED, 301: "PermanentRedirect"}
_UNVERIFIED = "its certificate could not be verified"
_NO_AUTHORITIES = "there are no certificates of authorities"
_REASONS = (
    (re.compile("No CA certificates"), _NO_AUTHORITIES),
    (re.compile("certificate|UnknownIssuer|tls|handshake", re.I), _UNVERIFIED),
    (re.compile("dns error|failed to lookup|Name or service not known", re.I), "its name was not found"),
    (re.compile("ConnectionRefused|Connection refused"), "connection refused"),
    (re.compile("TimedOut|timed out|deadline", re.I), "no reply in time"),
    (re.compile("ConnectionReset|BrokenPipe|IncompleteMessage|connection closed", re.I), "the connection broke off"),
)
_TEMPORARY = frozenset({
    "InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling",
    "ThrottlingException", "TooManyRequests",
})  # fmt: skip


def may_pass(code: str) -> bool:
    """Return whether a request that has failed with a code may succeed later, or from another machine."""
    return code in _TEMPORARY or code in (UNREACHABLE, STOPPED, CHANGED, SKEWED, "HTTP429") or code.startswith("HTTP5")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Failure of a request, without the text of the store.

    Attributes:
        status: of HTTP; 0 if there was no reply.
        code: code of the store's error, such as "NoSuchKey"; "" if it has none.
        region: region of the bucket, as the store tells it; "" if it does not.
        reason: words on a request without a reply; "" if there was one.
        kind: name of the type of the error.
    """

    status: int
    code: str
    region: str
    reason: str
    kind: str

    @classmethod
    def of(cls, error: BaseException) -> "Refusal":
        """Return the failure that an error of the client library is about."""
        text, kind = str(error), type(error).__name__
        status_found, code, region = _STATUS.search(text), _CODE.search(text), _REGION.search(text)
        status = int(status_found[1]) if status_found else _OF_TYPES.get(kind, 0)
        if kind in ("InvalidPathError", "ValueError"):
            return cls(0, BAD_KEY, "", "", kind)
        if "redirect" in text and not status:
            status = 301
        if "metadata" in text.lower() or "169.254." in text:
            return cls(status, "NoCredentials", "", "", kind)
        if (deleted := _DELETED.search(text)) is not None:
            return cls(200, deleted[1], "", "", kind)
        reason = ""
        if not status:
            reason = next((words for pattern, words in _REASONS if pattern.search(text)), "the request failed")
        return cls(status, code[1] if code else _BY_STATUS.get(status, ""), region[1] if region else "", reason, kind)

    @property
    def is_temporary(self) -> bool:
        """True if the same request may succeed later."""
        return (
            self.status in (429, 500, 502, 503, 504) or self.code in _TEMPORARY or (not self.code and not self.status)
        )

    def error(
        self, location: BucketLocation, verb: str, key: str | None, region: str = ""
    ) -> StorageError | CredentialsError:
        """Return the error for the user.

        Args:
            verb: "read", "write", "list" or "delete".
            key: whole key of the object; None if the request was about the bucket.
            region: region that the request was signed for.
        """
        if self.code == "NoCredentials":
            return CredentialsError(
                "No credentials for the object store were found, and this machine has no role: give the storage an "
                "access_key and a secret_key, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        if self.reason == _NO_AUTHORITIES:
            return StorageError(
                "This machine has no certificates of authorities: install the package ca-certificates, as with "
                "sky.Image(apt=['ca-certificates']).",
                code=self.code,
            )
        if self.reason == _UNVERIFIED:
            return StorageError(
                f"{location.store} could not prove who it is: check the endpoint, or name a file with the certificate "
                "of its authority in SSL_CERT_FILE.",
                code=UNREACHABLE,
            )
        if self.reason:
            return StorageError(
                f"{location.store} did not answer ({self.reason}): check the endpoint, and that this machine can reach "
                "it.",
                code=UNREACHABLE,
            )
        subject = printable(f"s3://{location.bucket}" + ("" if key is None else f"/{key}"))
        code = NO_BUCKET if self.code == NO_KEY and key is None else self.code or f"HTTP{self.status}"
        return StorageError(self._sentence(code, location, verb, subject, region), code=code)

    def _sentence(self, code: str, location: BucketLocation, verb: str, subject: str, region: str) -> str:
        store = location.store
        match code:
            case "NoSuchBucket":
                return (
                    f"There is no bucket {location.bucket!r} at {store}: check its name, and that the endpoint and the "
                    "account are the right ones."
                )
            case "NoSuchKey":
                return f"There is no object {subject}: check its key, which is case-sensitive."
            case "InvalidKey":
                return (
                    f"{subject} has a key with a part that is empty, '.' or '..', or with control characters, which "
                    "cannot be transferred: rename the object in the store, or choose a prefix without it."
                )
            case "InvalidBucketName":
                return f"{location.bucket!r} cannot be the name of a bucket: check it."
            case "InvalidAccessKeyId":
                return f"{store} does not know the access key: check access_key, and that it is one for this endpoint."
            case "SignatureDoesNotMatch":
                return f"{store} refused the signature: check that secret_key belongs to access_key."
            case "ExpiredToken" | "TokenRefreshRequired" | "InvalidToken" | "InvalidClientTokenId":
                return f"{store} no longer accepts the session token: sign in again, or get new credentials."
            case "RequestTimeTooSkewed":
                return f"The clock of this machine is too far from that of {store}: set it."
            case "AccessDenied" | "AllAccessDisabled" | "Forbidden":
                return f"The credentials may not {verb} {subject}: give them that permission, or use others."
            case "PreconditionFailed":
                return f"{subject} was changed meanwhile: start again."
            case "PermanentRedirect" | "AuthorizationHeaderMalformed" | "TemporaryRedirect":
                if self.region and self.region != region:
                    return (
                        f"The bucket {location.bucket!r} is in region {self.region!r}, not in {region!r}: set "
                        f"region={self.region!r}."
                    )
                return f"The bucket {location.bucket!r} is in another region than {region!r}: set its region."
            case "EntityTooLarge" | "QuotaExceeded" | "InsufficientStorage" | "XMinioStorageFull":
                return f"{store} has no room for {subject}: {code}."
        told = f"HTTP status {self.status}{f', {self.code}' if self.code else ''}" if self.status else self.kind
        if self.is_temporary:
            return f"{store} could not {verb} {subject} ({told}), and kept failing: try again later."
        return f"{store} refused to {verb} {subject} ({told})."
