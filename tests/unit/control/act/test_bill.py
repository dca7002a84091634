"""The bill of a pool that is closed."""

import pytest

from skyward.control.act.bill import bill_notice
from skyward.journal.costs import MachineCosts

pytestmark = pytest.mark.unit


def costs(kind: str, machines: int, hours: float, spent: float, running: int = 0) -> MachineCosts:
    return MachineCosts("train", "train-1", kind, machines, running, hours, spent, 0.0)


def test_one_kind_is_one_line() -> None:
    found = [costs("aws g5.xlarge us-east-1 spot", 3, 4.1, 4.12)]
    assert bill_notice("train", found) == (
        "Pool 'train' cost $4.12: 3 machines of aws g5.xlarge us-east-1 spot, 4 h 6 min together, $4.12."
    )


def test_several_kinds_have_a_line_each_and_machines_just_kept_warm_have_none() -> None:
    found = [
        costs("aws p4d", 1, 1.0, 10.0),
        costs("runpod a100", 2, 1.0, 2.0),
        costs("runpod a100, kept warm", 1, 0.0, 0.00004, running=1),
    ]
    assert bill_notice("train", found).splitlines() == [
        "Pool 'train' cost $12.00:",
        "  1 machine of aws p4d, 1 h 0 min, $10.00",
        "  2 machines of runpod a100, 1 h 0 min together, $2.00",
    ]


def test_machines_that_were_cleaned_to_be_kept_warm_have_a_line() -> None:
    found = [
        costs("runpod a100", 1, 12 / 3600, 0.0012),
        costs("runpod a100, kept warm", 1, 18 / 3600, 0.0018, running=1),
    ]
    assert bill_notice("train", found).splitlines() == [
        "Pool 'train' cost $0.0030:",
        "  1 machine of runpod a100, 12 s, $0.0012",
        "  1 machine of runpod a100, kept warm, 18 s, $0.0018",
    ]


def test_pool_that_was_free_has_no_bill() -> None:
    assert bill_notice("train", []) == ""
