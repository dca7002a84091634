"""The vendors' published descriptions, against which the fakes of their clouds are checked."""

import pytest

from tests.fakes.openapi import SHARED

pytestmark = pytest.mark.cloud


@pytest.mark.parametrize("name", ["runpod-openapi-v1.json", "runpod-openapi-v2.json", "vastai-openapi.yaml"])
def test_description_is_on_this_machine(name: str) -> None:
    """Skip plainly where it is not: requests and answers are then checked by nothing but the vendor's own client."""
    file = SHARED / name
    if not file.exists():
        pytest.skip(f"{file} is not on this machine: requests and answers are not checked against it")
    assert file.stat().st_size > 0
