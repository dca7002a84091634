"""Plugins as values: order, requirements, and the environment that results."""

import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import skyward as sky
from skyward.plugins.torch_plugin import Torch
from skyward.specs import Image, Options, Spec, Worker
from skyward.specs.plugin import PluginStep
from skyward.specs.plugin_order import image_of, ordered, steps_of
from skyward.specs.resolve import resolve_groups
from tests.unit.plugins.cases import Early, Late, Lonely, Tokens

pytestmark = pytest.mark.unit


def test_equal_fields_make_equal_plugins_that_pickle_by_name() -> None:
    plugin = Tokens(version="2", token="abc")
    assert plugin == Tokens(version="2", token="abc") != Tokens(version="3")
    assert pickle.loads(pickle.dumps(plugin)) == plugin
    assert hash(plugin) == hash(Tokens(version="2", token="abc"))


def test_order_is_that_of_the_list_except_for_what_must_come_first() -> None:
    early, late, tokens = Early(), Late(), Tokens()
    assert ordered([late, tokens, early]) == (tokens, early, late)
    assert ordered([early, tokens, late]) == (early, tokens, late)
    assert ordered([late, tokens]) == (late, tokens)
    assert Spec(plugins=[late, early]) == Spec(plugins=[early, late])


def untyped(value: object) -> Any:
    """Return a value that type checkers accept anywhere."""
    return value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Spec(plugins=[untyped(object())]), "which is not a plugin: use one such as `sky.plugins.torch()`"),
        (
            lambda: Spec(plugins=[untyped("torch")]),
            "which is not a plugin: names are for `skyward.toml`; write `sky.plugins.torch()`",
        ),
        (lambda: Spec(plugins=[untyped(Torch)]), "which is not a plugin: call it, `sky.plugins.torch()`"),
        (lambda: Spec(plugins=[Tokens(), Tokens(version="2")]), "plugins has 'tokens' twice"),
        (lambda: Spec(plugins=[Early(), Lonely()]), "plugins has 'lonely' and 'early', which exclude each other"),
        (lambda: untyped(Tokens)(wersion="2"), "Tokens has no field 'wersion'; did you mean 'version'?"),
        (lambda: resolve_groups([], None, {"plugins": [Lonely()]}), "Plugin 'lonely' needs an accelerator"),
        (
            lambda: resolve_groups([], None, {"plugins": [Late()], "worker": Worker(executor="thread")}),
            "Plugin 'late' needs a process for each task",
        ),
        (
            lambda: resolve_groups([], None, {"plugins": [Early(value="a"), Late(value="b")]}),
            "Plugins 'early' and 'late' set the variable SHARED to different values",
        ),
    ],
)
def test_wrong_plugins_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(sky.SpecError, match=re.escape(message)):
        make()


def test_environment_has_what_all_plugins_need() -> None:
    spec = Spec(image=Image(pip=["numpy"]), plugins=[Tokens(), Early(), Late()])
    image = image_of(spec.plugins, spec.image, spec)
    assert image.pip == ("numpy", "tokens==1", "skyward-tokens")
    assert dict(image.env) == {"TOKENS_VERSION": "1", "SHARED": "early"}
    assert image_of(spec.plugins, image, spec) == image, "again, nothing changes"


def test_variables_of_the_user_win() -> None:
    spec = Spec(image=Image(env={"SHARED": "mine"}), plugins=[Early(), Late(value="other")])
    assert dict(image_of(spec.plugins, spec.image, spec).env) == {"SHARED": "mine"}


def test_pool_has_the_environment_and_the_executor_that_its_plugins_need() -> None:
    resolved = resolve_groups([], None, {"plugins": [Tokens(), Late()]})
    (spec,) = resolved.groups["default"]
    assert "tokens==1" in spec.image.pip
    assert resolved.options.worker.executor == "process"
    again = resolve_groups([spec], Options(worker=resolved.options.worker), {})
    assert again.groups == resolved.groups


def _group(**fields: Any) -> Spec:
    return Spec(resources={"CPU": 1}, **fields)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([Torch()], [sky.plugins.jax()]),
        ([Torch()], [Torch(restarts=3)]),
        ([Torch(backend="gloo")], [Torch()]),
        ([Torch()], []),
    ],
)
def test_groups_with_different_collectives_are_refused(one: list[Any], other: list[Any]) -> None:
    """The terms of the first group would hold for all, and members would wait for each other in different ways."""
    for given in ((one, other), (other, one)):
        first, second = (_group(plugins=[*plugins, sky.plugins.sklearn(version="1.9")]) for plugins in given)
        with pytest.raises(sky.SpecError, match=r"^Plugin '(torch|jax)' differs between the specs of the pool, whose"):
            resolve_groups((), None, {"groups": {"a": first, "b": second}})
    resolve_groups((), None, {"groups": {"a": _group(plugins=[Torch(), Tokens()]), "b": _group(plugins=[Torch()])}})


@pytest.mark.parametrize("plugin", [Torch(), sky.plugins.jax(), sky.plugins.accelerate()])
def test_collective_of_nodes_with_and_without_gpus_is_refused(plugin: Any) -> None:
    gpu, cpu = Spec(provider="aws", accelerator="A100"), Spec(provider="aws", vcpus=4)

    def resolve(*plugins: Any) -> Any:
        groups = {"a": replace(gpu, plugins=plugins), "b": replace(cpu, plugins=plugins)}
        return resolve_groups((), None, {"groups": groups})

    with pytest.raises(sky.SpecError, match=r"^Only some specs of the pool have an accelerator, but with plugin '"):
        resolve(plugin)
    resolve(Torch(backend="gloo"))
    alternatives = [replace(each, plugins=(plugin,)) for each in (gpu, cpu)]
    resolve_groups(alternatives, None, {})


def test_steps_are_those_of_all_plugins() -> None:
    spec = Spec(plugins=[Tokens(), Early()])
    assert steps_of(spec.plugins, spec) == (PluginStep("tokens", 'mkdir -p "$HOME/tokens"'),)
