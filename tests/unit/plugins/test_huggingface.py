"""The plugin for the Hugging Face Hub: its step in a real shell and its part on nodes, with a stand-in for `hf`."""

import re
import sys

import pytest

import skyward as sky
from skyward.errors import NodeStartError
from skyward.plugins.nodes.huggingface_node import HuggingFaceOnNode
from skyward.specs.plugin import PluginStep
from skyward.task.instance import InstanceInfo
from skyward.values.validation import Secret
from tests.unit.plugins.stand_ins import Machine

pytestmark = pytest.mark.unit

INFO = InstanceInfo(node=0, total_nodes=1)
TOKEN = "hf_DoNotShowThis"


def hub(**given: object) -> PluginStep:
    (step,) = sky.plugins.huggingface(**given).steps(sky.Spec())  # type: ignore[arg-type]  # whatever it takes
    return step


def test_public_repositories_are_fetched_by_the_step(machine: Machine) -> None:
    cache = machine.folder / "it's a cache"
    step = hub(models=["org/model", "tiny"], datasets=["org/data"], cache=str(cache))
    for _ in range(2):
        assert machine.run(step) == (0, f"{cache}/hub/org/data")
    fetched = ["hf download --repo-type model org/model", "hf download --repo-type model tiny"]
    used = f"with token none in {cache}"
    once = [fetched[0], used, fetched[1], used, "hf download --repo-type dataset org/data", used]
    assert machine.calls == once * 2


def test_cache_below_the_home(machine: Machine) -> None:
    assert machine.run(hub(models=["tiny"], cache="~/hub of $USER"))[0] == 0
    home = machine.folder / "home"
    assert f"with token none in {home}/hub of $USER" in machine.calls
    assert HuggingFaceOnNode(None, "~/hub", []).environment(INFO, 0) == {"HF_HOME": f"{home}/hub"}


def test_variables_of_the_user_win(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, what is fetched would not be where tasks look for it."""
    mine = str(machine.folder / "mine")
    public = sky.plugins.huggingface(models=["tiny"], cache=str(machine.folder / "cache"))
    (step,) = public.steps(sky.Spec(image=sky.Image(env={"HF_HOME": mine})))
    assert "HF_HOME=" not in step.commands
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("HF_HOME", mine)
    monkeypatch.setenv("HF_TOKEN", "hf_Mine")
    gated = sky.plugins.huggingface(models=["tiny"], token=TOKEN, cache=str(machine.folder / "cache"))
    with HuggingFaceOnNode(**gated.settings()).around_process(INFO):
        pass
    assert machine.calls[-1] == f"with token hf_Mine in {mine}"
    monkeypatch.setenv("SKYWARD_POOL", "another")
    machine.refuse("Error: hf_Mine is not a token\n")
    node = HuggingFaceOnNode(**gated.settings())
    with pytest.raises(NodeStartError, match=r"\*\*\* is not a token"), node.around_process(INFO):
        pass


NOT_FOUND = """\
Error: Model 'org/gated' not found.
If the repo is private, make sure you are authenticated and your token has the required permissions.
If the repo does not exist, create it with: hf repos create org/gated
"""


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (NOT_FOUND, "Model 'org/gated' not found."),
        ("Fetching 2 files:  50%\rFetching 2 files:  50%\nNo space left on device\n\n", "No space left on device"),
    ],
)
def test_fetch_that_fails_ends_with_the_reason(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, said: str, reason: str
) -> None:
    machine.refuse(said)
    step = hub(models=["org/gated"], cache=str(machine.folder))
    assert machine.run(step) == (1, f"the model org/gated could not be fetched from the Hub: {reason}")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    node = HuggingFaceOnNode(Secret(TOKEN), None, [["model", "org/gated"]])
    message = re.escape(f"The model org/gated could not be fetched from the Hub: {reason}")
    with pytest.raises(NodeStartError, match=message), node.around_process(INFO):
        pass


def test_fetch_without_the_command(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.folder / "bin" / "hf").unlink()
    message = (
        "fetching from the Hugging Face Hub needs the command hf of huggingface_hub, which is not in the environment"
    )
    assert machine.run(hub(models=["tiny"])) == (1, message)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    node = HuggingFaceOnNode(Secret(TOKEN), None, [["model", "tiny"]])
    with pytest.raises(NodeStartError, match="needs the command `hf` on this node"), node.around_process(INFO):
        pass


def test_repositories_that_need_the_token_are_fetched_once_for_each_pool(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    cache = machine.folder / "cache"
    plugin = sky.plugins.huggingface(models=["org/gated"], datasets=["org/data"], token=TOKEN, cache=str(cache))
    assert plugin.steps(sky.Spec()) == ()
    for _ in range(2):
        with HuggingFaceOnNode(**plugin.settings()).around_process(INFO):
            pass
    used = f"with token {TOKEN} in {cache}"
    model, data = (f"hf download --quiet --repo-type {each}" for each in ("model org/gated", "dataset org/data"))
    assert machine.calls == [model, used, data, used]
    monkeypatch.setenv("SKYWARD_POOL", "train-2")
    with HuggingFaceOnNode(**plugin.settings()).around_process(INFO):
        pass
    assert machine.calls == [model, used, data, used] * 2


def test_token_is_in_the_environment_of_processes_only(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    machine.refuse(f"Error: {TOKEN} is not a token\n")
    plugin = sky.plugins.huggingface(models=["org/gated"], token=TOKEN)
    spec = sky.Spec(plugins=[plugin])
    node = HuggingFaceOnNode(**plugin.settings())
    message = re.escape("could not be fetched from the Hub: *** is not a token")
    with pytest.raises(NodeStartError, match=message) as failed, node.around_process(INFO):
        pass
    shown = [repr(plugin), repr(spec), repr(plugin.settings()), repr(plugin.steps(spec)), repr(failed.value)]
    image = plugin.image(sky.Image(), sky.Spec(provider="aws"))
    shown += [*image.pip, *image.env.values()]
    shown += [call for call in machine.calls if call.startswith("hf ")]
    assert len(shown) == 7
    assert not [each for each in shown if TOKEN in each]
    found = node.environment(INFO, 0)
    assert found == {"HF_TOKEN": TOKEN}
    assert type(found["HF_TOKEN"]) is str
