"""Notices about machines that wait at their provider."""

from skyward.control.act.machines.waiting import WaitingMachines


def test_one_notice_for_each_reason_counts_the_machines() -> None:
    now = [0.0]
    waiting = WaitingMachines(lambda: now[0])
    full = "waits for free nodes (Resources)"
    told = []
    for now[0] in (0.0, 29.0, 31.0, 36.0):
        told += [waiting.update(job, f"its job {job} {full}") for job in ("7", "8")]
    assert [each for each in told if each] == ["2 nodes wait, each because its job waits for free nodes (Resources)."]
    waiting.forget("7")
    assert not waiting.update("8", "its job 8 waits for jobs of a higher priority (Priority)")
    now[0] = 70.0
    assert waiting.update("8", "its job 8 waits for jobs of a higher priority (Priority)") == (
        "1 node waits: its job waits for jobs of a higher priority (Priority)."
    )


def test_machine_that_gives_no_reason_is_not_told() -> None:
    now = 0.0
    waiting = WaitingMachines(lambda: now)
    assert not waiting.update("7", "")
    now = 100.0
    assert not waiting.update("7", "")
    assert not waiting.update("7", "its job waits"), "this reason is new"
