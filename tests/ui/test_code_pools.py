"""Pools that code makes, and the progress of their opening, in a browser with a real JupyterLab."""

import pytest

from skyward.bootstrap import PHASES
from tests.ui.lab import Lab

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]

OPEN = """print("printed before")
pool = sky.Compute(name="train", nodes=(1, 3), provider=sky.Local(boot_time=4))
_ = pool.open()
print("printed after")"""

NODE_STATES = ("queued", "requested", "connecting", "joining", "busy", "draining", "stopping", *PHASES)
POOL_STATES = ("starting", "stopping", "failing", "budget reached")

CUT = """([states, words]) => {
    const cut = [];
    for (const state of document.querySelectorAll(states)) {
        const word = state.lastChild, before = word.textContent;
        for (const each of words) {
            word.textContent = before.startsWith(' ') ? ` ${each}` : each;
            const text = document.createRange();
            text.selectNodeContents(state);
            const right = text.getBoundingClientRect().right;
            for (let box = state; box && box !== document.body; box = box.parentElement) {
                if (getComputedStyle(box).overflowX !== 'visible' && box.getBoundingClientRect().right < right - 0.5) {
                    cut.push(`${each} in ${box.className}`);
                }
            }
        }
        word.textContent = before;
    }
    return cut;
}"""
"""Returns the words that would be cut off in the elements of these states."""


def test_pool_made_by_code_is_in_the_panel_and_its_opening_erases_nothing(lab: Lab) -> None:
    lab.run("%load_ext skyward\n%config SkyMagics.progress_after = 0.0\nimport skyward as sky\nxs = [1, 2, 3]")
    lab.panel.get_by_text("No pools yet.").wait_for()
    lab.run(OPEN, wait=False)
    output = lab.page.locator(".jp-Cell .jp-OutputArea-output")
    output.filter(has_text="Opening pool 'train': 0 of 1 node ready").wait_for()
    lab.pool("train").get_by_text("starting").wait_for()
    lab.see("code-pool-opening")
    lab.until_idle()
    assert [text.strip().partition(" ready in ")[0] for text in output.all_inner_texts()] == [
        "printed before",
        "Pool 'train': 1 node",
        "printed after",
    ]
    lab.pool("train").get_by_text("1 of 1\N{EN DASH}3 nodes").wait_for()
    lab.see("code-pool")
    lab.run("%%sky --map xs --pool train --no-footer\nprint('printed by a node')\n_ = xs")
    output.filter(has_text="3/3").wait_for()
    texts = output.all_inner_texts()[3:]
    assert "".join(texts).count("printed by a node") == 3
    assert ["100%" in text and "3/3" in text for text in texts].count(True) == 1, "the bar keeps its last state"
    lab.section("tasks").get_by_text("done").nth(2).wait_for()
    lab.section("tasks").get_by_text("0 running").wait_for()
    lab.see("code-pool-map")
    lab.press("Stop pool train")
    lab.panel.get_by_text("No pools yet.").wait_for()
    lab.run("print('open:', pool.is_open)")
    output.filter(has_text="open: False").wait_for()


@pytest.mark.parametrize("width", [1280, 700])
def test_state_labels_are_not_cut_off(lab: Lab, width: int) -> None:
    lab.page.set_viewport_size({"width": width, "height": 900})
    lab.run("%load_ext skyward\nimport skyward as sky")
    if width == 1280:
        lab.drag_edge(-70)
        lab.until_wide(250)
    lab.run("pool = sky.Compute(name='train', nodes=2, provider=sky.Local(boot_time=600))")
    lab.run("import threading\nthreading.Thread(target=pool.open, daemon=True).start()")
    lab.section("nodes").get_by_text("requested").first.wait_for()
    lab.run("pool")
    lab.page.locator(".skyward-Widget .skyward-Node", has_text="requested").first.wait_for()
    lab.see(f"states-{width}")
    for states, words in {
        ".skyward-Panel .skyward-Node .skyward-State": NODE_STATES,
        ".skyward-Widget .skyward-Node .skyward-State": NODE_STATES,
        ".skyward-Panel .skyward-Pool .skyward-State": POOL_STATES,
        ".skyward-Widget .skyward-Pool .skyward-State": POOL_STATES,
    }.items():
        lab.page.locator(states).first.wait_for()
        assert lab.page.evaluate(CUT, [states, words]) == []
    room = lab.page.locator(".skyward-Widget .skyward-LongList").evaluate("list => list.clientWidth - list.scrollWidth")
    assert room >= 0, "the rows fit into their list"
