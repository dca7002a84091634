"""The built documentation site: an entry for each thing that has a name, none for what does not exist, and links."""

import contextlib
import importlib
import inspect
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAliasType
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

import skyward as sky
from docs.generate.names import MODULES, public_members
from skyward.commands.table.every_command import OF_COMMAND_LINE
from skyward.config.storages import PRESETS
from skyward.config.values import PATHS
from skyward.plugins.registry import plugin_names
from skyward.providers.protocol import find_provider, provider_names
from skyward.scaling.registry import POLICIES, find_policy
from skyward_jupyter.options.option_table import OPTIONS
from skyward_jupyter.options.settings import NAMES
from skyward_kernel.commands.registry import COMMANDS
from tests.house import dotted_name_exists

pytestmark = [pytest.mark.docs, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
VALUES = (sky.Spec, sky.Options, sky.Image, sky.Worker, sky.Nodes, sky.Volume, sky.Storage, sky.PipIndex, sky.Retries)
"""Classes of which each field is an entry, because users write them."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does, without a network: each connection would go to a closed port."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "docs.build", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **nowhere}, capture_output=True, text=True, check=False, timeout=380
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def entries(site: Path) -> dict[str, set[str]]:
    """Names of the entries of the site by their kind, such as "py:class", with the page of each on disk."""
    found: dict[str, set[str]] = {}
    data = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    for line in zlib.decompress(data).decode().splitlines():
        name, _, rest = line.partition(" py:" if " py:" in line else " sky:" if " sky:" in line else " std:")
        domain = line[len(name) + 1 :].partition(":")[0]
        kind = rest.partition(" ")[0]
        found.setdefault(f"{domain}:{kind}", set()).add(name)
    return found


def python_entries(entries: dict[str, set[str]]) -> set[str]:
    return {name for kind, names in entries.items() if kind.startswith("py:") for name in names}


def test_every_public_name_has_an_entry(entries: dict[str, set[str]]) -> None:
    wanted = {f"skyward.{name}" for name in sky.__all__}
    assert wanted - python_entries(entries) == set()


def test_every_name_of_a_public_module_has_an_entry(entries: dict[str, set[str]]) -> None:
    there = python_entries(entries)
    missing = []
    for module in MODULES:
        for name in public_members(module):
            value = getattr(getattr(sky, module), name)
            aliases = {f"skyward.{module}.{name}", f"skyward.{name}", f"{getattr(value, '__module__', '')}.{name}"}
            if not aliases & there:
                missing.append(f"{module}.{name}")
    assert missing == []


@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(value.__name__))
def test_every_field_has_an_entry(value: Any, entries: dict[str, set[str]]) -> None:
    wanted = {f"skyward.{value.__name__}.{each.name}" for each in fields(value) if each.init and each.name[0] != "_"}
    assert wanted
    assert wanted - entries["py:attribute"] == set()


def test_every_public_method_and_field_has_an_entry(entries: dict[str, set[str]]) -> None:
    there = python_entries(entries)
    missing = []
    for name in sky.__all__:
        value = getattr(sky, name)
        if isinstance(value, type) and not issubclass(value, BaseException):
            members = {each for each, found in vars(value).items() if callable(found) or isinstance(found, property)}
            members |= {each.name for each in fields(value) if each.init} if is_dataclass(value) else set()
            missing += [
                f"{name}.{each}" for each in members if each[0] != "_" and f"skyward.{name}.{each}" not in there
            ]
    assert missing == []


def test_options_of_cells_are_those_of_the_parser(entries: dict[str, set[str]]) -> None:
    there = {name for name in entries["sky:option"] if name.startswith("%%sky ")}
    assert there == {f"%%sky {option.name}" for option in OPTIONS}


def test_commands_of_notebooks_and_their_options_are_those_of_the_registry(entries: dict[str, set[str]]) -> None:
    assert entries["sky:magic"] == {f"%sky {name}" for name in COMMANDS}
    there = {name for name in entries["sky:option"] if name.startswith("%sky ")}
    assert there == {f"%sky {name} {option.name}" for name, command in COMMANDS.items() for option in command.flags}


def test_commands_of_terminals_and_their_options_are_those_of_the_table(entries: dict[str, set[str]]) -> None:
    assert entries["sky:command"] == {f"skyward {name}" for name in OF_COMMAND_LINE}
    flags = {
        f"skyward {name} {option.name}"
        for name, command in OF_COMMAND_LINE.items()
        for option in (*command.options, *command.collected)
    }
    assert {name for name in entries["sky:option"] if name[0] != "%"} == flags


def test_keys_are_those_of_the_configuration(entries: dict[str, set[str]]) -> None:
    wanted = {f"cells.{name}" for name in NAMES} | {f"pools.NAME.{path}" for path in PATHS}
    for name in provider_names():
        kind = find_provider(name)
        if kind.__module__.startswith("skyward_providers") and is_dataclass(kind):
            wanted |= {f"providers.{name}.{each.name}" for each in fields(kind) if each.init and each.name[0] != "_"}
    takers = [sky.Storage, *PRESETS.values()]
    wanted |= {f"storages.NAME.{name}" for make in takers for name in inspect.signature(make).parameters}
    assert entries["sky:key"] == wanted | {"storages.NAME.type"}


def test_every_plugin_provider_and_policy_has_an_entry(entries: dict[str, set[str]]) -> None:
    there = python_entries(entries)
    plugins = [name for name in plugin_names() if name in sky.plugins.__all__]
    assert {f"skyward.plugins.{name}" for name in (*plugins, "around")} <= there
    classes = [find_provider(name) for name in provider_names()]
    ours = {name for name in sky.__all__ if getattr(sky, name) in classes}
    assert len(ours) == len([kind for kind in classes if kind.__module__.startswith("skyward_providers")])
    assert {f"skyward.{name}" for name in ours} <= there
    assert {f"skyward.scaling.{type(find_policy(name)).__name__}" for name in POLICIES} <= there


def test_every_entry_of_python_exists(entries: dict[str, set[str]]) -> None:
    assert [name for name in sorted(python_entries(entries)) if not exists(name)] == []


def exists(name: str) -> bool:
    """Return whether a dotted name stands for a module, something in one, or a member or a field of a class."""
    value: Any = None
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            value = importlib.import_module(".".join(parts[:end]))
            break
    for part in parts[end:]:
        if not hasattr(value, part):
            return isinstance(value, type) and dotted_name_exists(f"{value.__name__}.{part}")
        value = getattr(value, part)
    return True


def test_every_error_has_its_sentence(site: Path) -> None:
    page = Page.of(site / "reference" / "errors.html")
    text = " ".join(page.text.split())
    for name in sky.errors.__all__:
        if issubclass(getattr(sky, name), sky.SkywardError):
            sentence = (getattr(sky, name).__doc__ or "").partition("\n\n")[0].replace("``", "").replace("`", "")
            assert " ".join(sentence.split()) in text, name


def test_every_field_has_a_text(site: Path) -> None:
    """Each field and attribute of a public class says what it is."""
    entry = re.compile(r'<dt class="sig sig-object py" id="([^"]+)">.*?</dt>\s*<dd>(.*?)</dd>', re.DOTALL)
    silent = []
    for path in sorted([*(site / "reference").glob("*.html"), *(site / "api").glob("*.html")]):
        if path.stem != "types":
            found = {name: re.sub(r"<[^>]+>", "", text).strip() for name, text in entry.findall(path.read_text())}
            silent += [name for name, text in found.items() if not text and not is_alias(name)]
    assert silent == []


def is_alias(name: str) -> bool:
    """Return whether a dotted name is that of a type alias, whose heading has its value."""
    value: Any = sky
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return isinstance(value, TypeAliasType)


class Page(HTMLParser):
    """Links, anchors, and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.text = ""

    @classmethod
    @cache
    def of(cls, path: Path) -> "Page":
        """Return the parsed page of a file."""
        page = cls()
        page.feed(path.read_text())
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if found := given.get("id"):
            self.anchors.add(found)
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)
        elif tag in ("link", "script", "img", "iframe", "source", "video") and (
            link := given.get("src") or given.get("href")
        ):
            self.loads.append(link)

    def handle_data(self, data: str) -> None:
        self.text += data


def pages(site: Path) -> Iterator[tuple[Path, Page]]:
    for path in sorted(site.rglob("*.html")):
        yield path, Page.of(path)


def test_texts_of_the_reference_keep_their_options_and_code(site: Path) -> None:
    """Regression: options had dashes for hyphens, code within code lost its backticks, and empty defaults were "."."""
    wrong = [
        f"{path.relative_to(site)}: {found[0]}"
        for path, page in pages(site)
        for found in re.finditer(r".{0,30}(?:[\u2013\u2014][a-z]|(?<!`)``(?!`)|Default: \.).{0,30}", page.text)
        if path.parent.name in ("reference", "use", "howto", "api")
    ]
    assert wrong == []


def test_every_internal_link_leads_somewhere(site: Path) -> None:
    broken = []
    for path, page in pages(site):
        for link in [*page.links, *page.loads]:
            address, anchor = urldefrag(link)
            if urlsplit(address).scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(urlsplit(address).path)).resolve() if address else path
            is_there = target.is_file()
            if is_there and anchor and target.suffix == ".html":
                is_there = unquote(anchor) in Page.of(target).anchors
            if not is_there:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_pages_load_nothing_over_the_network(site: Path) -> None:
    loaded = [
        f"{path.relative_to(site)}: {link}"
        for path, page in pages(site)
        for link in page.loads
        if urlsplit(link).scheme not in ("", "data") or link.startswith("//")
    ]
    styles = [
        f"{path.relative_to(site)}"
        for path in site.rglob("*.css")
        if "url(http" in path.read_text() or "url(//" in path.read_text()
    ]
    assert loaded + styles == []
