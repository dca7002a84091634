"""Arguments of the plugins for GPUs and for the Hugging Face Hub: what they accept, and what they make of it."""

from collections.abc import Callable
from typing import Any

import pytest

import skyward as sky
from skyward.specs import Image, Spec, Worker
from skyward.specs.plugin import Plugin, Requires
from skyward.specs.resolve import resolve_groups
from skyward.values.validation import Secret

pytestmark = pytest.mark.unit

TOKEN = "hf_secret token"


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (sky.plugins.cuml, {"cuda": "12"}, "cuda must be one of 'auto', 'cu12', 'cu13', but got '12'"),
        (sky.plugins.cuml, {"version": 26}, "version must be a version, such as .*, but got 26"),
        (sky.plugins.mig, {"profile": 19}, "profile must be str, as in `profile='1g.10gb'`, but got 19"),
        (sky.plugins.mig, {"profile": "1g.10gb'; reboot"}, "profile must be the name of a MIG profile"),
        (sky.plugins.mps, {"active_thread_percentage": 0}, "active_thread_percentage must be a positive number"),
        (sky.plugins.mps, {"active_thread_percentage": 101}, "active_thread_percentage must be at most 100"),
        (sky.plugins.mps, {"pinned_memory_limit": 2}, "pinned_memory_limit must be str"),
        (sky.plugins.mps, {"pinned_memory_limit": "2G"}, "memory for each GPU, such as '0=2G,1=512M', but got '2G'"),
        (sky.plugins.huggingface, {"models": "org/model"}, r"write `models=\['org/model'\]`"),
        (sky.plugins.huggingface, {"datasets": ["--token"]}, "datasets must have names of repositories"),
        (sky.plugins.huggingface, {"models": ["a/b/c"]}, "such as 'org/name', but it has 'a/b/c'"),
        (sky.plugins.huggingface, {"models": ["$(reboot)"]}, "models must have names of repositories"),
        (sky.plugins.huggingface, {"cache": "hub"}, "cache must be an absolute path, or begin with '~/'"),
        (sky.plugins.huggingface, {"cache": 1}, "cache must be str"),
        (sky.plugins.huggingface, {"token": 1}, "such as 'hf_...', but it is int"),
        (sky.plugins.huggingface, {"token": TOKEN}, "but it is a string with blanks or other characters"),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[..., object], given: dict[str, Any], message: str) -> None:
    with pytest.raises(sky.SpecError, match=message) as refused:
        make(**given)
    assert TOKEN not in str(refused.value)


def resolved_image(plugin: Plugin, accelerator: Any) -> Image:
    given = {"plugins": [plugin], "accelerator": accelerator, "provider": "aws"}
    groups = resolve_groups([], None, given).groups
    return groups["default"][0].image


@pytest.mark.parametrize(
    ("plugin", "accelerator", "message"),
    [
        (sky.plugins.mig(profile="1g.10gb"), "T4", "needs a GPU with MIG, such as A100, .*, but accelerator is T4"),
        (sky.plugins.mig(profile="1g.5gb"), "A100:4", "profiles of A100-80GB are 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb"),
        (sky.plugins.mig(profile="3g.20gb"), "H200", "the profiles of H200-141GB are 1g.18gb"),
        (sky.plugins.mig(profile="1g.10gb"), None, "Plugin 'mig' needs an accelerator"),
        (sky.plugins.mps(), None, "Plugin 'mps' needs an accelerator"),
        (sky.plugins.cuml(), None, "Plugin 'cuml' needs an accelerator"),
        (sky.plugins.cuml(), "MI300X", "needs an NVIDIA GPU from Volta on, but accelerator is MI300X"),
        (sky.plugins.cuml(), "P100", "needs an NVIDIA GPU from Volta on"),
        (sky.plugins.cuml(cuda="cu13"), "V100", "the last version for V100-16GB is CUDA 12.9: use `cuda='cu12'`"),
    ],
)
def test_accelerators_that_do_not_fit_are_refused(plugin: Plugin, accelerator: str | None, message: str) -> None:
    with pytest.raises(sky.SpecError, match=message):
        resolved_image(plugin, accelerator)


@pytest.mark.parametrize(
    ("profile", "accelerator"),
    [
        ("1g.10gb", "A100"),
        ("1g.10gb+me", "A100"),
        ("1g.5gb", "A100-40GB"),
        ("4g.96gb+gfx", "RTX_PRO_6000"),
        ("1g.6gb", sky.accelerators.Custom("A30", memory="24GB")),
        ("1g.23gb", "GB200"),
    ],
)
def test_profiles_that_fit_or_that_the_catalogue_does_not_know_are_accepted(profile: str, accelerator: Any) -> None:
    assert resolved_image(sky.plugins.mig(profile=profile), accelerator) == Image()


@pytest.mark.parametrize(
    ("profile", "accelerator", "most"),
    [("1g.10gb", "A100", 7), ("3g.40gb", "A100:2", 4), ("1g.10gb+me", "H100", 1), ("2g.48gb-me", "RTX_PRO_6000:4", 8)],
)
def test_each_process_needs_an_instance(profile: str, accelerator: str, most: int) -> None:
    given = {"plugins": [sky.plugins.mig(profile=profile)], "accelerator": accelerator}
    resolve_groups([], None, {**given, "worker": Worker(concurrency=most)})
    message = f"has at most {most} MIG instances of profile .*, but `worker=` has concurrency={most + 1}: lower it"
    with pytest.raises(sky.SpecError, match=message):
        resolve_groups([], None, {**given, "worker": Worker(concurrency=most + 1)})


def test_mig_and_mps_exclude_each_other_and_need_processes() -> None:
    mig, mps = sky.plugins.mig(profile="1g.10gb"), sky.plugins.mps()
    for plugin in (mig, mps):
        assert plugin.requires() == Requires(executor="process", accelerator=True)
        with pytest.raises(sky.SpecError, match="which exclude each other"):
            Spec(plugins=[plugin, mps if plugin is mig else mig])
        threads = {"plugins": [plugin], "accelerator": "A100", "worker": Worker(executor="thread")}
        with pytest.raises(sky.SpecError, match="needs a process for each task"):
            resolve_groups([], None, threads)


@pytest.mark.parametrize(
    ("plugin", "accelerator", "packages"),
    [
        (sky.plugins.cuml(), "A100", ("cuml-cu12", "scikit-learn")),
        (sky.plugins.cuml(cuda="cu13", version="26.10.0"), "A100", ("cuml-cu13==26.10.0", "scikit-learn")),
        (sky.plugins.cuml(version=">=26.8"), "V100", ("cuml-cu12>=26.8", "scikit-learn")),
        (sky.plugins.huggingface(), None, ("huggingface_hub>=0.34",)),
    ],
)
def test_environment_has_the_packages(plugin: Plugin, accelerator: str | None, packages: tuple[str, ...]) -> None:
    assert resolved_image(plugin, accelerator).pip == packages


def test_local_nodes_have_the_packages_of_this_process() -> None:
    for plugin in (sky.plugins.cuml(), sky.plugins.huggingface()):
        given = {"plugins": [plugin], "accelerator": "A100"}
        assert resolve_groups([], None, given).groups["default"][0].image == Image()


def test_token_is_a_secret() -> None:
    plugin = sky.plugins.huggingface(token="hf_abc", models=("org/a",), datasets=["b"])
    assert isinstance(plugin.token, Secret)
    assert plugin == sky.plugins.huggingface(token=Secret("hf_abc"), models=["org/a"], datasets=("b",))
    assert plugin != sky.plugins.huggingface(token="hf_abd", models=["org/a"], datasets=["b"])
    settings = plugin.settings()
    assert isinstance(settings["token"], Secret)
    assert settings["repositories"] == [["model", "org/a"], ["dataset", "b"]]
    assert sky.plugins.huggingface(models=["org/a"]).settings()["repositories"] == []
