"""Settings of libraries are sent with a cell to its node, and returned with its changes."""

from collections.abc import Iterator

import pytest

from tests.local.kernel import Kernel, started

pytestmark = [pytest.mark.local, pytest.mark.notebooks]

IMPORTS = """
import warnings
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
pool = %sky up --nodes 2
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        kernel(IMPORTS)
        yield kernel


@pytest.mark.parametrize(
    ("change", "shown", "value"),
    [
        ("np.seterr(divide='raise')", "np.geterr()['divide']", "'raise'"),
        ("np.set_printoptions(precision=3)", "str(np.array([1 / 3]))", "'[0.333]'"),
        ("plt.rcParams['lines.linewidth'] = 9", "plt.rcParams['lines.linewidth']", "9.0"),
        ("pd.set_option('display.precision', 2)", "pd.get_option('display.precision')", "2"),
        ("pd.set_option('display.float_format', lambda x: 'F')", "str(pd.Series([1.0])).split()[1]", "'F'"),
        ("warnings.simplefilter('error')", "warnings.filters[0][0]", "'error'"),
    ],
)
def test_cell_has_the_settings_of_the_notebook_and_returns_its_own(
    kernel: Kernel, change: str, shown: str, value: str
) -> None:
    before = kernel(shown).data
    assert kernel(f"%%sky\n{shown}").data == before
    kernel(change)
    assert kernel(shown).data == kernel(f"%%sky\n{shown}").data == [value] != before
    reset = "np.seterr(divide='warn'); np.set_printoptions(precision=8); plt.rcdefaults(); warnings.resetwarnings()"
    kernel(f"%%sky\n{reset}\npd.reset_option('display')\nwarnings.simplefilter('ignore')")
    kernel(f"%%sky\n{change}")
    assert kernel(shown).data == [value]
    kernel(f"{reset}; pd.reset_option('display')")
    assert kernel(f"%%sky\n{shown}").data == kernel(shown).data


def test_settings_of_several_runs_are_not_returned_and_reported(kernel: Kernel) -> None:
    cell = kernel("%%sky --on all\nnp.seterr(over='raise')")
    assert kernel("np.geterr()['over']").data == ["'warn'"]
    notice = "the error settings of numpy changed on nodes 0 and 1, in a separate copy for each run; here they are "
    assert notice in cell.text("stderr")
    assert kernel("%%sky --on all\nnp.geterr()['over']").text().count("'warn'") == 2
