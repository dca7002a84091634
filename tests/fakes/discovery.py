"""Google's discovery documents as judges of a fake: which method a request means, and which fields it may have.

The documents come with `google-api-python-client`: a list of methods with paths and parameters, and schemas of what is
sent and answered.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.fakes.vendor import VENDORS
from tests.required import leave_out_for

__all__ = ["Call", "Discovery", "discovery"]

_DOCUMENTS = "site-packages/googleapiclient/discovery_cache/documents"
_INTEGERS = re.compile(r"-?\d+")
_PLACEHOLDER = re.compile(r"\{\+?(\w+)\}")
_TIMES = ("date-time", "google-datetime")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


@cache
def discovery(name: str) -> "Discovery":
    """Return an API, such as "compute.v1". Where Google's client is not installed, the test is skipped."""
    found = next(VENDORS.glob(f"google/lib/python*/{_DOCUMENTS}/{name}.json"), None)
    reason = "" if found is not None else "the client of google is not installed: run `make vendors`"
    leave_out_for(reason, "SKYWARD_VENDORS")
    assert found is not None
    return Discovery(json.loads(found.read_text()))


@dataclass(frozen=True, slots=True)
class Call:
    """A request that means a method of a document.

    Attributes:
        method: the method's id, such as "compute.instances.insert".
        path: values of the parameters in the path.
        query: values of the parameters in the query.
        body: the body.
    """

    method: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None


@dataclass(frozen=True, slots=True)
class _Route:
    verb: str
    pattern: re.Pattern[str]
    method: Mapping[str, Any] = field(repr=False)


class Discovery:
    """The methods and schemas of one API."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._schemas: Mapping[str, Any] = document["schemas"]
        self._everywhere: Mapping[str, Any] = document["parameters"]
        self._routes = [_route(document["servicePath"], method) for method in _methods(document)]

    def understand(self, verb: str, path: str, query: Mapping[str, str], body: Any) -> tuple[Call, list[str]] | None:
        """Return the call that a request means, and its mistakes; None if it means no method of this API."""
        for route in self._routes:
            match = route.pattern.fullmatch(path) if route.verb == verb else None
            if match is None:
                continue
            described = route.method.get("parameters", {})
            mistakes = []
            for name, value in {**match.groupdict(), **query}.items():
                schema = described.get(name) or self._everywhere.get(name)
                if schema is None:
                    mistakes.append(f"{route.method['id']} has no parameter {name!r}")
                elif "pattern" in schema and name in query and not re.fullmatch(schema["pattern"], value):
                    mistakes.append(f"parameter {name!r} is not of the form {schema['pattern']}")
                elif schema.get("type") == "integer" and not _INTEGERS.fullmatch(value):
                    mistakes.append(f"parameter {name!r} is not a number")
            wanted = route.method.get("request")
            if wanted is not None:
                mistakes += self._mistakes(wanted, body, "body", route.method["id"])
            elif body is not None:
                mistakes.append(f"{route.method['id']} takes no body")
            return Call(route.method["id"], match.groupdict(), query, body), mistakes
        return None

    def mistakes_of_answer(self, method: str, answer: Any) -> list[str]:
        """Return what an answer has that the description does not allow."""
        found = next(route.method for route in self._routes if route.method["id"] == method)
        return self._mistakes(found["response"], answer, "answer", "") if "response" in found else []

    def _mistakes(self, schema: Mapping[str, Any], value: Any, where: str, method: str) -> list[str]:
        return list(self._check(schema, value, where, method))

    def _check(self, schema: Mapping[str, Any], value: Any, where: str, method: str) -> Iterator[str]:
        """Yield the mistakes of a value. With `method`, it is part of a request of it."""
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"]]
        kind = schema.get("type", "any")
        if kind == "object":
            yield from self._check_object(schema, value, where, method)
        elif kind == "array":
            if not isinstance(value, list):
                yield f"{where} is not a list"
                return
            for index, each in enumerate(value):
                yield from self._check(schema["items"], each, f"{where}[{index}]", method)
        elif kind == "string":
            yield from _check_text(schema, value, where)
        elif kind == "boolean" and not isinstance(value, bool):
            yield f"{where} is not a boolean"
        elif kind == "integer" and (not isinstance(value, int) or isinstance(value, bool)):
            yield f"{where} is not an integer"
        elif kind == "number" and (not isinstance(value, int | float) or isinstance(value, bool)):
            yield f"{where} is not a number"

    def _check_object(self, schema: Mapping[str, Any], value: Any, where: str, method: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where} is not an object"
            return
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, each in value.items():
            inner = properties.get(name) or others
            if inner is None:
                yield f"{where} has no field {name!r}"
            elif method and inner.get("readOnly"):
                yield f"{where}.{name} is written by Google only"
            else:
                yield from self._check(inner, each, f"{where}.{name}", method)
        for name, inner in properties.items():
            if method and name not in value and method in inner.get("annotations", {}).get("required", ()):
                yield f"{where}.{name} is required"


def _check_text(schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    form = schema.get("format")
    if not isinstance(value, str):
        yield f"{where} is not a string"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r}, which is none of {', '.join(schema['enum'])}"
    elif "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield f"{where} is not of the form {schema['pattern']}"
    elif form in ("int64", "uint64") and not _INTEGERS.fullmatch(value):
        yield f"{where} is not a number, as text"
    elif form in _TIMES and not _TIME.fullmatch(value):
        yield f"{where} is not a time"
    elif form == "byte":
        try:
            base64.urlsafe_b64decode(value)
        except binascii.Error:
            yield f"{where} is not in base64"


def _methods(resource: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from resource.get("methods", {}).values()
    for each in resource.get("resources", {}).values():
        yield from _methods(each)


def _route(prefix: str, method: Mapping[str, Any]) -> _Route:
    """Return the route of a method. A parameter `+x` takes slashes as well."""
    pattern = re.escape("/" + prefix)
    end = 0
    for placeholder in _PLACEHOLDER.finditer(method["path"]):
        pattern += re.escape(method["path"][end : placeholder.start()])
        described = method["parameters"][placeholder[1]].get("pattern", "[^/:]+")
        pattern += f"(?P<{placeholder[1]}>{described.removeprefix('^').removesuffix('$')})"
        end = placeholder.end()
    return _Route(method["httpMethod"], re.compile(pattern + re.escape(method["path"][end:])), method)
