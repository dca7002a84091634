"""The providers that launch machines without a cloud pass the conformance checks, and so does the documented one."""

import asyncio
from pathlib import Path

import pytest

import skyward as sky
from skyward.providers.conformance import check_provider
from tests.documented_provider import documented_provider

pytestmark = pytest.mark.unit


def test_documented_provider_conforms(tmp_path: Path) -> None:
    asyncio.run(check_provider(documented_provider(str(tmp_path)), tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("outlives", [False, True])
def test_local_provider_conforms(outlives: bool, tmp_path: Path) -> None:
    asyncio.run(check_provider(sky.Local(outlives=outlives), tmp_path))


def test_provider_that_forgets_a_machine_does_not_conform(tmp_path: Path) -> None:
    config = documented_provider(str(tmp_path))

    async def nothing(*_: object) -> list[object]:
        return []

    provider = type(config.create_provider())
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError):
        patch.setattr(provider, "find", nothing)
        asyncio.run(check_provider(config, tmp_path))
