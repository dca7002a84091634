"""Tests that need what not every machine has."""

import os

import pytest

__all__ = ["leave_out_for"]


def leave_out_for(reason: str, variable: str) -> None:
    """Skip the test if there is a reason, saying it; fail where `variable` is "required", as it is in CI."""
    if reason and os.environ.get(variable) == "required":
        pytest.fail(f"{variable}=required, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)
