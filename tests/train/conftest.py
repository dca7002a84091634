"""Requirements of the tests of this tier."""

from importlib.util import find_spec

import pytest

from tests.required import leave_out_for

_FRAMEWORKS = ("accelerate", "jax", "keras", "torch", "transformers")


@pytest.fixture(scope="session", autouse=True)
def _frameworks() -> None:
    """Leave the tests out where the frameworks are not installed."""
    missing = [name for name in _FRAMEWORKS if find_spec(name) is None]
    reason = f"{', '.join(missing)} not installed: run `make train`" if missing else ""
    leave_out_for(reason, "SKYWARD_TRAIN")
