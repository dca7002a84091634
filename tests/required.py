"""Tests with requirements that not every machine meets."""

import os

import pytest

__all__ = ["leave_out_for"]


def leave_out_for(reason: str, variable: str) -> None:
    """Skip the test for a reason; fail if `variable` is "required", as in CI."""
    if reason and os.environ.get(variable) == "required":
        pytest.fail(f"{variable}=required, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)
