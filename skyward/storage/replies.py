"""Replies of a store, and the sentences for those that refuse. No reply is shown as it is: it may repeat a secret."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from skyward.errors import StorageError

if TYPE_CHECKING:
    from skyward.storage.location import BucketLocation

__all__ = ["CHANGED", "NO_BUCKET", "NO_KEY", "UNREACHABLE", "StoreReply", "refusal", "xml_of"]

NO_BUCKET = "NoSuchBucket"
NO_KEY = "NoSuchKey"
CHANGED = "PreconditionFailed"
UNREACHABLE = "Unreachable"

_AGAIN = frozenset({
    "InternalError", "OperationAborted", "RequestTimeout", "RequestTimeoutException", "ServiceUnavailable", "SlowDown",
    "ThrottlingException", "Throttling", "TooManyRequests", "BadDigest", "IncompleteBody",
})  # fmt: skip
"""Codes of errors that pass."""

_VERBS = {"GET": "read", "HEAD": "read", "PUT": "write", "POST": "write", "DELETE": "delete"}
_NAMESPACE = re.compile(r"^\{[^}]*\}")
_CODE = re.compile(r"[A-Za-z0-9.]{1,64}")


@dataclass(frozen=True, slots=True)
class StoreReply:
    """Reply to a request.

    Attributes:
        status: of HTTP.
        headers: by name in lower case.
        body: at most a page of XML; empty for objects, which are streamed.
        code: code of the error, such as "NoSuchKey"; "" if it has none.
        region: region of the bucket as an error tells it; "" if it does not.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    code: str = ""
    region: str = ""

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str], body: bytes) -> "StoreReply":
        """Return the reply, with the code of its error."""
        if status < 300 and b"<Error" not in body[:300]:
            return cls(status, headers, body)
        code, region = "", headers.get("x-amz-bucket-region", "")
        try:
            error = xml_of(body)
        except StorageError:
            return cls(status, headers, body, "", region)
        if _NAMESPACE.sub("", error.tag) == "ErrorResponse":  # of STS
            error = next(iter(error), error)
        if _NAMESPACE.sub("", error.tag) == "Error":
            for each in error:
                if (name := _NAMESPACE.sub("", each.tag)) == "Code" and _CODE.fullmatch(each.text or ""):
                    code = each.text or ""
                elif name == "Region":
                    region = each.text or region
        return cls(status, headers, body, code, region if re.fullmatch(r"[a-z0-9-]{1,40}", region) else "")

    @property
    def is_temporary(self) -> bool:
        """True if the same request may succeed later."""
        return self.status in (429, 500, 502, 503, 504) or self.code in _AGAIN

    @property
    def is_elsewhere(self) -> bool:
        """True if the bucket is in another region than the one the request was signed for."""
        return self.status in (301, 307, 400) and (
            self.status != 400 or self.code in ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
        )


def xml_of(body: bytes) -> ElementTree.Element:
    """Parse the body of a reply.

    Raises:
        StorageError: it is not XML, so this is no store, or a proxy has answered.
    """
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError:
        raise StorageError(
            "The reply is not of an object store: check the endpoint, and that no proxy answers in its place."
        ) from None


def refusal(
    reply: StoreReply, method: str, location: "BucketLocation", key: str | None, region: str = ""
) -> StorageError:
    """Return the error of a reply that refuses a request.

    Args:
        method: of the request.
        key: whole key of the object; None if the request was about the bucket.
        region: region that the request was signed for.
    """
    verb = _VERBS[method]
    subject = f"s3://{location.bucket}" if key is None else _address(location, key)
    code = reply.code or _by_status(reply.status, key is not None)
    return StorageError(_sentence(code, reply, location, subject, verb, key, region), code=code)


def _address(location: "BucketLocation", key: str) -> str:
    from skyward.storage.location import printable

    return printable(f"s3://{location.bucket}/{key}")


def _by_status(status: int, of_object: bool) -> str:
    match status:
        case 401 | 403:
            return "AccessDenied"
        case 404:
            return NO_KEY if of_object else NO_BUCKET
        case 412:
            return CHANGED
        case 301 | 307:
            return "PermanentRedirect"
    return ""


def _sentence(
    code: str, reply: StoreReply, location: "BucketLocation", subject: str, verb: str, key: str | None, region: str
) -> str:
    store = location.store
    match code:
        case "NoSuchBucket":
            return (
                f"There is no bucket {location.bucket!r} at {store}: check its name, and that the endpoint and the "
                "account are the right ones."
            )
        case "NoSuchKey":
            return f"There is no object {subject}: check its key, which is case-sensitive."
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
            what = f"list s3://{location.bucket}" if key is None and verb == "read" else f"{verb} {subject}"
            return f"The credentials may not {what}: give them that permission, or use others."
        case "PreconditionFailed":
            return f"{subject} was changed meanwhile: start again."
        case "PermanentRedirect" | "AuthorizationHeaderMalformed" | "TemporaryRedirect":
            if reply.region and reply.region != region:
                return (
                    f"The bucket {location.bucket!r} is in region {reply.region!r}, not in {region!r}: set "
                    f"region={reply.region!r}."
                )
            return f"The bucket {location.bucket!r} is in another region than {region!r}: set its region."
        case "EntityTooLarge" | "QuotaExceeded" | "InsufficientStorage" | "XMinioStorageFull":
            return f"{store} has no room for {subject}: {code}."
    told = f"HTTP status {reply.status}{f', {code}' if code else ''}"
    if reply.is_temporary:
        return f"{store} could not {verb} {subject} ({told}), and kept failing: try again later."
    return f"{store} refused to {verb} {subject} ({told})."
