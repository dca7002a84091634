"""Plugins that break a promise each; the conformance checks find it."""

import os
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from skyward.specs import Image, Spec
from skyward.specs.plugin import Plugin, PluginStep
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode, TaskInfo
from skyward.values.validation import Secret
from tests.unit.plugins.broken_contexts import Leaving

__all__ = ["BROKEN", "Right"]


_TOKEN = Secret("hf_secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Right(Plugin):
    """A plugin that keeps all promises."""

    name = "right"
    on_node = "tests.unit.plugins.broken_plugins:RightOnNode"

    token: Secret = _TOKEN
    values: tuple[int, ...] = (1, 2)

    def image(self, image: Image, spec: Spec) -> Image:
        """Add a package and a variable."""
        pip = image.pip if "right" in image.pip else (*image.pip, "right")
        return replace(image, pip=pip, env={**image.env, "RIGHT": "1"})

    def steps(self, spec: Spec) -> tuple[PluginStep, ...]:
        """Make a folder."""
        return (PluginStep("right", 'mkdir -p "$HOME/right"\n'),)

    def settings(self) -> Mapping[str, Any]:
        """Send everything."""
        return {"token": self.token, "values": list(self.values), "more": {"none": None, "half": 0.5}}


class RightOnNode(OnNode):
    """The part of `Right` on nodes: changes all that contexts may change, and puts it back."""

    def __init__(self, token: str, values: list[int], more: dict[str, Any]) -> None:
        self._token = Secret(token)

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, str]:
        """Return the token."""
        return {"TOKEN": str(self._token)}

    @contextmanager
    def around_process(self, node: InstanceInfo) -> Iterator[None]:
        """Check the variables, and start a thread meanwhile."""
        assert os.environ["TOKEN"] == "hf_secret"
        from tests.unit.plugins import changing_import  # noqa: F401  # what that changes is excused

        done = threading.Event()
        thread = threading.Thread(target=done.wait)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    @contextmanager
    def around_task(self, task: TaskInfo) -> Iterator[None]:
        """Change the variables, the folder and the filters of warnings meanwhile."""
        before = os.getcwd()
        os.environ["RANK"] = str(task.position)
        os.chdir("/")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            os.chdir(before)
            del os.environ["RANK"]


@dataclass(frozen=True, kw_only=True)
class _WithoutSlots(Right):
    pass


@dataclass(frozen=True, slots=True)
class _ByPosition(Right):
    place: int = 0


class _NoDataclass(Plugin):
    __slots__ = ()
    name = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nameless(Plugin):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class _AfterItself(Right):
    after = frozenset({"right"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithClosure(Right):
    function: Callable[[], int] = field(default_factory=lambda: lambda: 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ById(Plugin):
    name = "by-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unhashable(Right):
    options: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Showing(Right):
    password: str = "open sesame"

    def settings(self) -> Mapping[str, Any]:
        return {"token": Secret(self.password)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growing(Right):
    def image(self, image: Image, spec: Spec) -> Image:
        return replace(image, pip=(*image.pip, "more"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Random(Right):
    def image(self, image: Image, spec: Spec) -> Image:
        return replace(image, env={**image.env, "SEED": str(random.random())})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replacing(Right):
    def image(self, image: Image, spec: Spec) -> Image:
        return Image(pip=["right"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overriding(Right):
    def image(self, image: Image, spec: Spec) -> Image:
        return replace(image, env=dict.fromkeys(image.env, "mine"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SecretInImage(Right):
    def image(self, image: Image, spec: Spec) -> Image:
        return replace(image, env={**image.env, "TOKEN": str(self.token)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _SecretInStep(Right):
    def steps(self, spec: Spec) -> tuple[PluginStep, ...]:
        return (PluginStep("login", f"login --token {self.token}\n"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Once(Right):
    def steps(self, spec: Spec) -> tuple[PluginStep, ...]:
        return (PluginStep("folder", 'mkdir "$HOME/once" || { echo "it is there"; exit 1; }\n'),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unset(Right):
    def steps(self, spec: Spec) -> tuple[PluginStep, ...]:
        return (PluginStep("cache", 'mkdir -p "$THE_CACHE/right"\n'),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextForSteps(Right):
    def steps(self, spec: Spec) -> Any:
        return ("true",)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TupleInSettings(Right):
    def settings(self) -> Mapping[str, Any]:
        return {"values": [self.values]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SettingsForNobody(Plugin):
    name = "nobody"

    def settings(self) -> Mapping[str, Any]:
        return {"for": "nobody"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoClass(Right):
    on_node = "tests.unit.plugins.broken_plugins:Missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoPath(Right):
    on_node = "tests.unit.plugins.broken_plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoOnNode(Right):
    on_node = "tests.unit.plugins.broken_plugins:Right"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OtherSettings(Right):
    def settings(self) -> Mapping[str, Any]:
        return {"unknown": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ImportingEarly(Right):
    on_node = "tests.unit.plugins.broken_imports:ImportingEarly"


@dataclass(slots=True, kw_only=True)
class _Mutable(Plugin):
    name = "mutable"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OtherHash(Right):
    def __hash__(self) -> int:
        return id(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequiringText(Right):
    def requires(self) -> Any:
        return "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoImage(Right):
    def image(self, image: Image, spec: Spec) -> Any:
        return image.pip


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListOfSteps(Right):
    def steps(self, spec: Spec) -> Any:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class _RandomStep(Right):
    def steps(self, spec: Spec) -> tuple[PluginStep, ...]:
        return (PluginStep("seed", f"echo {random.random()}\n"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PrintingStep(Right):
    def steps(self, spec: Spec) -> tuple[PluginStep, ...]:
        return (PluginStep("login", "echo hf_sec''ret\n"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListOfSettings(Right):
    def settings(self) -> Any:
        return [self.token]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RandomSettings(Right):
    def settings(self) -> Mapping[str, Any]:
        return {"seed": random.random()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _NumberedSettings(Right):
    def settings(self) -> Mapping[str, Any]:
        return {"layers": {1: "one"}}


BROKEN: Mapping[str, Callable[[], Plugin]] = {
    "_Mutable is not frozen": _Mutable,
    "_OtherHash has another hash after pickling": _OtherHash,
    r"requires\(\) returns no Requires": _RequiringText,
    r"image\(\) returns no Image": _NoImage,
    r"steps\(\) returns no tuple": _ListOfSteps,
    r"steps\(\) returns other steps when it is called again": _RandomStep,
    "step 'login' prints a secret": _PrintingStep,
    r"settings\(\) returns no mapping": _ListOfSettings,
    r"settings\(\) returns other values when it is called again": _RandomSettings,
    r"settings\(\)\['layers'\] has the key 1, which is not a string": _NumberedSettings,
    "_WithoutSlots has no slots": _WithoutSlots,
    "_ByPosition has fields that are not keyword-only": _ByPosition,
    "_NoDataclass is not a dataclass": _NoDataclass,
    "_Nameless has no name": _Nameless,
    "_AfterItself comes after itself": _AfterItself,
    "_WithClosure does not pickle by name": _WithClosure,
    "_ById is another one after pickling": _ById,
    "_Unhashable cannot be hashed": _Unhashable,
    r"repr\(\) of _Showing shows a secret": _Showing,
    "it changes its own result": _Growing,
    r"image\(\) returns another environment when it is called again": _Random,
    r"image\(\) removes packages of the user": _Replacing,
    r"image\(\) changes variables of the user": _Overriding,
    r"image\(\) has a secret": _SecretInImage,
    "step 'login' has a secret": _SecretInStep,
    "step 'folder' fails at its second run: it is there": _Once,
    "step 'cache' fails at its first run: .*THE_CACHE": _Unset,
    r"steps\(\) has str, which is no PluginStep": _TextForSteps,
    r"settings\(\)\['values'\]\[0\] is tuple, which is neither JSON nor a Secret": _TupleInSettings,
    r"settings\(\) has values, but on_node is None": _SettingsForNobody,
    "has no class 'Missing'": _NoClass,
    "must be 'package.module:Class'": _NoPath,
    "Right is not a subclass of `sky.plugins.OnNode`": _NoOnNode,
    "unexpected keyword argument 'unknown'": _OtherSettings,
    "a node does not have 'numpy'": _ImportingEarly,
    **{
        rf"around_{name}\(\){when} leaves {what}": partial(Leaving, change=change, around=around)
        for name, when, around in (
            ("process", "", "process"),
            ("task", "", "task"),
            ("task", ", after an error,", "failed task"),
        )
        for change, what in (
            ("variable", "the variable LEFT, which it did not find"),
            ("folder", "the working directory /, which it did not find"),
            ("filters", r"the filter of warnings \('ignore',"),
        )
    },
    r"around_process\(\) leaves the thread left": partial(Leaving, change="thread", around="process"),
    r"around_task\(\) swallows the error of a task": partial(Leaving, change="error", around=""),
    r"environment\(\) leaves the variable LEFT": partial(Leaving, change="variable", around="environment"),
    r"environment\(\) has N of type int, which is not a string": partial(Leaving, change="number", around=""),
    r"environment\(\) returns other variables": partial(Leaving, change="random", around=""),
}
"""Makers of plugins, by the promise that each breaks."""
