"""What goes wrong arrives as one clear sentence, with the fix, and leaves the pool as it was."""

import os
import threading
from pathlib import Path

import pytest

import skyward as sky
from tests.local import tasks

pytestmark = pytest.mark.local


def test_an_exception_keeps_its_type_and_its_traceback(each_executor: sky.Compute) -> None:
    with pytest.raises(ValueError, match="^wrong number$") as caught:
        tasks.fail("wrong number") >> each_executor
    cause = caught.value.__cause__
    assert isinstance(cause, sky.RemoteTraceback)
    text = str(cause)
    assert "Traceback (most recent call last on node " in text
    assert "raise ValueError(message)" in text
    assert "skyward/worker" not in text


def test_a_type_of_the_caller_comes_back_as_itself(pool: sky.Compute) -> None:
    class LocalError(Exception):
        pass

    @sky.function
    def fail() -> None:
        raise LocalError("mine")

    with pytest.raises(LocalError, match="^mine$"):
        fail() >> pool


def test_a_chain_of_exceptions_is_told_whole(pool: sky.Compute) -> None:
    @sky.function
    def fail() -> None:
        try:
            dict[str, int]()["key"]
        except KeyError as error:
            raise RuntimeError("no such key") from error

    with pytest.raises(RuntimeError, match="^no such key$") as caught:
        fail() >> pool
    text = str(caught.value.__cause__)
    assert "KeyError: 'key'" in text
    assert "direct cause" in text


def test_what_of_an_exception_cannot_travel_stays_behind(pool: sky.Compute) -> None:
    @sky.function
    def fail() -> None:
        error = OSError("broken pipe")
        error.lock = threading.Lock()  # type: ignore[attr-defined]  # makes it unpicklable
        raise error

    with pytest.raises(OSError, match="^broken pipe") as caught:
        fail() >> pool
    assert caught.value.__notes__ == ["Left behind on the node, because it cannot be pickled: lock."]
    assert "broken pipe" in str(caught.value.__cause__)


def test_a_broadcast_that_fails_on_every_node_raises_a_group_of_the_type_that_they_raised(pool: sky.Compute) -> None:
    with pytest.raises(ValueError, match="^bad") as caught:
        tasks.fail("bad") @ pool
    assert caught.value.__notes__ == ["It failed on nodes 0 and 1, of 2 nodes."]
    group = caught.value
    assert isinstance(group, sky.NodeErrors)
    assert group.nodes == (0, 1)
    assert [type(error) for error in group.exceptions] == [ValueError, ValueError]
    for rank, error in enumerate(group.exceptions):
        assert f"on node {rank}" in str(error.__cause__)
    assert isinstance(group.__cause__, sky.RemoteTraceback)


def test_a_broadcast_that_fails_on_one_node_raises_what_that_raised(pool: sky.Compute) -> None:
    @sky.function
    def fail_on(rank: int) -> None:
        if sky.instance_info().node == rank:
            raise LookupError("only here")

    with pytest.raises(LookupError, match="^only here") as caught:
        fail_on(1) @ pool
    assert type(caught.value) is LookupError
    assert caught.value.__notes__ == ["It failed on node 1, of 2 nodes."]


def test_a_broadcast_that_fails_in_several_ways_raises_a_group(pool: sky.Compute) -> None:
    @sky.function
    def fail() -> None:
        raise (ValueError, KeyError)[sky.instance_info().node]("bad")

    seen: list[list[type]] = []
    try:
        fail() @ pool
    except* ValueError as errors:
        seen.append([type(error) for error in errors.exceptions])
    except* KeyError as errors:
        seen.append([type(error) for error in errors.exceptions])
    assert seen == [[ValueError], [KeyError]]
    with pytest.raises(sky.NodeErrors, match=r"^fail\(\) failed on nodes 0 and 1"):
        fail() @ pool


def test_an_argument_that_cannot_be_pickled(pool: sky.Compute) -> None:
    with pytest.raises(
        sky.NotPicklableError,
        match=r"^argument 2 of add\(\) cannot be sent to a node: .*\['lock'\] is of type _thread.lock, which cannot "
        r"be pickled \(.*\)\. Make it on the node, or leave it out\.$",
    ):
        tasks.add(1, {"lock": threading.Lock()}) >> pool  # type: ignore[arg-type]  # that is the mistake
    assert tasks.add(1, 2) >> pool == 3


def test_a_closure_that_cannot_be_pickled(pool: sky.Compute) -> None:
    lock = threading.Lock()

    @sky.function
    def locked() -> bool:
        return lock.locked()

    with pytest.raises(
        sky.NotPicklableError, match=r"^function .*locked cannot .* \(closure variable lock\) is of type"
    ):
        locked() >> pool


def test_nothing_of_a_group_is_sent_when_one_member_cannot_travel(pool: sky.Compute, tmp_path: object) -> None:
    path = f"{tmp_path}/never"
    with pytest.raises(sky.NotPicklableError):
        sky.gather(tasks.append(path, "x"), tasks.append(path, threading.Lock())) >> pool  # type: ignore[arg-type]
    assert not os.path.exists(path)


def test_a_result_that_cannot_be_pickled(pool: sky.Compute) -> None:
    @sky.function
    def lock() -> object:
        return {"inner": [threading.Lock()]}

    with pytest.raises(
        sky.NotPicklableError, match=r"^the result of lock\(\) cannot be sent back .*\['inner'\]\[0\] is of type"
    ):
        lock() >> pool


def test_a_module_that_is_missing_on_the_node(each_executor: sky.Compute) -> None:
    with pytest.raises(
        sky.MissingModuleError,
        match=r"^module 'a_module_that_nobody_has' is not installed on node \d; nothing here brings it either, so "
        r"check the name first; if the package 'a-module-that-nobody-has' is the one you mean, add it with `--pip "
        r"a-module-that-nobody-has` on the cell, or Image\(pip=\['a-module-that-nobody-has'\]\) in code$",
    ):
        tasks.import_missing() >> each_executor


def test_a_closed_pool() -> None:
    pool = sky.Compute(nodes=1, name="early")
    with pytest.raises(sky.PoolClosedError, match="^Pool 'early' is not open; use it inside `with sky.Compute"):
        tasks.add(1, 2) >> pool


def test_nested_use_from_a_task(pool: sky.Compute) -> None:
    with pytest.raises(
        sky.NotOnNodeError, match="^A pool cannot be opened from inside a task; open it in the notebook"
    ):
        tasks.nested() >> pool


def test_an_operator_used_inside_a_task(pool: sky.Compute) -> None:
    @sky.function
    def inner() -> object:
        return tasks.add(1, 2) >> sky

    with pytest.raises(sky.NotOnNodeError, match="was used inside node"):
        inner() >> pool


def test_instance_info_off_a_node() -> None:
    with pytest.raises(sky.NotOnNodeError):
        sky.instance_info()


def test_a_worker_that_cannot_start_is_told_with_its_log(tmp_path: Path) -> None:
    """Three tries for a node, then the reason, and nothing left running."""
    (tmp_path / "casty.py").write_text("raise ImportError('broken on purpose')")
    image = sky.Image(env={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(
        sky.NodeStartError,
        match=r"(?s)^Pool 'broken' could not start node 0: the worker ended as it .*broken on purpose",
    ):
        sky.Compute(nodes=1, name="broken", image=image, bootstrap_timeout=10).open()


def test_an_unknown_provider_is_told_with_the_nearest() -> None:
    with pytest.raises(sky.ProviderMissingError, match="^There is no provider 'locall'; did you mean 'local'?"):
        sky.Compute(provider="locall").open()


def test_what_the_local_provider_does_not_act_on_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with sky.Compute(nodes=1, accelerator="A100", image=sky.Image(apt=["ffmpeg"])):
        pass
    said = capsys.readouterr().err
    assert said.count("Local nodes run on this machine as it is; ") == 1
    assert "; asked for A100, a local node has none; not acted on: image.apt." in said
