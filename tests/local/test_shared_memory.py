"""Memory shared by captured values, and changes of a cell to other state, on a real node."""

from collections.abc import Iterator

import pytest

from tests.local.kernel import Kernel, started

pytestmark = [pytest.mark.local, pytest.mark.notebooks]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with started() as kernel:
        folder = tmp_path_factory.mktemp("notebook")
        kernel(f"import os, sys, random\nos.chdir({str(folder)!r})\nsys.path.insert(0, {str(folder)!r})")
        kernel("pool = %sky up")
        yield kernel


def test_arrays_over_one_memory_share_it_on_the_node(kernel: Kernel) -> None:
    kernel("import numpy as np\na = np.arange(5.0)\nv = np.lib.stride_tricks.sliding_window_view(a, 2)")
    kernel("b = bytearray(8)\nw = np.frombuffer(b, 'u1')")
    assert kernel("%%sky\na[0] = 5\nw[0] = 3\nv.sum(), b[0]").data == ["(np.float64(21.0), 3)"]
    assert kernel("v.sum(), b[0]").data == ["(np.float64(21.0), 3)"]


def test_edited_module_is_reported(kernel: Kernel) -> None:
    kernel("open('edited_here.py', 'w').write('st = []'); None")
    first = kernel("%%sky\nimport edited_here\nedited_here.st.append(1)")
    assert "The cell changed edited_here.st on node 0; here it is unchanged." in first.text("stderr")
    assert kernel("%%sky\nimport edited_here\nedited_here.st").data == ["[1]"]
    kernel("open('edited_here.py', 'w').write('st = [] # edited'); None")
    again = kernel("%%sky\nimport edited_here\nedited_here.st")
    assert again.data == ["[]"]
    assert "edited_here has changed since node 0 imported it: imported again there" in again.text("stderr")


def test_random_numbers_drawn_by_a_function_continue(kernel: Kernel) -> None:
    kernel("def f():\n    import random\n    return random.random()")
    kernel("random.seed(1)")
    kernel("%%sky\nx = f()")
    assert kernel("y = random.random()\nrandom.seed(1)\n[x, y] == [random.random(), random.random()]").data == ["True"]


def test_error_does_not_wait_for_an_object_that_cannot_be_represented(kernel: Kernel) -> None:
    kernel("class Endless:\n    def __repr__(self):\n        while True: pass\nobject_of_it = Endless()")
    assert kernel("%%sky --timeout 25\nz = object_of_it\n1 / 0").error[0] == "ZeroDivisionError"
