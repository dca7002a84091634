"""The keys of `skyward.toml`, from the classes that validate their values."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import signature
from typing import Any

from docs.generate.docstrings import default_of, field_texts
from docs.generate.markdown import entry, prose
from skyward.config.storages import PRESETS
from skyward.config.values import OWNERS, PATHS, is_of_nodes
from skyward.providers.protocol import find_provider, provider_names
from skyward.specs.storage import Storage
from skyward_jupyter.options.settings import NAMES, CellSettings
from skyward_jupyter.options.traits import ConfiguredMagics

__all__ = ["cell_keys", "pool_keys", "provider_keys", "storage_keys"]


def cell_keys() -> str:
    """Return an entry for each key of `[cells]`."""
    texts = {name: ConfiguredMagics.class_traits()[name].help for name in NAMES}
    default = CellSettings()
    return "\n".join(_key(f"cells.{name}", getattr(default, name), texts[name]) for name in NAMES)


def pool_keys() -> str:
    """Return an entry for each key of `[pools.NAME]`, first those that may differ between groups."""
    of_nodes = [path for path in PATHS if is_of_nodes(path)]
    of_pool = [path for path in PATHS if not is_of_nodes(path)]
    parts = ["### Keys of nodes", *_pool_keys(of_nodes), "### Keys of the whole pool", *_pool_keys(of_pool)]
    return "\n".join(parts)


def _pool_keys(paths: list[str]) -> Iterator[str]:
    texts: dict[type, Mapping[str, str]] = {}
    for path in sorted(paths, key=lambda path: ("." in path, list(OWNERS).index(path) if path in OWNERS else 0)):
        if path not in OWNERS:
            yield _key(f"pools.NAME.{path}", MISSING, "tables of nodes of several kinds, by the name of their group.")
            continue
        owner, name = OWNERS[path], path.rpartition(".")[2]
        text = texts.setdefault(owner, field_texts(owner))[name]
        field = next(each for each in fields(owner) if each.name == name)
        yield _key(f"pools.NAME.{path}", default_of(field), text)


def storage_keys() -> str:
    """Return an entry for each key of `[storages.NAME]`, with the types of storages that take it."""
    texts = field_texts(Storage)
    takers: dict[str, list[str]] = {name: [] for name in signature(Storage).parameters}
    for kind, make in PRESETS.items():
        for name in signature(make).parameters:
            takers.setdefault(name, []).append(kind)
    parts = [_key("storages.NAME.type", MISSING, f"the kind of store: {', '.join(f'`{kind}`' for kind in PRESETS)}")]
    for name, kinds in takers.items():
        of = f"For the types {', '.join(f'`{kind}`' for kind in kinds)}." if kinds else "Without a type."
        parts.append(_key(f"storages.NAME.{name}", MISSING, f"{prose(texts.get(name, ''))} {of}".strip()))
    return "\n".join(parts)


def provider_keys() -> str:
    """Return an entry for each key of the table of each provider."""
    parts = []
    for name in provider_names():
        kind = find_provider(name)
        parts.append(f"### `[providers.{name}]`\n")
        texts = field_texts(kind)
        if is_dataclass(kind):
            for field in fields(kind):
                if field.init and field.name[0] != "_":
                    key, text = f"providers.{name}.{field.name}", texts.get(field.name, "")
                    parts.append(_key(key, default_of(field), text))
    return "\n".join(parts)


def _key(path: str, default: Any, text: str) -> str:
    text = prose(text)
    if default is MISSING:
        return entry("key", path, "", text)
    return entry("key", path, "", text, "", f"Default: {shown(default)}.")


def shown(default: Any) -> str:
    """Return a default as a file would have it."""
    if default is None or (isinstance(default, Collection) and not default):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float):
        return f"`{default:g}`"
    if isinstance(default, str):
        return f'`"{default}"`'
    if isinstance(default, (tuple, list, frozenset)):
        return ", ".join(f"`{each}`" for each in default)
    return f"`{default}`"
