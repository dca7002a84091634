"""Errors are one clear sentence with the fix, and leave the pool as it was."""

import os
import threading
from pathlib import Path

import pytest

import skyward as sky
from tests.local import tasks

pytestmark = pytest.mark.local


def test_exception_keeps_its_type_and_its_traceback(each_executor: sky.Compute) -> None:
    with pytest.raises(ValueError, match="^wrong number$") as caught:
        tasks.fail("wrong number") >> each_executor
    cause = caught.value.__cause__
    assert isinstance(cause, sky.RemoteTraceback)
    text = str(cause)
    assert "Traceback (most recent call last on node " in text
    assert "raise ValueError(message)" in text
    assert "skyward/worker" not in text


def test_exception_type_of_the_caller_is_preserved(pool: sky.Compute) -> None:
    class LocalError(Exception):
        pass

    @sky.function
    def fail() -> None:
        raise LocalError("mine")

    with pytest.raises(LocalError, match="^mine$"):
        fail() >> pool


def test_chain_of_exceptions_is_complete(pool: sky.Compute) -> None:
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


def test_unpicklable_parts_of_an_exception_are_dropped(pool: sky.Compute) -> None:
    @sky.function
    def fail() -> None:
        error = OSError("broken pipe")
        error.lock = threading.Lock()  # type: ignore[attr-defined]  # makes it unpicklable
        raise error

    with pytest.raises(OSError, match="^broken pipe") as caught:
        fail() >> pool
    assert caught.value.__notes__ == ["Not sent from the node, because it cannot be pickled: lock."]
    assert "broken pipe" in str(caught.value.__cause__)


def test_broadcast_that_fails_on_every_node_raises_a_group_of_the_common_type(pool: sky.Compute) -> None:
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


def test_broadcast_that_fails_on_one_node_raises_its_exception(pool: sky.Compute) -> None:
    @sky.function
    def fail_on(rank: int) -> None:
        if sky.instance_info().node == rank:
            raise LookupError("only here")

    with pytest.raises(LookupError, match="^only here") as caught:
        fail_on(1) @ pool
    assert type(caught.value) is LookupError
    assert caught.value.__notes__ == ["It failed on node 1, of 2 nodes."]


def test_broadcast_with_different_errors_raises_a_group(pool: sky.Compute) -> None:
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


def test_argument_that_cannot_be_pickled_is_refused(pool: sky.Compute) -> None:
    with pytest.raises(
        sky.NotPicklableError,
        match=r"^argument 2 of add\(\) cannot be sent to a node: .*\['lock'\] is of type _thread.lock, which cannot "
        r"be pickled \(.*\)\. Make it on the node, or leave it out\.$",
    ):
        tasks.add(1, {"lock": threading.Lock()}) >> pool  # type: ignore[arg-type]  # intended
    assert tasks.add(1, 2) >> pool == 3


def test_closure_that_cannot_be_pickled_is_refused(pool: sky.Compute) -> None:
    lock = threading.Lock()

    @sky.function
    def locked() -> bool:
        return lock.locked()

    with pytest.raises(
        sky.NotPicklableError, match=r"^function .*locked cannot .* \(closure variable lock\) is of type"
    ):
        locked() >> pool


def test_no_call_of_a_group_is_sent_if_one_cannot_be_pickled(pool: sky.Compute, tmp_path: object) -> None:
    path = f"{tmp_path}/never"
    with pytest.raises(sky.NotPicklableError):
        sky.gather(tasks.append(path, "x"), tasks.append(path, threading.Lock())) >> pool  # type: ignore[arg-type]
    assert not os.path.exists(path)


def test_result_that_cannot_be_pickled_is_refused(pool: sky.Compute) -> None:
    @sky.function
    def lock() -> object:
        return {"inner": [threading.Lock()]}

    with pytest.raises(
        sky.NotPicklableError, match=r"^the result of lock\(\) cannot be sent back .*\['inner'\]\[0\] is of type"
    ):
        lock() >> pool


def test_module_missing_on_the_node_is_explained(each_executor: sky.Compute) -> None:
    with pytest.raises(
        sky.MissingModuleError,
        match=r"^module 'a_module_that_nobody_has' is not installed on node \d; it is not installed on this machine "
        r"either, so check the name first; if you mean the package 'a-module-that-nobody-has', add it with `--pip "
        r"a-module-that-nobody-has` on the cell, or Image\(pip=\['a-module-that-nobody-has'\]\) in code$",
    ):
        tasks.import_missing() >> each_executor


def test_closed_pool_is_refused() -> None:
    pool = sky.Compute(nodes=1, name="early")
    with pytest.raises(sky.PoolClosedError, match="^Pool 'early' is not open; use it inside `with sky.Compute"):
        tasks.add(1, 2) >> pool


def test_nested_use_from_a_task_is_refused(pool: sky.Compute) -> None:
    with pytest.raises(sky.OnNodeError, match="^A pool cannot be opened from inside a task; open it in the notebook"):
        tasks.nested() >> pool


def test_operator_inside_a_task_is_refused(pool: sky.Compute) -> None:
    @sky.function
    def inner() -> object:
        return tasks.add(1, 2) >> sky

    with pytest.raises(sky.OnNodeError, match="was used inside node"):
        inner() >> pool


def test_instance_info_outside_a_node_is_refused() -> None:
    with pytest.raises(sky.NotOnNodeError):
        sky.instance_info()


def test_worker_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    """Three attempts per node, then the reason, and no process is left running."""
    (tmp_path / "casty.py").write_text("raise ImportError('broken on purpose')")
    image = sky.Image(env={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(
        sky.NodeStartError,
        match=r"(?s)^Pool 'broken' could not start node 0: the worker ended during startup .*broken on purpose",
    ):
        sky.Compute(nodes=1, name="broken", image=image, bootstrap_timeout=10).open()


def test_unknown_provider_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(sky.ProviderMissingError, match="^There is no provider 'locall'; did you mean 'local'?"):
        sky.Compute(provider="locall").open()


def test_fields_that_the_local_provider_ignores_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with sky.Compute(nodes=1, accelerator="A100", image=sky.Image(apt=["ffmpeg"])):
        pass
    printed = capsys.readouterr().err
    assert printed.count("Local nodes run on this machine as it is; ") == 1
    assert "; asked for A100, a local node has none, and runs without it; not acted on: image.apt." in printed
