"""Settings of AWS, its credentials without a request, and errors by code."""

import json
from pathlib import Path

import pytest

import skyward as sky
from skyward_providers.aws_account.failures import CallError, explained, is_unknown, refusal_of

pytestmark = pytest.mark.unit

NONE = {"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in NONE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("skyward_providers.aws_account.settings._on_ec2", lambda: False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"region": "Frankfurt"}, "region must be a region of AWS, such as 'us-east-1', but got 'Frankfurt'"),
        ({"region": "us-weast-9"}, "got 'us-weast-9'; did you mean 'us-west-2' or"),
        ({"region": "us-gov-west-1"}, "'us-gov-west-1' is in a part of AWS with accounts and prices of its own"),
        ({"regions": ["us-east-1", "cn-north-1"]}, "'cn-north-1' is in a part of AWS"),
        ({"regions": ["us-east-1", "eu-west-8"]}, "got 'eu-west-8'; did you mean 'eu-west-"),
        ({"regions": "us-east-1"}, r"write `regions=\['us-east-1'\]`"),
        ({"regions": ["us-east-1", "eu-west-1"], "ami": "ami-1"}, "ami belongs to one region"),
        ({"regions": ["us-east-1", "eu-west-1"], "subnet_id": "subnet-1"}, "subnet_id belongs to one region"),
        ({"allocation_strategy": "cheapest"}, "allocation_strategy must be one of"),
        ({"caller_cidr": "me"}, "caller_cidr must be a range of addresses"),
        ({"exclude_burstable": 1}, "exclude_burstable must be bool"),
        ({"request_timeout": 0}, "request_timeout must be a positive number"),
        ({"username": 3}, "username must be str"),
    ],
)
def test_settings_are_checked(fields: dict[str, object], words: str) -> None:
    with pytest.raises(sky.SpecError, match=words):
        sky.AWS(**fields)  # type: ignore[arg-type]  # that is the point


def test_regions_are_those_to_choose_among() -> None:
    assert sky.AWS().all_regions == ("us-east-1",)
    assert sky.AWS(regions=["eu-west-1", "eu-west-1", "us-west-2"]).all_regions == ("eu-west-1", "us-west-2")


@pytest.mark.usefixtures("no_credentials")
def test_missing_credentials_say_how_to_give_them() -> None:
    source = sky.AWS().credentials()
    assert source.found == ""
    assert "aws configure" in source.how


@pytest.mark.usefixtures("no_credentials")
def test_credentials_are_found_where_the_sdk_finds_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = "wJalrXUtnFEMI"
    file = tmp_path / "credentials"
    file.write_text(f"[default]\naws_access_key_id = AKIA\naws_secret_access_key = {secret}\n[other]\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    assert sky.AWS().credentials().found == "the AWS credentials file"
    assert sky.AWS(profile="other").credentials().found == ""
    assert sky.AWS(profile="nobody").credentials().found == ""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    found = sky.AWS().credentials()
    assert found.found == "environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    assert secret not in repr(found)


@pytest.mark.usefixtures("no_credentials")
def test_process_for_credentials_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = touch {tmp_path}/ran\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    assert sky.AWS().credentials().found == "the `credential_process` of the AWS configuration"
    assert not (tmp_path / "ran").exists()


def test_missing_sdk_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward_providers.aws_account.settings.find_spec", lambda name: None)
    with pytest.raises(sky.ProviderMissingError, match=r"pip install 'skyward-jupyter\[aws\]'"):
        sky.AWS().create_provider()
    assert "pip install" in sky.AWS().credentials().how


def test_policy_is_json_without_wildcards_for_changes() -> None:
    policy = json.loads(sky.AWS().policy)
    assert policy["Version"] == "2012-10-17"
    for statement in policy["Statement"]:
        assert "Condition" in statement or statement["Sid"] in ("Look", "FindImages", "LaunchWith")


@pytest.mark.parametrize(
    ("code", "status", "unknown"),
    [
        ("InternalError", 500, True),
        ("Unavailable", 503, True),
        ("IdempotentParameterMismatch", 400, True),
        ("InsufficientInstanceCapacity", 500, False),
        ("RequestLimitExceeded", 503, False),
        ("InvalidParameterValue", 400, False),
    ],
)
def test_outcome_is_unknown_after_errors_of_the_server_only(code: str, status: int, unknown: bool) -> None:
    assert is_unknown(CallError("CreateFleet", code, status, "")) is unknown


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", sky.NoCapacityError),
        ("InsufficientVolumeCapacity", sky.NoCapacityError),
        ("InsufficientCapacityOnOutpost", sky.NoCapacityError),
        ("LimitExceededException", sky.QuotaError),
        ("ServiceQuotaExceededException", sky.QuotaError),
        ("SecurityGroupLimitExceeded", sky.QuotaError),
        ("RequestLimitExceeded", sky.RateLimitError),
    ],
)
def test_codes_of_one_kind_are_known_by_their_form(code: str, kind: type[sky.SkywardError]) -> None:
    assert type(explained(CallError("CreateFleet", code, 400, ""))) is kind


def test_messages_are_one_sentence_without_encoded_reasons() -> None:
    detail = (
        "You have requested more vCPU capacity than your current vCPU limit of 32 allows. Please visit http://x\nMore"
    )
    text = str(explained(CallError("CreateFleet", "VcpuLimitExceeded", 400, detail), "p5.48xlarge"))
    assert "limit of 32 allows" in text
    assert "Please visit" not in text
    assert len(str(explained(CallError("X", "Odd", 400, "word " * 500)))) < 300


def test_fleet_without_a_reason_is_no_capacity() -> None:
    assert isinstance(refusal_of([], "c6i.large"), sky.NoCapacityError)
