"""Checks of requests and answers against a vendor's published description (OpenAPI 3.0 and 3.1)."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

__all__ = ["Description", "description"]

SHARED = Path(__file__).parents[3] / "shared" / "reference" / "api"
"""The published descriptions. They have no licence that would let the repository include them."""


_ERRORS = 400


class Description:
    """A description of an API.

    Args:
        document: the description, decoded; None where there is none, which checks nothing.
    """

    def __init__(self, document: Mapping[str, Any] | None) -> None:
        self._is_known = document is not None
        document = {"paths": {}} if document is None else document
        self._document = document
        self._root = _as_json_schema(document)
        self._paths = [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path.rstrip("/")) + "/?"), methods)
            for path, methods in document["paths"].items()
        ]

    def operation(self, method: str, path: str) -> Mapping[str, Any]:
        """Return the operation of a request.

        Raises:
            AssertionError: there is none.
        """
        matching = [methods for pattern, methods in self._paths if pattern.fullmatch(path)]
        found: Mapping[str, Any] | None = next((m[method.lower()] for m in matching if method.lower() in m), None)
        assert found is not None, f"the API has no {method} {path}"
        return found

    def check_request(self, method: str, path: str, query: Mapping[str, str], body: Any) -> None:
        """Check a request: its parameters are known, and its body has the described form and no other fields."""
        if not self._is_known:
            return
        operation = self.operation(method, path)
        parameters = [self._resolved(each) for each in operation.get("parameters", ())]
        known = {each["name"] for each in parameters if each["in"] == "query"}
        assert set(query) <= known, f"{method} {path} has no parameters {sorted(set(query) - known)}"
        described = self._resolved(operation.get("requestBody", {})).get("content", {}).get("application/json")
        if described is None:
            assert body is None, f"{method} {path} takes no body"
            return
        if isinstance(body, Mapping):
            properties = self._resolved(described["schema"]).get("properties")
            if properties:
                assert set(body) <= set(properties), f"{method} {path}: no fields {sorted(set(body) - set(properties))}"
        self._validate(body, described["schema"])

    def check_answer(self, method: str, path: str, status: int, body: Any) -> None:
        """Check an answer: its status is described, and its body has the described form."""
        if not self._is_known:
            return
        answers = self.operation(method, path)["responses"]
        described = answers.get(str(status), answers.get("default"))
        if described is None and status >= _ERRORS:  # descriptions rarely list every error
            return
        assert described is not None, f"{method} {path} never answers {status}"
        content = self._resolved(described).get("content", {})
        schema = next((each["schema"] for kind, each in content.items() if "json" in kind), None)
        if schema is not None and body is not None:
            self._validate(body, schema)

    def _resolved(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in value:
            found: Any = self._document
            for part in value["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            value = found
        return value

    def _validate(self, value: Any, schema: Mapping[str, Any]) -> None:
        whole = {**_as_json_schema(schema), "components": self._root.get("components", {})}
        errors = sorted(jsonschema.Draft202012Validator(whole).iter_errors(value), key=lambda each: list(each.path))
        assert not errors, "; ".join(f"{'/'.join(map(str, each.path))}: {each.message}" for each in errors[:3])


def _as_json_schema(value: Any) -> Any:
    """Return a description in which `nullable` of OpenAPI 3.0 is a type, and examples and formats are left out."""
    if isinstance(value, list):
        return [_as_json_schema(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: _as_json_schema(each) for key, each in value.items() if key not in ("nullable", "example", "format")}
    if value.get("nullable") is True:
        if isinstance(found.get("type"), str):
            found["type"] = [found["type"], "null"]
        if isinstance(found.get("enum"), list):
            found["enum"] = [*found["enum"], None]
    if found.get("type") == "object" and isinstance(found.get("items"), dict):
        found["additionalProperties"] = found.pop("items")  # a slip of RunPod's: objects have no items
    return found


@cache
def description(name: str, amend: Callable[[dict[str, Any]], None] | None = None) -> Description:
    """Return a published description, or one that checks nothing; `tests.cloud.test_descriptions` says so then.

    Args:
        name: its file, JSON or YAML.
        amend: corrects it where it contradicts itself, or the vendor's own client.
    """
    file = SHARED / name
    if not file.exists():
        return Description(None)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document = json.loads(file.read_text()) if file.suffix == ".json" else yaml.load(file.read_text(), loader)
    if amend is not None:
        amend(document)
    return Description(document)
