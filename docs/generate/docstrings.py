"""Docstrings as autodoc shows them: examples as code, fields without a text, and signatures of what users construct."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from itertools import takewhile
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util.typing import stringify_annotation

from docs.generate.references import OURS, is_internal

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["connect_docstrings", "default_of", "field_texts", "restructured"]

_SECTIONS: Final = r"^(Args|Attributes|Raises|Returns|Yields|Example|Source):$"
_ATTRIBUTE: Final = re.compile(r"^\.\. attribute:: (\w+)$")


def connect_docstrings(app: "Sphinx") -> None:
    """Handle docstrings and signatures. Napoleon itself takes the text of a property before a colon for its type."""
    for name, default, rebuild, types in Config._config_values:
        app.add_config_value(name, default, rebuild, types=types)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _is_of_others)


def _docstring(app: "Sphinx", what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Turn the sections of a docstring into reStructuredText, in place."""
    kind = what if what in ("module", "class", "exception", "function", "method") else "method"
    lines[:] = _restructured(lines, value, app.config, kind)


def restructured(text: str, value: type) -> list[str]:
    """Return the docstring of a class as reStructuredText."""
    config = Config(napoleon_attr_annotations=True, napoleon_custom_sections=["Source"])
    return _restructured(text.splitlines(), value, config, "class")


def _restructured(lines: Sequence[str], value: object, config: Any, kind: Any) -> list[str]:
    prepared = list(_with_code(_one_by_one(lines)))
    found = GoogleDocstring(prepared, config, None, kind, "", value).lines()
    if kind in ("class", "exception") and isinstance(value, type):
        found = [*_with_types(value, found), *_missing_fields(value, found)]
    return found


def _with_types(value: type, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines with the type of each attribute in its heading, instead of below its text, and its default."""
    defaults = _defaults(value)
    for line in lines:
        if line.startswith("   :type: "):
            continue
        yield line
        if found := _ATTRIBUTE.match(line):
            yield from _facts(value, found[1], defaults)


def _facts(value: type, name: str, defaults: Mapping[str, object]) -> Iterator[str]:
    """Yield the options of the directive of an attribute, which is not in the contents of its page: type, default."""
    yield "   :no-contents-entry:"
    for each in value.__mro__:
        annotation = inspect.get_annotations(each).get(name)
        if annotation is not None:
            yield f"   :type: {stringify_annotation(annotation, 'smart')}"
            break
    default = defaults.get(name, MISSING)
    if default is None or isinstance(default, str | int | float):
        yield f"   :value: {default!r}"


def _defaults(value: type) -> Mapping[str, object]:
    return {field.name: default_of(field) for field in fields(value)} if is_dataclass(value) else {}


def _is_of_others(app: "Sphinx", what: str, name: str, member: object, skip: bool, options: Any) -> bool | None:
    """Leave out members that a base class of another package has."""
    function = member.fget if isinstance(member, property) else member
    module = getattr(function, "__module__", None)
    return True if module is not None and module.partition(".")[0] not in OURS else None


def _one_by_one(lines: Sequence[str]) -> list[str]:
    """Return the lines with an entry for each of several attributes that share a text, as in `min, max: bounds`."""
    found: list[str] = []
    inside = False
    for place, line in enumerate(lines):
        inside = line == "Attributes:" or (inside and (not line or line.startswith(" ")))
        entry = re.match(r"^    (\w+(?:, \w+)+): (.*)$", line) if inside else None
        if entry is None:
            found.append(line)
            continue
        rest = takewhile(lambda each: each.startswith("        "), lines[place + 1 :])
        text = " ".join([entry[2], *(each.strip() for each in rest)])
        *others, last = entry[1].split(", ")
        found += [f"    {name}: {text}" for name in others] + [f"    {last}: {entry[2]}"]
    return found


def _with_code(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines with each example as a block of Python, without prompts."""
    rest = iter(lines)
    for line in rest:
        if line != "Example:":
            yield line
            continue
        code: list[str] = []
        after = ""
        for each in rest:
            if each.strip() and not each.startswith(" "):
                after = each
                break
            code.append(each)
        bare = [re.sub(r"^(?:>>>|\.\.\.) ?", "", each) for each in dedent("\n".join(code)).splitlines()]
        yield from (".. rubric:: Example", "", ".. code-block:: python", "")
        yield from (f"   {each}" for each in bare)
        yield ""
        if after:
            yield after


def _missing_fields(value: type, lines: Sequence[str]) -> Iterator[str]:
    """Yield an entry for each public field of a dataclass for which the docstring has none."""
    if not is_dataclass(value):
        return
    there = {found[1] for line in lines if (found := _ATTRIBUTE.match(line))}
    for field in fields(value):
        is_own = field.name in inspect.get_annotations(value)
        if is_own and field.init and field.name[0] != "_" and field.name not in there:
            yield from ("", f".. attribute:: {field.name}", *_facts(value, field.name, _defaults(value)))
    yield ""


def _signature(
    app: "Sphinx", what: str, name: str, value: object, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Leave out the signature of a class that Skyward constructs, which takes what is not public."""
    if what in ("class", "exception") and signature:
        if "T_co" in signature or any(map(is_internal, re.findall(r"[\w.]+", signature))):
            return "", returned
        signature = re.sub(r"<class '(\w+)'>", r"\1", signature.replace("<factory>", "..."))
    return signature, returned


def field_texts(value: type) -> dict[str, str]:
    """Return the text of each entry of the section `Attributes` in the docstring of a class, in one line."""
    found: dict[str, str] = {}
    name, inside = "", False
    for line in (inspect.getdoc(value) or "").splitlines():
        if re.match(_SECTIONS, line):
            inside = line == "Attributes:"
        elif inside and (entry := re.match(r"^    ((?:\w+)(?:, \w+)*): (.*)$", line)):
            name = entry[1]
            found |= dict.fromkeys(name.split(", "), entry[2])
        elif inside and line.startswith("        ") and name:
            found |= {each: f"{found[each]} {line.strip()}" for each in name.split(", ")}
    return found


def default_of(field: Any) -> object:
    """Return the default of a field of a dataclass; `MISSING` if it has none."""
    return field.default_factory() if field.default_factory is not MISSING else field.default
