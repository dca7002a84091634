"""Captured names, refused captures, and their messages."""

import threading
import types
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from skyward.errors import NotPicklableError, SkywardError, TooLargeError, UsageError
from skyward.formatting import size_text
from skyward_jupyter.cells.capture import capture
from skyward_jupyter.cells.cell import analyse
from skyward_jupyter.cells.manifest import Manifest, ManifestEntry
from tests.notebook import new_shell
from tests.unit.jupyter.cells.conftest import CellHarness

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        (
            "x = daat",
            {},
            NameError,
            "line 1: the cell reads daat, but daat is not defined in the notebook. Did you mean data?",
        ),
        (
            "\nprint(zzz)",
            {},
            NameError,
            "line 1: the cell reads zzz, but zzz is not defined in the notebook. Run the cell that defines it first.",
        ),
        (
            "x = data",
            {"capture": False},
            UsageError,
            "line 1: the cell reads data, which --no-capture excludes. "
            "Leave out --no-capture, or assign it in the cell.",
        ),
        (
            "x = data",
            {"inputs": ["n"]},
            UsageError,
            "line 1: the cell reads data, which -i excludes. Add data to -i, or assign it in the cell.",
        ),
        (
            "x = 1",
            {"inputs": ["zzz"]},
            UsageError,
            "-i zzz: zzz is not defined in the notebook. Run the cell that defines it first.",
        ),
        (
            "x = _",
            {},
            UsageError,
            "_ is part of the notebook's own history, which is not sent. "
            "Bind the value to another name, or send it with `-i _`.",
        ),
        (
            "x = Out[3]",
            {},
            UsageError,
            "Out is part of the notebook's own history, which is not sent. "
            "Bind the value to another name, or send it with `-i Out`.",
        ),
        (
            "x = 1",
            {"map_name": "data"},
            UsageError,
            "--map data: the cell does not read data, so every run would be the same. "
            "Use data in the cell, where it is bound to one element.",
        ),
        (
            "x = n",
            {"map_name": "n"},
            UsageError,
            "--map n: n is of type int, which is not iterable. Use a list.",
        ),
        (
            "x = zzz",
            {"map_name": "zzz"},
            UsageError,
            "--map zzz: zzz is not defined in the notebook. Run the cell that defines it first.",
        ),
        (
            "locked",
            {},
            NotPicklableError,
            "locked cannot be sent to a node: locked['a'][0] is of type _thread.lock, which cannot be pickled "
            "(cannot pickle '_thread.lock' object). Make it on the node, or leave it out.",
        ),
        (
            "f()",
            {},
            NotPicklableError,
            "locked cannot be sent to a node: locked['a'][0] is of type _thread.lock, which cannot be pickled "
            "(cannot pickle '_thread.lock' object). Make it on the node, or leave it out.",
        ),
        (
            "shell.x",
            {},
            NotPicklableError,
            "shell cannot be sent to a node: it is the IPython shell of this notebook. Leave it out of the cell.",
        ),
        (
            "big, data",
            {"limit": 1 << 20},
            TooLargeError,
            "the cell sends 3.0 MiB, which is over the limit of 1.0 MiB; the largest value is big "
            "(bytes, 3.0 MiB). Make it on the node, leave it out with -i, or raise the limit with --capture-limit.",
        ),
    ],
)
def test_user_error_is_one_sentence_before_anything_is_sent(
    notebook: CellHarness, source: str, options: dict[str, Any], error: type[SkywardError], message: str
) -> None:
    notebook.names |= {
        "data": [1, 2],
        "n": 1,
        "_": 1,
        "Out": {3: 1},
        "locked": {"a": [threading.Lock()]},
        "shell": InteractiveShell.__new__(InteractiveShell),
        "big": bytes(3 << 20),
    }
    notebook.local("def f(): return locked")
    before = dict(notebook.names)
    with pytest.raises(error) as caught:
        notebook.take(source, **options)
    assert str(caught.value) == message
    assert notebook.names == before


def test_conditionally_read_name_is_checked_on_the_node(notebook: CellHarness) -> None:
    assert notebook.sky("if False: nothing\nx = 1") == []
    with pytest.raises(NameError, match="name 'nothing' is not defined"):
        notebook.sky("if True: nothing")


def test_history_is_captured_on_request(notebook: CellHarness) -> None:
    notebook.names["_"] = 3
    notebook.sky("x = _", inputs=["_"])
    assert notebook["x"] == 3


def test_loop_over_underscore_does_not_capture_history(notebook: CellHarness) -> None:
    notebook.names["_"] = object
    assert "_" not in notebook.take("for _ in range(3): pass").captured


@pytest.mark.parametrize("name", ["get_ipython", "exit", "quit", "open", "display"])
def test_names_bound_by_ipython_are_not_captured(notebook: CellHarness, name: str) -> None:
    with new_shell() as shell:
        notebook.names[name] = shell.user_ns.get(name, display)
        assert not notebook.take(f"{name}").captured


def test_open_of_the_node_is_used_in_place_of_the_one_of_ipython(notebook: CellHarness) -> None:
    with new_shell() as shell:
        notebook.names["open"] = shell.user_ns["open"]
        notebook.local("def read(): return open\nxs = [1, 2]")
        assert notebook.sky("found = open, read()\nxs", map_name="xs") == []
        assert notebook["found"] == [(open, open)] * 2


def test_rebound_builtin_is_captured(notebook: CellHarness) -> None:
    notebook.local("def len(x): return 42")
    notebook.sky("x = len([])\ny = max(1, 2)")
    assert (notebook["x"], notebook["y"]) == (42, 2)
    assert "max" not in notebook.sent.captured


def test_inputs_include_names_used_by_their_functions(notebook: CellHarness) -> None:
    notebook.local("k = 1\ndef f(): return k")
    sent = notebook.take("x = f()", inputs=["f"])
    assert set(sent.captured) == {"f", "k"}


def test_no_capture_captures_nothing(notebook: CellHarness) -> None:
    notebook.local("k = 1")
    notebook.sky("k = 2\nx = k", capture=False)
    assert notebook["x"] == 2
    assert not notebook.sent.captured


def test_module_created_in_the_notebook_is_pickled_by_value(notebook: CellHarness) -> None:
    module = types.ModuleType("handmade")
    module.value = 3  # type: ignore[attr-defined]  # modules take any attribute
    notebook.names["handmade"] = module
    notebook.sky("x = handmade.value")
    assert notebook["x"] == 3


def test_map_makes_one_call_for_each_element(notebook: CellHarness) -> None:
    notebook.local("xs = (i for i in range(3)); k = 1")
    sent = notebook.take("y = xs + k", map_name="xs")
    assert len(sent.pendings) == 3
    assert [call.args[1][-1].unpack() for call in sent.pendings] == [0, 1, 2]
    assert all(call.args[1][0] is sent.captured["k"] for call in sent.pendings)


def test_cell_without_map_makes_one_call(notebook: CellHarness) -> None:
    sent = notebook.take("x = 1")
    assert sent.pendings == [sent.pending]


class TestManifest:
    def take(self, **options: Any) -> Manifest:
        names: dict[str, Any] = {"__name__": "__main__", "a": np.zeros(1_000_000), "b": {"k": "<v>"}, "np": np}
        return capture(analyse("x = np.sum(a) + len(b)"), names, **options).manifest

    def test_text_lists_values_sizes_and_modules(self) -> None:
        manifest = self.take()
        a, b = manifest.entries
        lines = str(manifest).splitlines()
        assert lines[0].split() == ["name", "type", "size", "digest", "on", "the", "nodes"]
        assert lines[1].split() == ["a", "numpy", "ndarray", "7.6", "MiB", a.digest, "to", "send"]
        assert lines[2].split() == ["b", "dict", str(b.nbytes), "B", b.digest, "sent", "each", "time"]
        assert lines[3:] == [
            "7.6 MiB in all, 7.6 MiB to send",
            "imported on the node: numpy as np",
            "returned: x",
        ]

    def test_html_has_a_table(self) -> None:
        bundle = self.take()._repr_mimebundle_()
        assert bundle["text/html"].startswith("<table><thead><tr><th")
        assert "7.6 MiB</td>" in bundle["text/html"]
        assert bundle["text/plain"].startswith("name")

    def test_html_is_escaped(self) -> None:
        manifest = Manifest((ManifestEntry("<a>", "<b>", ()),))
        assert "&lt;a&gt;" in manifest._repr_html_()
        assert "<a>" not in manifest._repr_html_()

    def test_holders_of_a_value_are_named(self) -> None:
        held = self.take(holds=lambda _: {0, 1}, nodes=[0, 1])
        assert "held" in str(held).splitlines()[1]
        assert held.to_send == held.entries[1].nbytes
        partly = self.take(holds=lambda _: {1}, nodes=[0, 1])
        assert str(partly).splitlines()[1].endswith("held by 1")
        assert partly.to_send == partly.nbytes
        assert f"({partly.entries[1].nbytes} B to node 1)" in str(partly)

    def test_equal_values_have_equal_digests(self) -> None:
        assert self.take().entries[0].digest == self.take().entries[0].digest

    def test_manifest_over_16_mib_is_worth_showing(self) -> None:
        assert not self.take().worth_showing
        names = {"__name__": "__main__", "a": bytes(17 << 20)}
        assert capture(analyse("len(a)"), names).manifest.worth_showing

    def test_empty_manifest_has_a_summary_line(self) -> None:
        assert str(capture(analyse("1"), {}).manifest) == "0 B in all, 0 B to send"


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 24, "16.0 MiB"), (3 << 31, "6.0 GiB")]
)
def test_size_text_uses_binary_units(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text
