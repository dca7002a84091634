"""Unusual objects of a notebook in a cell on a node in a separate process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.kernel import Kernel, started

pytestmark = [pytest.mark.local, pytest.mark.notebooks]

KINDS = """
import dataclasses, gc, inspect, os
from enum import Enum
from functools import lru_cache
from typing import NewType
import numpy as np
pool = %sky up --nodes 1
class Temporary:
    def __init__(self, path):
        self.path = os.path.abspath(path)
        open(self.path, 'w').close()
        self.n = 0
    def __del__(self):
        if os.path.exists(self.path): os.remove(self.path)
class Doubling(dict):
    def __setitem__(self, key, value): super().__setitem__(key, value * 2)
class Planet(Enum):
    EARTH = (6.0, 3.0)
    def __init__(self, mass, radius): self.mass, self.radius = mass, radius
type V = list[int]
UserId = NewType('UserId', int)
def total(x: V) -> UserId: return UserId(sum(x))
rate = 1
@lru_cache
def price(x): return x * rate
price(10)
doubling, labels, missing = Doubling(a=1), {np.nan: 'nan'}, dataclasses.MISSING
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        kernel(KINDS)
        yield kernel


def test_unusual_objects_are_the_same_on_the_node_and_in_the_notebook(kernel: Kernel) -> None:
    kernel(
        "%%sky\nr = [labels.get(np.nan), missing is dataclasses.MISSING, Planet.EARTH.mass, total([1, 2])]\n"
        "r.append(inspect.getsource(total))\ndoubling['z'] = 1\nrate = 2\nprice.cache_clear()\ncodes = {np.nan: 0}"
    )
    assert kernel("r").data == [
        "['nan', True, 6.0, 3, 'def total(x: V) -> UserId: return UserId(sum(x))\\n']",
    ]
    assert kernel("dict(doubling), price(10), codes.get(np.nan)").data == ["({'a': 1, 'z': 2}, 20, 0)"]


def test_files_of_objects_that_live_on_in_the_notebook_are_kept(kernel: Kernel, tmp_path: Path) -> None:
    kernel(f"folder = {str(tmp_path)!r}\nt = Temporary(folder + '/t')")
    kernel("%%sky\nt.n += 1\nnew = Temporary(folder + '/new')\ngone = Temporary(folder + '/gone')\ndel gone")
    assert kernel("%%sky\ngc.collect() and None\nsorted(os.listdir(folder))").data == ["['new', 't']"]
    assert kernel("t.n, type(new) is Temporary").data == ["(1, True)"]
