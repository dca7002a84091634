"""Requests and answers of AWS: forms of EC2, JSON of the others, and errors of both."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

__all__ = ["Answer", "Request", "error_answer", "parse_request", "xml_answer"]

_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/")
_EC2_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        service: the service that it is signed for.
        region: the region that it is signed for.
        action: the call.
        values: its arguments, by the names of the wire.
    """

    service: str
    region: str
    action: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: status of HTTP, type and body."""

    status: int
    content_type: str
    body: bytes


def parse_request(authorization: str, target: str, body: bytes) -> Request | None:
    """Return a request; None if it is not signed."""
    scope = _SCOPE.search(authorization)
    if scope is None:
        return None
    region, service = scope[1], scope[2]
    if target:
        return Request(service, region, target.rpartition(".")[2], json.loads(body or b"{}"))
    form = dict(parse_qsl(body.decode(), keep_blank_values=True))
    action = form.pop("Action", "")
    form.pop("Version", None)
    return Request(service, region, action, _nested(form))


def _nested(form: Mapping[str, str]) -> dict[str, Any]:
    """Return a form as nested values: "Tag.1.Key" is the key of the first item of the list "Tag"."""
    root: dict[str, Any] = {}
    for name, value in form.items():
        *path, last = name.split(".")
        place = root
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    found = _with_lists(root)
    assert isinstance(found, dict)
    return found


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdigit() for key in value):
        return [_with_lists(value[key]) for key in sorted(value, key=int)]
    return {key: _with_lists(item) for key, item in value.items()}


def xml_answer(action: str, content: str) -> Answer:
    """Return an answer of EC2."""
    body = f'<{action}Response xmlns="{_EC2_NAMESPACE}"><requestId>shim</requestId>{content}</{action}Response>'
    return Answer(200, "text/xml", body.encode())


def error_answer(request: Request, code: str, message: str, status: int) -> Answer:
    """Return an error in the protocol of the request's service."""
    if request.service in ("ssm", "pricing", "ecs"):
        return Answer(status, "application/x-amz-json-1.1", json.dumps({"__type": code, "message": message}).encode())
    error = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
    if request.service == "ec2":
        body = f"<Response><Errors>{error}</Errors><RequestID>shim</RequestID></Response>"
    else:
        body = f"<ErrorResponse>{error}<RequestId>shim</RequestId></ErrorResponse>"
    return Answer(status, "text/xml", body.encode())
