"""Rented machines in a browser with a real JupyterLab: a fake cloud, whose pods are machines with sshd."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from skyward.bootstrap import PHASES
from tests.cloud.conftest import runpod, runpod_machines
from tests.fakes.runpod import KEY, FakeRunPod
from tests.ui.lab import Lab

__all__ = ["runpod", "runpod_machines"]

pytestmark = [pytest.mark.ui, pytest.mark.timeout(300)]

TABLE = '[providers.pods]\ntype = "runpod"\nendpoint = "{url}"\n'

START = """import os
for name in list(os.environ):
    if name.startswith(("PIP_", "UV_", "AWS_", "GOOGLE_", "KUBE", "RUNPOD_", "VAST_", "VERDA_", "LAMBDA_", "HYPERST")):
        del os.environ[name]
os.environ.update({variables!r})
%load_ext skyward"""
"""Code that gives the kernel the credentials and packages of a test only."""

WAITING = """%%sky --noblock --provider pods --gpu RTX_4090 --nodes 1:2
import os, time
while not os.path.exists("/root/go"): time.sleep(0.01)
print("waited")"""

RECORDS = """() => { window.states = new Set(); new MutationObserver(() => {
    for (const state of document.querySelectorAll(
            '[data-section="nodes"] .skyward-State, [data-pool] .skyward-State'))
        window.states.add(state.lastChild.textContent.trim());
}).observe(document.body, {childList: true, subtree: true, characterData: true}); }"""
"""Records the states of pools and nodes in the panel, some of which are visible for a moment only."""

PRICE = "Nodes come from runpod RTX 4090 x1 secure spot at $0.35 per hour each"
LOST = "a node was lost (RunPod ended the pod); replacing it"


@pytest.fixture
def settings(server: tuple[str, Path]) -> Iterator[Path]:
    """The settings file beside the notebook, for one test."""
    path = server[1] / "skyward.toml"
    yield path
    path.unlink(missing_ok=True)


def start(lab: Lab, home: Path, **variables: str) -> None:
    """Load Skyward into a kernel with the credentials and packages of this test only."""
    own = {"HOME": str(home), "SKYWARD_DATA_DIR": str(home / "data"), **variables}
    lab.run(START.format(variables=own))


def test_offers_and_credentials_of_a_cloud_are_shown_before_it_is_used(
    lab: Lab, settings: Path, runpod: FakeRunPod, tmp_path: Path
) -> None:
    settings.write_text(TABLE.format(url=runpod.url))
    start(lab, tmp_path, RUNPOD_API_KEY=KEY)
    outputs = lab.page.locator(".jp-Cell .jp-OutputArea-output")
    lab.run("%sky offers --gpu RTX_4090 --provider pods")
    table = outputs.filter(has_text="price of")
    table.wait_for()
    header, first, *others = table.inner_text().splitlines()
    assert header.split() == ["provider", "type", "accelerator", "market", "$/hour", "price", "of"]
    assert re.fullmatch(r"runpod +RTX 4090 x1 secure +RTX_4090 +spot +\$0\.35 +now", first.strip())
    assert len(others) == 7
    height = table.locator("pre").evaluate("pre => pre.clientHeight / parseFloat(getComputedStyle(pre).lineHeight)")
    assert height < 10, "no line is wrapped"

    lab.run("%sky doctor\n%sky costs")
    outputs.filter(has_text="pods: credentials in environment variable RUNPOD_API_KEY").wait_for()
    outputs.filter(has_text="ok: may list offers").wait_for()
    outputs.filter(has_text="No machine has cost anything in 7 days.").wait_for()
    assert KEY not in "".join(outputs.all_inner_texts())

    lab.command("skyward:new-pool")
    lab.panel.get_by_label("name", exact=True).wait_for()
    lab.panel.get_by_label("provider", exact=True).select_option("pods")
    lab.panel.get_by_label("gpu", exact=True).fill("RTX_4090")
    lab.panel.get_by_label("nodes", exact=True).fill("1:2")
    price = lab.panel.locator(".skyward-Price")
    price.get_by_text("$0.35/h \N{EN DASH} $0.70/h").wait_for()
    offer = price.locator(".skyward-Price-offer").first
    assert offer.inner_text() == "$0.35/h each · runpod RTX 4090 x1 secure spot · RTX_4090"
    assert offer.evaluate("line => line.scrollWidth <= line.clientWidth"), "the market is not cut off"
    lab.see("cloud-form")
    assert runpod.pods == {}


def test_cell_without_credentials_says_how_to_give_them_and_runs_nothing(
    lab: Lab, settings: Path, tmp_path: Path
) -> None:
    settings.unlink(missing_ok=True)
    start(lab, tmp_path)
    lab.run("%%sky --gpu A100\nopen('ran', 'w').close()\nprint('it ran')")
    error = lab.page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]')
    error.filter(has_text="No provider has credentials, so no machine can be rented.").wait_for()
    assert "runpod: set RUNPOD_API_KEY, or give `sky.RunPod(api_key=...)`;" in error.inner_text().splitlines()
    assert lab.page.locator(".jp-OutputArea-output", has_text="it ran").count() == 0
    assert not (settings.parent / "ran").exists()
    lab.panel.get_by_text("No pools yet.").wait_for()
    lab.command("skyward:new-pool")
    lab.panel.get_by_label("gpu", exact=True).fill("A100")
    wrong = lab.panel.locator(".skyward-Form-wrong", has_text="No provider has credentials")
    wrong.wait_for()
    assert len(wrong.inner_text().splitlines()) > 4, "a line for each provider"
    lab.see("cloud-no-credentials")


def test_pods_are_rented_reclaimed_replaced_and_given_back(
    lab: Lab, settings: Path, runpod_machines: FakeRunPod, tmp_path: Path
) -> None:
    cloud = runpod_machines
    settings.write_text(TABLE.format(url=cloud.url))
    packages = {name: os.environ[name] for name in ("PIP_FIND_LINKS", "PIP_NO_INDEX")}
    start(lab, tmp_path, RUNPOD_API_KEY=KEY, **packages)
    outputs = lab.page.locator(".jp-Cell .jp-OutputArea-output")
    tasks, nodes = lab.section("tasks"), lab.section("nodes")
    lab.page.evaluate(RECORDS)
    lab.run("%%sky --provider pods --gpu RTX_4090 --nodes 1:2\nimport socket\nprint('on', socket.gethostname())",
            wait=False)  # fmt: skip  # as the cell
    outputs.filter(has_text=PRICE).wait_for()
    lab.see("cloud-booting")
    outputs.filter(has_text=re.compile(r"Pool 'default': 1 node ready in")).wait_for()
    outputs.filter(has_text=re.compile(r"^on sky")).wait_for()
    lab.until_idle()
    seen = set(lab.page.evaluate("[...window.states]"))
    assert "starting" in seen, f"the pool is shown while it opens: {seen}"
    assert seen & set(PHASES), f"a phase of the start is shown, of those that take long enough: {seen}"
    lab.pool().get_by_text("1 of 1\N{EN DASH}2 nodes").wait_for()
    lab.pool().get_by_text("$0.35/h").wait_for()
    lab.pool().get_by_text(re.compile(r"\$0\.\d*[1-9]\d* spent")).wait_for()
    lab.page.locator(".skyward-Status", has_text="1 node · $0.35/h").wait_for()

    lab.run(WAITING)
    lab.run(WAITING)
    lab.section("decisions").get_by_text("1 → 2").wait_for()
    lab.pool().get_by_text("2 of 1\N{EN DASH}2 nodes").wait_for()
    lab.pool().get_by_text("$0.70/h").wait_for()
    tasks.get_by_text("node 1").wait_for()
    lab.see("cloud-scaled")

    first, second = cloud.pods
    cloud.reclaim(second)
    lab.section("decisions").get_by_text(LOST).wait_for()
    outputs.filter(has_text="Pool 'default': node 1 was lost: RunPod ended the pod; replacing it").wait_for()
    nodes.locator(".skyward-Node", has_text=re.compile("requested|connecting|deps|worker")).wait_for()
    lab.see("cloud-lost")
    lab.until(lambda: len(cloud.pods.keys() - {first, second}) == 1, "another pod")
    lab.pool().get_by_text("2 of 1\N{EN DASH}2 nodes").wait_for()
    tasks.get_by_text("node 1").wait_for()
    for pod in cloud.pods:
        Path(f"/proc/{cloud.machine(pod).pids()[0]}/root/root/go").touch()
    tasks.get_by_text("done").nth(2).wait_for()
    lab.see("cloud-replaced")

    lab.press("Stop pool default")
    closed = lab.panel.get_by_text(re.compile(r"Pool 'default' is closed \(\$0\.\d+ spent\)\."))
    closed.wait_for()
    assert cloud.pods == {}
    lab.run("%sky costs")
    bill = outputs.and_(lab.page.locator("[data-mime-type$=stdout]")).filter(has_text="machines of")
    bill.wait_for()
    [spent] = re.findall(r"all +(\$[\d.]+)", bill.inner_text())
    assert f"({spent} spent)" in closed.inner_text()
    assert re.search(r"runpod RTX 4090 x1 secure spot +3 ", bill.inner_text())
    lab.see("cloud-bill")
