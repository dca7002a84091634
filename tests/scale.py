"""How much the tests do whose figures depend on it: a little in CI, all of it by hand."""

import os

__all__ = ["FULL", "SCALE"]

FULL = 10
"""The scale at which the figures that the tests promise are reached: `SKYWARD_TEST_SCALE=10 pytest ...`."""

SCALE = int(os.environ.get("SKYWARD_TEST_SCALE", "1"))
"""What this run was asked for."""
