"""Checks that every plugin passes: it does what `sky.plugins.Plugin` and `sky.plugins.OnNode` promise.

A plugin of another package imports and runs them too. They raise `AssertionError`, with the promise that is broken.
"""

import importlib
import json
import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from skyward.specs.image import Image
from skyward.specs.plugin import Plugin, PluginStep, Requires
from skyward.specs.spec import Spec
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode, TaskInfo
from skyward.values.validation import Secret

__all__ = ["check_plugin"]

_WITHIN = 120.0
"""Seconds that a step, and a part of a plugin that runs on nodes, may take."""

_ENDS_WITHIN = 5.0
"""Seconds that threads of a context have to end."""

_ON_NODES = ("blake3", "casty", "cloudpickle", "skyward")
"""Packages that every node has."""

_INFO = InstanceInfo(node=0, total_nodes=1, accelerators=1, total_accelerators=1, job_id="conformance")


def check_plugin(
    plugin: Plugin,
    folder: Path,
    *,
    spec: Spec | None = None,
    search_path: str | None = None,
    contexts: bool = True,
) -> None:
    """Check a plugin: its value, environment, steps and settings, and its part that runs on nodes.

    Args:
        folder: a temporary folder, in which steps and contexts run, and which has their home.
        spec: a spec that the plugin accepts, with other plugins if it needs any; by default one of rented machines,
            with an A100 if the plugin needs an accelerator.
        search_path: `PATH` of steps and contexts, such as one with stand-ins of commands; by default this process's.
        contexts: False where the framework is not installed, which is only imported in the contexts.

    Raises:
        AssertionError: the plugin breaks a promise.

    Example:
        def test_wandb(tmp_path):
            check_plugin(Wandb(project="demo"), tmp_path)
    """
    secrets = _check_settings(plugin)
    _check_value(plugin, secrets)
    given = spec or Spec(provider="aws", accelerator="A100" if plugin.requires().accelerator else None)
    spec = given if plugin in given.plugins else replace(given, plugins=(*given.plugins, plugin))
    _check_image(plugin, spec, secrets)
    home = folder / "home"
    home.mkdir()
    variables = {
        **os.environ,
        "HOME": str(home),
        "SKYWARD_POOL": "conformance",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    if search_path is not None:
        variables["PATH"] = search_path
    _check_steps(plugin, spec, secrets, home, variables)
    _check_on_node(plugin, home, variables, contexts=contexts)


def _check_settings(plugin: Plugin) -> frozenset[str]:
    """Return the secrets in the settings and the fields of a plugin."""
    settings = plugin.settings()
    assert isinstance(settings, Mapping), "settings() returns no mapping"
    assert settings == plugin.settings(), "settings() returns other values when it is called again"
    kept: list[object] = [getattr(plugin, field.name) for field in fields(plugin)] if is_dataclass(plugin) else []
    found = {*_secrets_in(dict(settings), "settings()"), *(str(value) for value in kept if isinstance(value, Secret))}
    return frozenset(found - {""})


def _secrets_in(value: object, where: str) -> Iterator[str]:
    match value:
        case Secret():
            yield str(value)
        case None | bool() | int() | float() | str():
            pass
        case dict():
            for key, item in value.items():
                assert isinstance(key, str), f"{where} has the key {key!r}, which is not a string"
                yield from _secrets_in(item, f"{where}[{key!r}]")
        case list():
            for number, item in enumerate(value):
                yield from _secrets_in(item, f"{where}[{number}]")
        case _:
            raise AssertionError(f"{where} is {type(value).__name__}, which is neither JSON nor a Secret")


def _check_value(plugin: Plugin, secrets: frozenset[str]) -> None:
    kind = type(plugin)
    assert isinstance(getattr(kind, "name", None), str), f"{kind.__name__} has no name"
    assert kind.name, f"{kind.__name__} has an empty name"
    assert is_dataclass(kind), f"{kind.__name__} is not a dataclass"
    assert kind.__dataclass_params__.frozen, f"{kind.__name__} is not frozen"
    assert not hasattr(plugin, "__dict__"), f"{kind.__name__} has no slots"
    assert all(field.kw_only for field in fields(plugin)), f"{kind.__name__} has fields that are not keyword-only"
    try:
        again = pickle.loads(pickle.dumps(plugin))
    except Exception as error:
        raise AssertionError(f"{kind.__name__} does not pickle by name: {error}") from error
    assert again == plugin, f"{kind.__name__} is another one after pickling"
    try:
        same = hash(again) == hash(plugin)
    except TypeError as error:
        raise AssertionError(f"{kind.__name__} cannot be hashed: {error}") from error
    assert same, f"{kind.__name__} has another hash after pickling"
    assert not _shown(repr(plugin), secrets), f"repr() of {kind.__name__} shows a secret"
    assert isinstance(plugin.requires(), Requires), "requires() returns no Requires"
    named = {*plugin.after, *plugin.excludes}
    assert kind.name not in named, f"{kind.__name__} comes after itself, or excludes itself"


def _shown(text: str, secrets: frozenset[str]) -> bool:
    return any(secret in text for secret in secrets)


def _check_image(plugin: Plugin, spec: Spec, secrets: frozenset[str]) -> None:
    given = replace(
        spec.image, pip=(*spec.image.pip, "skyward-conformance"), env={**spec.image.env, "CONFORMANCE": "1"}
    )
    made = plugin.image(given, spec)
    assert isinstance(made, Image), "image() returns no Image"
    assert made == plugin.image(given, spec), "image() returns another environment when it is called again"
    assert plugin.image(made, spec) == made, "image() is not idempotent: it changes its own result"
    assert set(given.pip) <= set(made.pip), "image() removes packages of the user"
    assert given.env.items() <= made.env.items(), "image() changes variables of the user"
    texts = [*made.pip, *made.apt, *made.env.values(), *made.shell_vars.values()]
    assert not any(_shown(text, secrets) for text in texts), "image() has a secret"


def _check_steps(plugin: Plugin, spec: Spec, secrets: frozenset[str], home: Path, variables: Mapping[str, str]) -> None:
    steps = plugin.steps(spec)
    assert isinstance(steps, tuple), "steps() returns no tuple"
    assert steps == plugin.steps(spec), "steps() returns other steps when it is called again"
    for step in steps:
        assert isinstance(step, PluginStep), f"steps() has {type(step).__name__}, which is no PluginStep"
        assert not _shown(step.commands, secrets), f"step {step.name!r} has a secret"
        for run in ("first", "second"):
            done = subprocess.run(
                ["sh", "-eu", "-c", step.commands],
                cwd=home,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_WITHIN,
                check=False,
            )
            assert not done.returncode, f"step {step.name!r} fails at its {run} run: {_last(done.stdout)}"
            assert not _shown(done.stdout, secrets), f"step {step.name!r} prints a secret"


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it says nothing"


def _check_on_node(plugin: Plugin, home: Path, variables: Mapping[str, str], *, contexts: bool) -> None:
    """Make the part that runs on nodes in processes of its own."""
    path = plugin.on_node
    if path is None:
        assert not plugin.settings(), "settings() has values, but on_node is None"
        return
    module, colon, _ = path.partition(":")
    assert colon, f"on_node is {path!r}, but must be 'package.module:Class'"
    packages = {*_ON_NODES, module.partition(".")[0]}
    bare = f"import sys\nallowed = {packages!r}\n{_BARE}"
    settings = dict(plugin.settings())
    found = _in_process(_environment, (path, settings), home, variables, start=bare)
    if contexts:
        _check_contexts(path, settings, home, {**variables, **found})


def _check_contexts(path: str, settings: Mapping[str, Any], home: Path, variables: Mapping[str, str]) -> None:
    """Check what contexts leave, except for what the mere import of the modules that they import changes."""
    found = _in_process(_contexts, (path, settings), home, variables)
    if not found["changes"]:
        return
    excused = _in_process(_imports, (found["modules"],), home, variables)
    for what, *change in found["changes"]:
        assert change in excused, f"{path}: {what} leaves {' '.join(change)}, which it did not find"


_BARE = """
class Bare:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package not in allowed and package not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"a node does not have {name!r}: import it in the methods", name=name)

sys.meta_path.insert(0, Bare())
"""
"""Start of a program that has the packages of a node only."""


def _in_process(
    work: Callable[..., Any], arguments: Sequence[Any], home: Path, variables: Mapping[str, str], start: str = ""
) -> Any:
    """Call a function of this module in a new interpreter; return its result. Both are passed as JSON.

    Raises:
        AssertionError: it raised an error.
    """
    program = f"{start}\nfrom skyward.plugins import conformance\nconformance._answer(conformance.{work.__name__})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=home,
        env=variables,
        input=json.dumps(arguments).encode(),
        capture_output=True,
        timeout=_WITHIN,
        check=False,
    )
    assert not done.returncode, _last(done.stderr.decode(errors="replace")).removeprefix("AssertionError: ")
    return json.loads(done.stdout)


def _answer(work: Callable[..., Any]) -> None:
    """Print the result of a function of the arguments on standard input; whatever it prints goes to stderr."""
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        answer.write(json.dumps(work(*json.load(sys.stdin))))


def _made(path: str, settings: Mapping[str, Any]) -> OnNode:
    module, _, name = path.partition(":")
    kind = getattr(importlib.import_module(module), name, None)
    assert isinstance(kind, type), f"{module} has no class {name!r}"
    assert issubclass(kind, OnNode), f"{name} is not a subclass of `sky.plugins.OnNode`"
    return kind(**settings)


def _environment(path: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a part."""
    on_node = _made(path, settings)
    before = _State.now()
    found = dict(on_node.environment(_INFO, 0))
    for change in before.changes():
        raise AssertionError(f"{path}: environment() leaves {' '.join(change)}, which it did not find")
    for name, value in found.items():
        kind = type(value).__name__
        assert kind == "str", f"{path}: environment() has {name} of type {kind}, which is not a string"
    again = dict(on_node.environment(_INFO, 0))
    assert found == again, f"{path}: environment() returns other variables when it is called again"
    return found


def _contexts(path: str, settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Enter and leave the contexts of a process and of tasks outside of a collective.

    Returns:
        "changes", each with the context that left it, and "modules", the names of those that were imported meanwhile.
    """
    on_node = _made(path, settings)
    modules, changes, before = {*sys.modules}, [], _State.now()
    with on_node.around_process(_INFO):
        inside = _State.now()
        for number in (1, 2):
            with on_node.around_task(TaskInfo(task=number)):
                pass
            changes += [("around_task()", *change) for change in inside.changes()]
        raised = True
        with suppress(_OfTask):
            with on_node.around_task(TaskInfo(task=3)):
                raise _OfTask
            raised = False
        assert raised, f"{path}: around_task() swallows the error of a task"
        changes += [("around_task(), after an error,", *change) for change in inside.changes()]
    changes += [("around_process()", *change) for change in before.changes()]
    return {"changes": changes, "modules": [name for name in [*sys.modules] if name not in modules]}


def _imports(modules: Sequence[str]) -> list[tuple[str, str]]:
    """Return what the import of modules changes."""
    before = _State.now()
    for name in modules:
        with suppress(Exception):  # a name that is no module's, or of an optional part
            importlib.import_module(name)
    return list(before.changes())


class _OfTask(Exception):
    """Error of a task."""


class _State(NamedTuple):
    """State of a process that contexts have to leave as they found it."""

    variables: frozenset[tuple[str, str]]
    folder: str
    threads: frozenset[threading.Thread]
    filters: frozenset[str]

    @classmethod
    def now(cls) -> "_State":
        filters = frozenset(map(repr, warnings.filters))
        return cls(frozenset(os.environ.items()), os.getcwd(), frozenset(threading.enumerate()), filters)

    def changes(self) -> Iterator[tuple[str, str]]:
        """Yield what is not as it was: the kind, and its name, without the values of variables: they may be secrets."""
        now = _State.now()
        yield from (("the variable", name) for name in sorted({name for name, _ in self.variables ^ now.variables}))
        if now.folder != self.folder:
            yield "the working directory", now.folder
        for thread in now.threads - self.threads:
            thread.join(_ENDS_WITHIN)
            if thread.is_alive():
                yield "the thread", thread.name
        yield from (("the filter of warnings", each) for each in sorted(self.filters ^ now.filters))
