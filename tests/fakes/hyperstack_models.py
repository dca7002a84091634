"""Checks JSON against the models of `hyperstack`, which drop unknown fields.

A script for the interpreter of that client (`tests.fakes.vendor_models`). Its models are of pydantic.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import hyperstack
from pydantic import ValidationError


def differences(model: Any, value: object) -> Iterator[str]:
    """Yield where `value` differs from a model: wrong types, missing and unknown fields."""
    try:
        parsed = model.model_validate(value)
    except ValidationError as error:
        for each in error.errors():
            yield f"$.{'.'.join(map(str, each['loc']))}: {each['msg']}"
        return
    yield from _unknown(value, parsed.model_dump(by_alias=True), "$")


def _unknown(value: Any, parsed: Any, where: str) -> Iterator[str]:
    match value, parsed:
        case dict(), dict():
            for name, each in value.items():
                if name not in parsed:
                    yield f"{where}.{name} is unknown"
                else:
                    yield from _unknown(each, parsed[name], f"{where}.{name}")
        case list(), list():
            for number, (each, other) in enumerate(zip(value, parsed, strict=True)):
                yield from _unknown(each, other, f"{where}[{number}]")


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        name, sent = json.loads(line)
        print(json.dumps(list(differences(getattr(hyperstack, name), sent))), flush=True)
