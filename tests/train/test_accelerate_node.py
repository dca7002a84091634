"""Accelerate and the Trainer of Transformers on nodes: process groups of real processes."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from skyward.plugins.accelerate_config import GROUPS, SETTINGS
from tests.train.member import Half
from tests.train.members import Member, collective, members
from tests.train.tasks import gather, is_grouped, train_model, train_with_trainer
from tests.train.test_torch_node import TORCH

pytestmark = [pytest.mark.train, pytest.mark.timeout(400)]

ACCELERATE: Half = (
    "skyward.plugins.nodes.accelerate_node:AccelerateNode",
    {"variables": {"ACCELERATE_MIXED_PRECISION": "bf16"}},
)


@pytest.fixture(scope="module", params=["alone", "with torch"])
def pair(request: pytest.FixtureRequest) -> Iterator[list[Member]]:
    with members(*([ACCELERATE] if request.param == "alone" else [TORCH, ACCELERATE])) as both:
        yield both


def test_accelerator_has_all_members(pair: list[Member]) -> None:
    alone = pair[0].run(gather)
    assert alone.value == ("DistributedType.NO", 1, [0.0])
    for _ in range(2):
        for answer in collective(pair, gather):
            assert not answer.error
            assert answer.value == ("DistributedType.MULTI_CPU", 2, [0.0, 1.0])
            assert not answer.changed
    assert pair[0].run(is_grouped).value is False
    assert pair[0].run(gather).value == alone.value


def test_accelerator_trains_one_model(pair: list[Member]) -> None:
    first, second = collective(pair, train_model)
    assert not first.error
    assert first.value == second.value
    assert first.value[:2] == ("DistributedDataParallel", "bf16"), "its variables have reached it"


def test_trainer_trains_one_model(pair: list[Member], tmp_path: Path) -> None:
    first, second = collective(pair, train_with_trainer, str(tmp_path))
    assert not first.error
    assert first.value == second.value
    assert first.value[:3] == (2, "DistributedDataParallel", 4)


def test_accelerate_knows_every_variable_of_the_plugin() -> None:
    spec = find_spec("accelerate")
    assert spec is not None
    assert spec.origin is not None
    files = Path(spec.origin).parent.rglob("*.py")
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    names = {setting.variable for setting in SETTINGS.values()}
    for group in GROUPS.values():
        names |= {group.switch, *(setting.variable for setting in group.settings.values())} - {""}
    # Some are composed of a prefix and the rest.
    known = {*re.findall(r'"([A-Z0-9_]+)"', text)}
    prefixes = ("", "PARALLELISM_CONFIG_", "ACCELERATE_DYNAMO_", "FSDP_")
    unknown = {name for name in names if not any(name.removeprefix(prefix) in known for prefix in prefixes)}
    assert not unknown
