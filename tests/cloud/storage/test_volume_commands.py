"""The texts of `skyward volume`: in the words of the command line."""

from pathlib import Path

import pytest

import skyward as sky
from skyward.cli import volumes
from tests.fakes.storage import ACCESS_KEY, SECRET_KEY, FakeStore


@pytest.fixture
def lab(store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    """The store as `lab://` of skyward.toml."""
    table = f'[storages.lab]\nendpoint = "{store.url}"\npath_style = true\n'
    (tmp_path / "skyward.toml").write_text(f'{table}access_key = "{ACCESS_KEY}"\nsecret_key = "{SECRET_KEY}"\n')
    monkeypatch.chdir(tmp_path)
    return store


def test_places_are_named_as_they_were_typed_and_options_as_they_are_on_the_line(lab: FakeStore, bucket: str) -> None:
    place = f"lab://{bucket}/x/y"
    with pytest.raises(sky.StorageError, match=f"^There is no object {place}: check its key, or give -r for all below"):
        volumes.remove(place=place, yes=True)
    with pytest.raises(sky.StorageError, match=f"^There is no object {place}, and none below it: check the key"):
        volumes.remove(place=place, recursive=True, yes=True)
    with pytest.raises(sky.StorageError, match=f"^There is no object {place}, and none below it"):
        volumes.get(place=place)
    for recursive in (True, False):
        with pytest.raises(sky.SpecError, match="names no object: give its key, since the whole bucket is too easily"):
            volumes.remove(place=f"lab://{bucket}/", recursive=recursive, yes=True)


def test_object_that_is_left_out_is_named_in_a_line(
    lab: FakeStore, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("d/", "d/e"):
        lab.client.put_object(Bucket=bucket, Key=key, Body=b"x")
    assert volumes.list_objects(place=f"lab://{bucket}") == 0
    told = capsys.readouterr()
    assert f": lab://{bucket}/d/ is left out with its 1 B: an object whose key ends with a slash only marks" in told.err
    assert "Warning" not in told.err
    assert volumes.remove(place=f"lab://{bucket}/d", recursive=True, yes=True) == 0
    assert "2 objects deleted" in capsys.readouterr().err
    assert lab.keys(bucket) == []
