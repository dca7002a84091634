"""Pools that name no provider, or several."""

from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.pool.account.clouds import pool_fields
from skyward.pool.quotes import quote
from skyward.specs.paths import field_paths
from tests.cloud.conftest import settings
from tests.fakes.runpod import KEY, FakeRunPod

pytestmark = pytest.mark.cloud

CREDENTIALS = ("RUNPOD_", "AWS_", "VAST_", "VERDA_", "LAMBDA_", "HYPERSTACK_", "GOOGLE_", "CLOUDSDK_", "KUBECONFIG")


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Remove all credentials, and return a home and working directory."""
    import os

    for name in tuple(os.environ):
        if name.startswith(CREDENTIALS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKYWARD_DEFAULTS", "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_accelerators_without_a_provider_take_the_clouds_with_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "a-key")
    fields = pool_fields({"accelerator": sky.accelerators.A100(), "nodes": sky.Nodes(2, 16)})
    assert [each.name for each in fields["provider"]] == ["runpod"]


def test_without_credentials_nothing_runs_and_the_error_says_how_to_give_them() -> None:
    with pytest.raises(sky.CredentialsError) as raised:
        pool_fields({"accelerator": sky.accelerators.A100()})
    assert "No provider has credentials" in str(raised.value)
    assert "runpod: set RUNPOD_API_KEY" in str(raised.value)
    assert "fargate" not in str(raised.value), "it has no accelerators"


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"nodes": sky.Nodes(2), "vcpus": 2},
        {"accelerator": sky.accelerators.A100(), "provider": sky.Local()},
    ],
)
def test_pools_without_accelerators_or_with_a_provider_stay_as_they_are(asked: dict[str, object]) -> None:
    fields = pool_fields(field_paths(asked))
    assert fields.get("provider") == asked.get("provider")


def test_several_providers_are_alternatives() -> None:
    pool = sky.Compute(provider=[sky.RunPod(), sky.Local()], accelerator="A100")
    (specs,) = pool.groups.values()
    assert [spec.provider for spec in specs] == [sky.RunPod(), sky.Local()]
    pool = sky.Compute(provider="runpod, local")
    assert [spec.provider for spec in next(iter(pool.groups.values()))] == ["runpod", "local"]
    with pytest.raises(sky.SpecError, match="provider must be a provider, or several"):
        sky.Compute(provider=[])


def test_this_machine_is_no_alternative_for_accelerators_that_it_lacks(runpod: FakeRunPod) -> None:
    fields: dict[str, Any] = {"provider": [sky.Local(), settings(runpod)], "accelerator": "A100"}
    (group,) = quote(sky.Compute(**fields))
    assert {offer.place.split()[0] for offer in group.offers} == {"runpod"}
    assert {each.provider for each in sky.offers(**fields)} == {"runpod"}
    (alone,) = quote(sky.Compute(provider=sky.Local(), accelerator="A100"))
    assert alone.offers[0].place.startswith("local")
    with pytest.raises(sky.NoOffersError, match="of 1 offer from local, accelerator excludes 1"):
        quote(sky.Compute(provider=[sky.Local(), sky.RunPod()], accelerator="A100"))


def test_pool_says_where_its_nodes_come_from_and_their_price(
    runpod_machines: FakeRunPod, nobody: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (nobody / "skyward.toml").write_text(
        f'[providers.pods]\ntype = "runpod"\napi_key = "{KEY}"\nendpoint = "{runpod_machines.url}"\n'
    )
    fields = pool_fields({"accelerator": sky.accelerators.from_name("RTX_4090")})
    assert fields["provider"] == (settings(runpod_machines),)
    with sky.Compute(**fields, logging=False) as pool:
        assert sky.function(lambda: 7)() >> pool == 7
    told = capsys.readouterr().err
    assert "Nodes come from runpod RTX 4090 x1 secure spot at $0.35 per hour each" in told


def test_cluster_with_credentials_is_used_only_by_name(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nobody / "config").write_text("apiVersion: v1\nkind: Config\ncurrent-context: work\n")
    monkeypatch.setenv("KUBECONFIG", str(nobody / "config"))
    monkeypatch.setenv("RUNPOD_API_KEY", "a-key")
    fields = pool_fields({"accelerator": sky.accelerators.A100()})
    assert [each.name for each in fields["provider"]] == ["runpod"]
    monkeypatch.delenv("RUNPOD_API_KEY")
    with pytest.raises(sky.CredentialsError) as raised:
        pool_fields({"accelerator": sky.accelerators.A100()})
    assert "kubernetes" not in str(raised.value), "credentials for a cluster would not help"


def test_pool_of_a_script_has_the_settings_of_the_table_that_its_provider_names(nobody: Path) -> None:
    (nobody / "skyward.toml").write_text(
        '[providers.runpod]\ncloud_type = "community"\n[providers.pods]\ntype = "runpod"\ncloud_type = "secure"\n'
    )
    pool = sky.Compute(provider="runpod,pods,local", accelerator="A100")
    (specs,) = pool.groups.values()
    wanted = [sky.RunPod(cloud_type="community"), sky.RunPod(cloud_type="secure"), "local"]
    assert [spec.provider for spec in specs] == wanted
    pool = sky.Compute(sky.Spec(provider="pods"))
    assert pool.spec.provider == sky.RunPod(cloud_type="secure")
    with pytest.raises(sky.ProviderMissingError, match="There is no provider 'pod'"):
        sky.Compute(provider="pod")
