"""Credentials that the client finds: of the environment, of profiles, of the tools of AWS."""

from pathlib import Path

import pytest

from skyward.errors import CredentialsError
from skyward.transfers.credentials import StoreKeys, found_keys

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def aws_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the files of profiles, in a clean environment."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "DEFAULT_PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def test_environment_comes_first(aws_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (aws_files / "credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert found_keys(of_aws=True, with_role=True) == StoreKeys("k", "s")


def test_profile_that_is_named_comes_before_the_environment(aws_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (aws_files / "credentials").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
        "[work]\naws_access_key_id = c\naws_secret_access_key = 50%d\naws_session_token = t\n"
    )
    assert found_keys(of_aws=False, with_role=False) == StoreKeys("a", "b")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert found_keys(of_aws=False, with_role=False) == StoreKeys("c", "50%d", "t")


def test_profile_with_a_process_is_followed_by_the_tools_of_aws(aws_files: Path) -> None:
    answer = aws_files / "answer"
    answer.write_text('{"Version": 1, "AccessKeyId": "p", "SecretAccessKey": "q", "SessionToken": "r"}')
    (aws_files / "config").write_text(f"[default]\ncredential_process = cat {answer}\n")
    assert found_keys(of_aws=True, with_role=True) == StoreKeys("p", "q", "r")
    (aws_files / "config").write_text("[default]\ncredential_process = false\n")
    with pytest.raises(CredentialsError, match=r"^The profile 'default' of AWS gave no credentials \(\w+\): sign in"):
        found_keys(of_aws=True, with_role=True)


def test_without_credentials_the_error_says_how_to_give_them(aws_files: Path) -> None:
    for of_aws in (True, False):
        with pytest.raises(
            CredentialsError, match="give the storage an access_key and a secret_key, or set AWS_ACCESS"
        ):
            found_keys(of_aws=of_aws, with_role=True)
    assert found_keys(of_aws=True, with_role=False) == StoreKeys()
    (aws_files / "config").write_text("no file of profiles")
    with pytest.raises(CredentialsError, match=r"config cannot be read as a file of profiles of AWS: fix it"):
        found_keys(of_aws=True, with_role=False)
