"""The volumes of a pool in a browser: a real JupyterLab, real nodes, and moto's object store."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.storage import ACCESS_KEY, SECRET_KEY
from tests.object_store import Bucket, object_store
from tests.ui.lab import Lab

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]

OPEN = """%load_ext skyward
import os
os.environ["SKYWARD_CACHE_DIR"] = {cache!r}
import skyward as sky
store = sky.Storage.minio({endpoint!r}, {access!r}, {secret!r})
data = sky.Volume("lab", "/data", "train", storage=store, mode="copy")
results = sky.Volume("lab", "/results", "results", False, store, "sync")
pool = sky.Compute(name="demo", nodes=2, provider=sky.Local(), volumes=[data, results]).open()

@sky.function
def write(name):
    (sky.volume("/results") / name).write_text("epoch 1")"""


REASON = re.compile(r"^unsaved on node [01]: .*lab")


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    """Bucket with two objects."""
    with object_store(name="lab") as store:
        store.put("train/a.bin", bytes(3 << 20))
        store.put("results/first.txt", "epoch 0")
        yield store


def test_volumes_are_shown_with_what_waits_for_upload(lab: Lab, bucket: Bucket, tmp_path: Path) -> None:
    keys = {"access": ACCESS_KEY, "secret": SECRET_KEY}
    lab.run(OPEN.format(cache=str(tmp_path / "cache"), endpoint=bucket.store.url, **keys))
    section = lab.section("volumes")
    data, results = (section.locator(f'[data-mount="{mount}"]') for mount in ("/data", "/results"))
    data.get_by_role("button", name="/data ready on 2 nodes").wait_for()
    data.get_by_text("s3://lab/train").wait_for()
    data.get_by_text("copy \N{MIDDLE DOT} read-only").wait_for()
    results.get_by_role("button", name="/results ready on 2 nodes").wait_for()
    lab.see("volumes")

    # Nothing can be uploaded to a bucket that is gone.
    bucket.clear()
    bucket.store.client.delete_bucket(Bucket="lab")
    lab.run("write('c.txt') > pool\nsky.watch(pool)")
    results.get_by_text("1 file (7 B) waits for upload").wait_for()
    results.get_by_role("button", name="/results 1 unsaved, 1 ready").click()
    each = results.get_by_role("list", name="Volume /results on each node").get_by_role("listitem")
    results.get_by_text(REASON).first.wait_for()
    each.filter(has_text="unsaved").get_by_text(re.compile("1 file .* waits for upload")).wait_for()
    assert each.count() == 2
    note = lab.page.locator(".skyward-Widget .skyward-VolumeNotes")
    note.get_by_text("/results 1 file (7 B) waits for upload").wait_for()
    lab.run("%sky status demo")
    status = lab.page.locator(".jp-OutputArea-output", has_text="to upload")
    status.get_by_text("1 file, 7 B").wait_for()
    lab.see("volumes-waiting")
    lab.page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    lab.page.locator('body[data-jp-theme-light="false"]').wait_for(state="attached")
    lab.page.locator("#jupyterlab-splash").wait_for(state="detached")
    lab.see("volumes-waiting-dark")
    results.get_by_role("button", name="/results").press("Escape")
    each.first.wait_for(state="detached")

    bucket.store.client.create_bucket(Bucket="lab")
    lab.run("_ = write('d.txt') @ pool")
    results.get_by_role("button", name="/results ready on 2 nodes").wait_for()
    note.wait_for(state="detached")
    assert bucket.get("results/c.txt") == b"epoch 1"
    lab.run("pool.close()")
    section.wait_for(state="detached")
