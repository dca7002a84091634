"""The side panel in a browser, against a real JupyterLab with real kernels and real nodes."""

import contextlib
import re
import sys
from pathlib import Path

import psutil
import pytest

from tests.machines.machine import Network
from tests.ui.lab import Lab

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]


SETTINGS = """[providers.cloud]
type = "local"
hourly_price = 1.5

[pools.dim]
provider = "cloud"
nodes = "2:3"
provision_retry_delay = 200
"""
"""Configuration with a provider that has a price, and a pool of it."""

FAILING = """import os, sys, time
node, go = os.environ.get("SKYWARD_NODE_ID"), os.path.join(os.path.dirname(__file__), "go")
if node in ("0", "1"):
    time.sleep(1.2)
if node == "2":
    while not os.path.exists(go): time.sleep(0.01)
    print(*(f"line {number} of many" for number in range(60)), sep="\\n", file=sys.stderr, flush=True)
    os._exit(3)
"""
"""Source of a `sitecustomize` that delays the start of workers, and fails that of node 2 once the file `go` exists."""


REFUSING = """import os, sys
if os.environ.get("SKYWARD_NODE_ID"):
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)
"""
"""Source of a `sitecustomize` that fails the start of every worker."""

DEAF = """for comm in get_ipython().magics_manager.registry["SkyMagics"].bridge._clients.values():
    comm.on_msg(lambda message: None)"""
"""Code that makes the kernel ignore the panel's commands."""

MANY = f"""import sys, threading, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from benchmarks.panel import Pool
from skyward_kernel import resident
%load_ext skyward
pool = Pool()
resident()._pools["default"] = type("Resident", (), {{"compute": pool, "asked": {{}}}})()
def go_on():
    while True: time.sleep(0.1); pool.go_on(0.1)
threading.Thread(target=go_on, daemon=True).start()"""
"""Code that makes a fake pool of a thousand nodes, whose tasks end all the time."""


OPEN = """%load_ext skyward
import skyward as sky
from skyward_kernel.pools import resident
hosts = sky.SSH(hosts=[{host!r}], username="root", client_keys={key!r}, known_hosts={known!r}, config="none",
                python={python!r})
_ = resident().get_or_open("train", {{"provider": hosts, "nodes": sky.Nodes(1), "ttl": 300}})"""

TRAIN = """%%sky --pool train --noblock
import os, time
print("epoch 1")
while not os.path.exists("/root/go"): time.sleep(0.01)
print("epoch 2")
"trained" """


NOTICES_LOSS = """() => { window.lost = ""; new MutationObserver(() => {
    const lost = document.querySelector(".skyward-Disconnected");
    if (lost && document.querySelector('.skyward-mod-stale [data-pool="train"]')) window.lost = lost.innerText;
}).observe(document.body, {childList: true, subtree: true}); }"""
"""Records the panel's notice of a lost connection, which may be visible for a moment only."""


def shell_folders() -> list[str]:
    """Return the working directories of the shells on this machine."""
    found = []
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error):
            if process.info["name"] in ("sh", "bash", "dash", "zsh"):
                found.append(process.cwd())
    return found


def beats(path: Path) -> str:
    """Return the source of a cell that never ends."""
    body = f"open({str(path)!r}, 'a').write('.')\n    print('beat\\n' * 9)\n    time.sleep(0.1)"
    return f"%%sky\nimport time\nwhile True:\n    {body}"


def test_panel_guides_to_the_first_pool(lab: Lab, server: tuple[str, Path]) -> None:
    (server[1] / "skyward.toml").write_text(SETTINGS)
    lab.panel.get_by_text("Skyward is not loaded in this kernel.").wait_for()
    lab.until_wide(320)
    lab.drag_edge(-50)
    lab.until_wide(270)
    for _ in range(2):
        lab.toggle()
    lab.until_wide(270)
    lab.drag_edge(50)
    lab.see("absent")
    lab.press("Insert %load_ext skyward")
    lab.page.keyboard.press("Shift+Enter")
    lab.panel.get_by_text("No pools yet.").wait_for()
    lab.see("no-pool")
    lab.press("Help, settings, stop all")
    lab.page.locator(".lm-Menu-item", has_text="Settings").wait_for()
    lab.page.keyboard.press("Escape")
    lab.page.locator(".lm-Menu").wait_for(state="detached")
    lab.command("skyward:new-pool")
    lab.panel.get_by_label("name", exact=True).wait_for()
    price = lab.panel.locator(".skyward-Price")
    lab.panel.get_by_label("provider", exact=True).select_option("cloud")
    lab.panel.get_by_label("nodes", exact=True).fill("9:3")
    wrong = lab.panel.locator(".skyward-Form-wrong")
    wrong.get_by_text("is less than the minimum, 9").wait_for()
    lab.panel.get_by_label("nodes", exact=True).fill("1:3")
    price.get_by_text("$1.50/h \N{EN DASH} $4.50/h").wait_for()
    wrong.wait_for(state="detached")
    lab.panel.get_by_label("budget", exact=True).fill("9")
    price.get_by_text("The budget lasts 2 h 0 min with 3 nodes.").wait_for()
    lab.panel.locator("code", has_text="%sky up default --provider cloud --nodes 1:3 --budget 9").wait_for()
    inside = "select => select.getBoundingClientRect().right > select.nextElementSibling.getBoundingClientRect().right"
    assert lab.panel.get_by_label("provider", exact=True).evaluate(inside), "the arrow is inside of its box"
    lab.see("form")
    lab.panel.get_by_text("More").click()
    lab.panel.get_by_label("plugin", exact=True).fill("torch,jax")
    wrong.get_by_text("'torch' and 'jax', which exclude each other").wait_for()
    lab.panel.locator("code", has_text="--budget 9 --plugin torch,jax").wait_for()
    lab.panel.get_by_label("plugin", exact=True).fill("")
    lab.press("Open")
    lab.pool().get_by_text("ready").wait_for()
    lab.pool().get_by_text("1 of 1\N{EN DASH}3 nodes").wait_for()
    lab.pool().get_by_text("$1.50/h").wait_for()
    lab.page.locator(".skyward-Status", has_text="1 node · $1.50/h").wait_for()
    lab.run("%%sky\nimport time\ntime.sleep(0.5)")
    cost = lab.section("costs").locator("li", has_text="import time")
    cost.get_by_text("1 task").wait_for()
    cost.get_by_text("$0.000").wait_for()
    cost.get_by_role("button", name="[2]").wait_for()
    lab.section("costs").get_by_text("booting, idle, stopping").wait_for()
    lab.see("pool")


def test_pool_that_fails_to_open_stays_in_the_panel(lab: Lab, server: tuple[str, Path]) -> None:
    (server[1] / "skyward.toml").write_text("[pools.quick]\nprovision_retry_delay = 0.1\n")
    folder = server[1] / "refusing"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(REFUSING)
    lab.run("%load_ext skyward\nimport skyward as sky\nfrom skyward_kernel.pools import resident")
    lab.run(f"wrong = sky.Image(env={{'PYTHONPATH': {str(folder)!r}}})")
    opening = "resident().get_or_open('train', {'nodes': sky.Nodes(2), 'provision_retry_delay': 0.1, 'image': wrong})"
    lab.run(opening)
    failed = lab.panel.locator('[data-failed="train"]')
    failed.get_by_text("the worker ended during startup (status 3)").wait_for()
    failed.locator("pre", has_text="last words").wait_for()
    assert lab.pool("train").count() == 0
    lab.see("failed-pool")
    lab.press("Dismiss pool train")
    failed.wait_for(state="detached")
    lab.run(opening)
    failed.wait_for()

    lab.command("skyward:new-pool")
    lab.panel.get_by_label("name", exact=True).fill("quick")
    lab.panel.get_by_text("More").click()
    lab.panel.get_by_label("env", exact=True).fill(f"PYTHONPATH={folder}")
    lab.press("Open")
    lab.panel.locator(".skyward-Form-reason", has_text="could not start node 0").wait_for()
    assert lab.panel.get_by_label("env", exact=True).input_value() == f"PYTHONPATH={folder}"
    lab.see("form-refused")
    lab.press("Cancel")

    (folder / "sitecustomize.py").unlink()
    lab.run(opening)
    lab.pool("train").get_by_text("ready").wait_for()
    assert failed.count() == 0


def test_panel_is_live_and_executes_commands_while_a_cell_runs(lab: Lab, tmp_path: Path) -> None:
    lab.run("%load_ext skyward\n%sky up --nodes 1:4")
    lab.pool().get_by_text("ready").wait_for()
    lab.run(beats(tmp_path / "beat"), wait=False)
    task = lab.section("tasks").locator("li", has_text="import time")
    task.get_by_text("node 0").wait_for()
    task.get_by_role("button", name="[2]", exact=True).wait_for()
    lab.section("streams").get_by_text("beat").first.wait_for()
    lab.section("nodes").get_by_text("busy").wait_for()
    lab.see("busy")

    most = lab.panel.get_by_label("Maximum nodes of pool default")
    least = lab.panel.get_by_label("Minimum nodes of pool default")
    least.fill("2")
    least.press("Enter")
    lab.pool().get_by_text("2 of 2\N{EN DASH}4 nodes").wait_for()
    assert most.input_value() == "4"
    lab.section("decisions").get_by_text("resized to between 2 and 4").wait_for()

    resized = lab.section("decisions").get_by_text("resized to")
    before = resized.count()
    thumb = lab.panel.get_by_label("Maximum nodes", exact=True).bounding_box()
    assert thumb is not None
    middle = thumb["x"] + thumb["width"] / 2, thumb["y"] + thumb["height"] / 2
    lab.page.mouse.move(*middle)
    lab.page.mouse.down()
    lab.page.mouse.move(thumb["x"] + thumb["width"] + 20, middle[1], steps=12)
    lab.page.mouse.up()
    lab.pool().get_by_text("2 of 2\N{EN DASH}8 nodes").wait_for()
    lab.section("decisions").get_by_text("resized to between 2 and 8").wait_for()
    assert resized.count() == before + 1, "a dragged bound is sent once, on release"
    lab.see("scaled")

    least.fill("1")
    least.press("Enter")
    lab.pool().get_by_text("2 of 1\N{EN DASH}8 nodes").wait_for()
    lab.section("nodes").locator(".skyward-Node").first.click()
    assert lab.panel.get_by_role("button", name="Drain").is_disabled(), "the head cannot be drained"
    lab.page.keyboard.press("Escape")
    lab.section("nodes").locator(".skyward-Node", has_text="idle").click()
    lab.panel.get_by_role("button", name="Drain").wait_for()
    lab.page.keyboard.press("Escape")
    lab.panel.get_by_role("button", name="Drain").wait_for(state="detached")
    lab.command("skyward:drain-node")
    lab.page.locator(".jp-Dialog select").select_option("node 1 of default (idle)")
    lab.page.locator(".jp-Dialog .jp-mod-accept").click()
    lab.section("decisions").get_by_text("node 1 is drained").wait_for()
    lab.section("nodes").locator(".skyward-Node").nth(1).wait_for(state="detached")

    to_end = "lines => lines.scrollHeight - lines.scrollTop - lines.clientHeight"
    assert lab.section("streams").locator("pre").evaluate(to_end) < 24, "the last printed line is visible"
    lab.press("Stop all tasks of cell")
    task.get_by_text("cancelled").wait_for()
    lab.until_idle()
    assert "TaskCancelledError" in lab.page.locator(".jp-Notebook").inner_text()
    lab.see("cancelled")


def test_node_lists_its_kept_values(lab: Lab) -> None:
    lab.run("%load_ext skyward\n%sky up --nodes 2")
    lab.pool().get_by_text("ready").wait_for()
    lab.run("%%sky --on 1 --keep model\nmodel = bytearray(3 << 20)")
    keeper = lab.section("nodes").locator(".skyward-Node", has_text="keeps")
    keeper.locator(".skyward-Node-rank", has_text="1").wait_for()
    keeper.click()
    lab.panel.locator(".skyward-Details", has_text="model 3.0 MiB").wait_for()
    lab.see("keeps")
    lab.press("Drain")
    lab.panel.get_by_text("keeps model").wait_for()
    keeper.wait_for()
    lab.run("%sky drop model")
    keeper.wait_for(state="detached")
    lab.panel.get_by_text("model 3.0 MiB").wait_for(state="detached")


def test_page_reloaded_while_a_cell_runs_shows_the_full_state(lab: Lab, tmp_path: Path) -> None:
    lab.run("%load_ext skyward\n%sky up --nodes 1")
    lab.run(beats(tmp_path / "beat"), wait=False)
    lab.section("tasks").get_by_text("node 0").wait_for()
    lab.reload()
    lab.section("tasks").get_by_text("node 0").wait_for()
    lab.section("streams").get_by_text("beat").first.wait_for()
    lab.see("reloaded")
    lab.press("Stop task")
    lab.section("tasks").locator(".skyward-State").get_by_text("cancelled").wait_for()
    lab.until_idle()

    lab.run(DEAF)
    lab.run(beats(tmp_path / "again"), wait=False)
    lab.section("tasks").get_by_text("node 0").wait_for()
    lab.press("Stop task")
    lab.panel.get_by_text("so it was interrupted").wait_for()
    lab.section("tasks").get_by_text("node 0").wait_for(state="detached")
    lab.until_idle()
    lab.see("interrupted")


def test_each_notebook_shows_its_own_pools_in_every_tab(lab: Lab) -> None:
    lab.run("%load_ext skyward\n%sky up --nodes 1:2")
    lab.pool().get_by_text("ready").wait_for()
    with lab.second_tab() as other:
        other.pool().get_by_text("ready").wait_for()
        most = other.panel.get_by_label("Maximum nodes of pool default")
        most.fill("3")
        most.press("Enter")
        lab.pool().get_by_text("1 of 1\N{EN DASH}3 nodes").wait_for()
        other.pool().get_by_text("1 of 1\N{EN DASH}3 nodes").wait_for()
    lab.open_another()
    lab.panel.get_by_text("Skyward is not loaded in this kernel.").wait_for()
    assert lab.pool().count() == 0
    lab.press("Insert %load_ext skyward")
    lab.page.keyboard.press("Shift+Enter")
    lab.panel.get_by_text("No pools yet.").wait_for()
    lab.to_notebook()
    lab.pool().get_by_text("1 of 1\N{EN DASH}3 nodes").wait_for()


def test_only_visible_rows_of_many_nodes_and_tasks_are_drawn(lab: Lab) -> None:
    lab.run(MANY)
    lab.section("nodes").get_by_text("1,000", exact=True).wait_for()
    lab.section("tasks").get_by_text("more running or queued tasks are not listed").wait_for()
    rows = lab.panel.locator(".skyward-LongList li")
    assert rows.count() < 60, "only visible rows are drawn"
    nodes = lab.section("nodes").locator(".skyward-LongList")
    nodes.evaluate("list => list.scrollTop = list.scrollHeight")
    lab.section("nodes").locator(".skyward-Node-rank", has_text="999").wait_for()
    assert rows.count() < 60
    lab.see("many")
    lab.panel.get_by_label("Filter the nodes").fill("active 42")
    lab.section("nodes").locator(".skyward-Node-rank", has_text="999").wait_for(state="detached")
    lab.section("nodes").locator(".skyward-Node-rank", has_text="42").first.wait_for()


def test_booting_and_failing_nodes_are_shown_in_the_dark_theme(lab: Lab, server: tuple[str, Path]) -> None:
    (server[1] / "skyward.toml").write_text(SETTINGS)
    (server[1] / "failing").mkdir()
    (server[1] / "failing" / "sitecustomize.py").write_text(FAILING)
    # The usual durations must come from these starts, and not from those of other tests.
    lab.run(f"import os\nos.environ['SKYWARD_DATA_DIR'] = {str(server[1] / 'dim')!r}")
    lab.run(f"%load_ext skyward\n%sky up dim --env PYTHONPATH={server[1] / 'failing'}")
    lab.pool("dim").get_by_text("ready").wait_for()
    lab.run("%%sky --on all --pool dim\nprint('hello')\n1")
    lab.section("streams").get_by_text("hello").first.wait_for()
    lab.page.evaluate("window.jupyterapp?.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    lab.page.locator('body[data-jp-theme-light="false"]').wait_for(state="attached")
    lab.panel.locator(".skyward-Node").last.click()
    lab.panel.get_by_role("button", name="Drain").wait_for()
    lab.press("Output")
    lab.section("streams").get_by_text("Only node 1").wait_for()
    lab.section("streams").locator("pre", has_text="hello").wait_for()
    assert lab.section("streams").locator("pre > div").count() == 1, "output of the other node is not shown"
    lab.see("dark")
    lab.press("Terminal")
    lab.page.locator(".jp-Terminal").wait_for()
    lab.until(lambda: any("skyward-dim-" in folder for folder in shell_folders()), "a shell in the node's folder")

    lab.to_notebook()
    lab.run("%sky scale dim 3\nimport time\ntime.sleep(600)", wait=False)
    booting = lab.section("nodes").locator(".skyward-Node", has_text="worker")
    booting.get_by_text(re.compile(r"of ~\d+\.\d s")).wait_for()
    booting.locator(".skyward-Boot-elapsed", has_text=re.compile(r"[2-9]\.\d s|\d\d s|min")).wait_for()
    lab.see("booting")
    (server[1] / "failing" / "go").touch()
    failed = lab.section("nodes").locator(".skyward-Failure")
    failed.get_by_text("node 2 failed").wait_for()
    failed.get_by_text("the worker ended during startup (status 3)").wait_for()
    failed.locator("pre", has_text="line 57 of many\nline 58 of many\nline 59 of many").wait_for()
    failed.get_by_text("(2 of 3)").wait_for()
    lab.see("failed")
    failed.get_by_role("button", name="Full log").click()
    lab.page.locator(".skyward-StartLog", has_text="line 0 of many").wait_for()
    lab.page.locator(".lm-TabBar-tab", has_text="node 2 of dim").wait_for()
    lab.see("start-log")


def test_pool_is_reattached_after_a_restart_with_the_progress_made_meanwhile(lab: Lab, network: Network) -> None:
    machine = network.add()
    host = {"host": machine.address, "key": str(network.key), "known": str(network.known_hosts(machine))}
    lab.run(OPEN.format(**host, python=sys.executable))
    lab.pool("train").get_by_text("ready").wait_for()
    lab.run(TRAIN)
    lab.section("tasks").get_by_text("node 0").wait_for()
    lab.section("streams").get_by_text("epoch 1").first.wait_for()
    (worker,) = machine.running("skyward.worker")

    lab.section("nodes").locator(".skyward-Node").click()
    lab.press("Terminal")
    lab.until(lambda: machine.running("-bash") or machine.running("-sh"), "a shell on the machine")
    lab.to_notebook()

    lab.page.evaluate(NOTICES_LOSS)
    lab.restart()
    lab.press("Load Skyward")
    notice = lab.page.evaluate("window.lost")
    assert "The nodes of train finish their tasks without it, and terminate at" in notice, "the last state stays"
    orphan = lab.panel.locator('[data-orphan="train"]')
    orphan.get_by_text("1 machine").wait_for()
    orphan.get_by_text("%sky attach train").wait_for()
    lab.see("left-behind")
    Path(f"/proc/{machine.pids()[0]}/root/root/go").touch()

    lab.press("Reattach")
    lab.pool("train").get_by_text("ready").wait_for()
    orphan.wait_for(state="detached")
    lab.panel.get_by_text("Attached to pool 'train' with 1 recovered task.").wait_for()
    lab.section("tasks").get_by_text("done").wait_for()
    lab.section("tasks").locator("li", has_text="import os, time").get_by_role("button", name="[2]").click()
    lab.page.locator(".jp-Cell.jp-mod-active", has_text="epoch 2").wait_for()
    assert machine.running("skyward.worker") == [worker], "the worker is still the same process"
    lab.press("Insert a cell that shows them")
    lab.page.keyboard.press("Shift+Enter")
    lab.page.locator(".jp-OutputArea-output", has_text="epoch 2").wait_for()
    lab.see("reattached")

    lab.restart()
    lab.press("Load Skyward")
    orphan.get_by_role("button", name="Stop", exact=True).click()
    lab.panel.get_by_text("train: 1 machine terminated.").wait_for()
    orphan.wait_for(state="detached")
    assert not machine.running("skyward.worker")
