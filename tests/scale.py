"""Scale of tests whose figures depend on it: small in CI, full by hand."""

import os

__all__ = ["FULL", "SCALE"]

FULL = 10
"""Scale at which the tests reach their promised figures: `SKYWARD_TEST_SCALE=10 pytest ...`."""

SCALE = int(os.environ.get("SKYWARD_TEST_SCALE", "1"))
"""The scale of this run."""
