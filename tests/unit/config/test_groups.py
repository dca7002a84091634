"""Groups of nodes in the user's files: inherited fields, own fields, and errors."""

import pytest

from skyward.accelerators import parse_accelerator
from skyward.config.pools import configured_values
from skyward.errors import SpecError
from skyward.pool.compute import Compute
from skyward.specs import Nodes, Spec
from tests.unit.config.conftest import Write

pytestmark = pytest.mark.unit


GROUPS = """
[defaults]
image.pip = ["numpy"]
region = "eu"
[pools.mixed]
budget = 5
ttl = 90
[pools.mixed.groups.cpu]
vcpus = 4
nodes = "1:8"
[[pools.mixed.groups.gpu]]
accelerator = "A100"
nodes = "0:2"
[[pools.mixed.groups.gpu]]
accelerator = "H100"
nodes = "0:2"
region = "us"
image.pip = ["torch"]
"""


def test_groups_and_their_alternatives_are_read(project: Write) -> None:
    project(GROUPS)
    pool = Compute(name="mixed")
    (cpu,), (first, second) = pool.groups["cpu"], pool.groups["gpu"]
    assert (cpu.vcpus, cpu.nodes, cpu.ttl, cpu.region, cpu.image.pip) == (4, Nodes(1, 8), 90, "eu", ("numpy",))
    assert (first.accelerator, first.region) == (parse_accelerator("A100"), "eu")
    assert (second.accelerator, second.region, second.image.pip) == (parse_accelerator("H100"), "us", ("torch",))
    assert pool.options.budget == 5
    assert set(configured_values("mixed")) == {"budget", "groups"}
    assert Compute(name="mixed", groups={"one": Spec(vcpus=1)}).groups["one"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "[pools.x.groups.cpu]\nvcpus = 4\nmemory = 2",
            "skyward.toml:3, pools.x.groups.cpu.memory: a group has no such field; did you mean 'memory_gb'?",
        ),
        (
            "[pools.x.groups.cpu]\nvcpus = 4\nbudget = 2",
            "skyward.toml:3, pools.x.groups.cpu.budget: it applies to the whole pool; write it above the groups.",
        ),
        (
            "[[pools.x.groups.gpu]]\nvcpus = 4\n[[pools.x.groups.gpu]]\nvcpus = -1",
            "skyward.toml:4, pools.x.groups.gpu[1].vcpus: vcpus must be",
        ),
        (
            "[pools.x.groups.cpu]\nnodes = 4",
            "skyward.toml:1, pools.x.groups: groups['cpu'] has no resources, so no task can request it",
        ),
        ("[pools.x]\ngroups = 3", "skyward.toml:2, pools.x.groups: it must be a table, with `[pools.x.groups]` above"),
        ("[pools.x]\ngroups.cpu = 3", "pools.x.groups.cpu: it must be a table, with `[pools.x.groups.cpu]` above"),
        (
            "[pools.x]\nplugins = ['joblob']",
            "skyward.toml:2, pools.x.plugins: There is no plugin 'joblob'; did you mean 'joblib'?",
        ),
        (
            "[pools.x.plugins]\nmig = true",
            "Plugin 'mig' needs 'profile': give it in code, `sky.plugins.mig(profile=...)`, or in skyward.toml, "
            "`plugins = {mig = {profile = ...}}`.",
        ),
        (
            "[pools.x.image]\nmetrics = []",
            "pools.x.image.metrics: metrics cannot be chosen yet; `metrics_interval`",
        ),
    ],
)
def test_errors_in_groups_have_their_location(project: Write, lines: str, message: str) -> None:
    project(lines)
    with pytest.raises(SpecError) as caught:
        configured_values("x")
    assert message in str(caught.value)
