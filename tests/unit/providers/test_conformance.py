"""The providers that launch machines without a cloud pass the conformance checks, and so does the documented one."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import skyward as sky
from skyward.providers import ProviderConfig
from skyward.providers.conformance import check_provider
from skyward.providers.crashes import check_crashes
from tests.documented_provider import documented_code, documented_provider

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


@pytest.fixture
def clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ProviderConfig]:
    """Return the settings of a provider whose source is written to a module, which other processes import too."""
    for name in ("cloud", "keys"):
        (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))

    def settings(name: str, source: str) -> ProviderConfig:
        (tmp_path / f"{name}.py").write_text(source)
        config: ProviderConfig = import_module(name).Folder(str(tmp_path / "cloud"))
        return config

    return settings


def left_in(folder: Path) -> list[str]:
    return sorted(str(each) for each in folder.rglob("*.json*"))


def test_documented_provider_leaves_nothing_after_crashes(
    clouds: Callable[[str, str], ProviderConfig], tmp_path: Path
) -> None:
    config = clouds("folder_of_the_page", documented_code())
    steps = asyncio.run(check_crashes(config, tmp_path / "keys", left=lambda: [*(tmp_path / "cloud").iterdir()]))
    assert steps >= 6


@pytest.mark.parametrize(
    ("name", "promise", "broken", "error"),
    [
        (
            "tags_later",
            '        return cluster, [self._machine(folder / f"{number}.json") for',
            "        import asyncio\n"
            '        made = [folder / f"{number}.json" for number in range(first, first + count)]\n'
            '        for each in made: each.rename(each.with_suffix(".json.untagged"))\n'
            '        await asyncio.sleep(0)\n'
            '        for each in made: each.with_suffix(".json.untagged").rename(each)\n'
            '        return cluster, [self._machine(folder / f"{number}.json") for',
            "something is left after a client was killed at step",
        ),
        (
            "prepares_once",
            "mkdir(parents=True, exist_ok=True)",
            "mkdir(parents=True)",
            "File exists",
        ),
    ],
)  # fmt: skip  # sources
def test_provider_that_leaks_after_a_crash_does_not_conform(
    clouds: Callable[[str, str], ProviderConfig], tmp_path: Path, name: str, promise: str, broken: str, error: str
) -> None:
    source = documented_code()
    assert promise in source
    source = source.replace(promise, broken).replace(
        'shutil.rmtree(cluster.specific["folder"], ignore_errors=True)', "pass"
    )
    config = clouds(name, source)
    with pytest.raises((AssertionError, FileExistsError), match=error):
        asyncio.run(check_crashes(config, tmp_path / "keys", left=lambda: left_in(tmp_path / "cloud")))
