"""The pools of a kernel: opening, registration, comparison, replacement and closing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

import skyward as sky
from skyward.errors import NodeStartError, PoolClosedError, ProvisioningError, SpecError, UsageError
from skyward.specs import Image, Nodes, Spec, Storage, Volume, Worker
from skyward.specs.paths import compute_fields
from skyward_jupyter.options.cell_options import parse_cell
from skyward_kernel.pools import PoolManager, resident
from skyward_providers.local import Local
from tests.unit.jupyter.conftest import FakeCompute

pytestmark = pytest.mark.unit

type Pools = type[FakeCompute]


def test_pool_is_opened_on_first_use_and_kept(pools: PoolManager, compute: Pools) -> None:
    first = pools.get_or_open("train", {"nodes": Nodes(2), "image.pip": ("numpy",), "worker.concurrency": 3})
    assert first.is_open
    assert pools.get_or_open("train") is first is pools.get("train") is pools.find("train")
    assert compute.made[0].fields == {"nodes": Nodes(2), "image": Image(pip=["numpy"]), "worker": Worker(3)}
    assert pools.names == ["train"]
    assert pools.get_or_open().name == "default"


def test_unrequested_properties_are_not_compared(pools: PoolManager) -> None:
    asked = {"nodes": Nodes(2), "image.pip": ("numpy",), "image.env": {"A": "1"}}
    pool = pools.get_or_open("p", asked)
    for part in ({}, {"nodes": Nodes(2)}, {"image.pip": ("numpy",)}, {"image.env": {"A": "1"}}, asked):
        assert pools.get_or_open("p", part) is pool


def test_different_number_of_nodes_is_an_error_with_resize_command(pools: PoolManager) -> None:
    pools.get_or_open("p", {"nodes": Nodes(2)})
    with pytest.raises(SpecError) as caught:
        pools.get_or_open("p", {"nodes": Nodes(2, 8)})
    assert str(caught.value) == "Pool 'p' has --nodes 2, not 2:8: resize it with `%sky scale p 2:8`."


def test_different_hardware_is_an_error_that_lists_differences(pools: PoolManager) -> None:
    pools.get_or_open("p", {"vcpus": 4.0, "image.env": {"KEY": "secret"}})
    with pytest.raises(SpecError) as caught:
        pools.check("p", {"vcpus": 8.0, "nodes": Nodes(2), "image.env": {"TOKEN": "hidden"}, "region": "eu"})
    assert str(caught.value) == (
        "Pool 'p' has --vcpus 4, not 8; --nodes 1, not 2; --env KEY, not TOKEN; --region none, not eu: close it with "
        "`%sky down p` and run this again to replace it, or use another pool with `--pool NAME`."
    )


def test_other_volumes_are_a_difference(pools: PoolManager) -> None:
    images, results = Volume("b", "/data", "images"), Volume("b", "/out", read_only=False, mode="sync")
    pool = pools.get_or_open("p", {"volumes": (results, images)})
    assert pools.get_or_open("p", {"volumes": (images, results)}) is pool
    assert pools.get_or_open("p", {}) is pool
    with pytest.raises(SpecError) as caught:
        pools.check("p", {"volumes": (images,)})
    assert str(caught.value).startswith(
        "Pool 'p' has --volume s3://b/images:/data, s3://b:/out:sync, not s3://b/images:/data: replace its "
        "nodes one by one with `%sky update p` and the new options, close it with `%sky down p` and run this again to "
        "replace it"
    )
    other = replace(images, storage=Storage.minio("https://host", "key", "hidden"))
    with pytest.raises(SpecError, match="with other settings") as wrong:
        pools.check("p", {"volumes": (other, results)})
    assert "hidden" not in str(wrong.value)


def test_options_of_the_pool_are_compared(pools: PoolManager) -> None:
    pools.get_or_open("p", {"budget": 20.0})
    pools.check("p", {"budget": 20.0, "policy": "adaptive"})
    with pytest.raises(SpecError, match="^Pool 'p' has --budget 20, not 5: close it with `%sky down p`"):
        pools.check("p", {"budget": 5.0})


@pytest.mark.parametrize(
    "line",
    [
        "--provider aws --gpu A100 --plugin torch",
        "--provider aws --gpu A100 --plugin torch --pip numpy",
        "--provider aws --gpu A100 --plugin torch --env A=1",
        "--provider aws --gpu A100 --plugin keras,jax",
        "--provider aws --gpu A100:4 --plugin torch --concurrency 1",
        "--provider aws --gpu A100:4 --plugin torch --executor auto --budget 5",
        "--nodes 2 --plugin accelerate,torch",
        "--plugin joblib --pip joblib",
    ],
)
def test_what_plugins_add_is_no_difference(pools: PoolManager, line: str) -> None:
    """Each line would work once, and be refused from then on."""
    asked = parse_cell(line).asked
    pool = pools.get_or_open("p", asked)
    assert pools.get_or_open("p", asked) is pool
    assert pools.raise_budget("p", {**asked, "budget": 9.0})
    for path, value in asked.items():
        assert pools.get_or_open("p", {path: value} if path != "budget" else {}) is pool


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("--pip pandas", "--pip numpy, torch, not pandas, torch"),
        ("--env B=1", "--env A, UV_TORCH_BACKEND, not B, UV_TORCH_BACKEND"),
        ("--plugin jax", "--plugin "),
        ("--executor thread", "--executor process, not thread"),
        ("--concurrency 8", "--concurrency 4, not 8"),
        ("--concurrency 2", "--concurrency 4, not 2"),
        ("--gpu A100:8", "--gpu A100-80GB:4, not A100-80GB:8"),
    ],
)
def test_other_properties_beside_plugins_are_a_difference(pools: PoolManager, other: str, message: str) -> None:
    pools.get_or_open("p", parse_cell("--provider aws --gpu A100:4 --plugin torch --pip numpy --env A=1").asked)
    with pytest.raises(SpecError, match=f"^Pool 'p' has {message}"):
        pools.check("p", parse_cell(other).asked)


def test_local_is_the_default_provider_in_comparisons(pools: PoolManager) -> None:
    pool = pools.get_or_open("p")
    assert pools.get_or_open("p", {"provider": Local()}) is pool


@pytest.mark.parametrize(
    ("has", "asked", "texts"),
    [
        ({}, sky.AWS(), "local, not aws"),
        ({}, "aws", "local, not aws"),
        ({}, (sky.RunPod(), sky.AWS()), "local, not runpod,aws"),
        ({"provider": sky.AWS()}, Local(), "aws, not local"),
    ],
)
def test_providers_that_differ_are_named(pools: PoolManager, has: dict[str, Any], asked: object, texts: str) -> None:
    pools.get_or_open("p", has)
    with pytest.raises(SpecError, match=f"^Pool 'p' has --provider {texts}: close it with"):
        pools.get_or_open("p", {"provider": asked})


def test_providers_of_one_name_with_other_settings_differ(pools: PoolManager) -> None:
    secure, community = sky.RunPod(cloud_type="secure", container_disk_gb=60), sky.RunPod(cloud_type="community")
    pool = pools.get_or_open("p", {"provider": secure})
    for same in (secure, sky.RunPod(), "runpod"):
        assert pools.get_or_open("p", {"provider": same}) is pool
    with pytest.raises(SpecError, match="^Pool 'p' has --provider runpod with other settings: close it with"):
        pools.get_or_open("p", {"provider": community})
    pools.get_or_open("both", {"provider": (secure, community)})
    with pytest.raises(SpecError, match="with other settings"):
        pools.get_or_open("both", {"provider": community})


def test_scaling_updates_the_size_used_in_comparisons(pools: PoolManager, compute: Pools) -> None:
    pools.get_or_open("p", {"nodes": Nodes(2)})
    assert pools.scale("p", 4) == Nodes(4)
    assert compute.made[0].nodes == Nodes(4)
    pools.check("p", {"nodes": Nodes(4)})
    with pytest.raises(SpecError, match="has --nodes 4, not 2"):
        pools.check("p", {"nodes": Nodes(2)})


def test_pool_closed_by_code_is_unregistered(pools: PoolManager, compute: Pools) -> None:
    pools.get_or_open("p", {"nodes": Nodes(2), "vcpus": 4.0}).close()
    assert pools.names == []
    with pytest.raises(UsageError, match="There is no pool 'p'"):
        pools.close("p")
    pools.get_or_open("p", {"nodes": Nodes(3)})
    assert compute.made[1].fields == {"nodes": Nodes(3)}


def test_late_close_does_not_unregister_a_new_pool_of_the_same_name(pools: PoolManager) -> None:
    first = pools.get_or_open("p")
    pools.close("p")
    second = pools.get_or_open("p")
    first.close()
    assert pools.find("p") is second


def test_pool_without_nodes_is_replaced(pools: PoolManager, compute: Pools) -> None:
    pools.get_or_open("p", {"vcpus": 4.0})
    pools.scale("p", 3)
    compute.made[0].alive = False
    assert pools.get_or_open("p").is_open
    dead, replaced = cast("list[Any]", compute.made)
    assert dead.closed == 1
    assert replaced.fields == {"nodes": Nodes(3), "vcpus": 4.0}, "it has the same properties"
    assert pools.find("p") is pools.peek("p") is replaced


def test_pool_that_was_updated_is_replaced_by_one_like_it(pools: PoolManager, compute: Pools) -> None:
    first: Any = pools.get_or_open("p", {"vcpus": 4.0, "image.pip": ("numpy",)})
    first.spec = replace(first.spec, vcpus=8.0, image=Image(pip=["pandas"]))
    first.groups = {"default": (first.spec,)}
    first.alive = False
    second: Any = pools.get_or_open("p")
    assert second is not first
    assert (second.spec.vcpus, second.spec.image.pip) == (8.0, ("pandas",))


def test_cell_that_opened_a_pool_runs_again_after_an_update(
    pools: PoolManager, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"nodes": Nodes(1), "image.env": {"V": "1"}}
    first: Any = pools.get_or_open("p", asked)
    first.spec = replace(first.spec, image=Image(env={"V": "2"}))
    first.groups = {"default": (first.spec,)}
    pools.check("p", asked)
    assert capsys.readouterr().err == ""
    assert pools.get_or_open("p", asked) is first
    assert "has been updated since it was opened with this --env; it is used as it is now" in capsys.readouterr().err
    assert pools.get_or_open("p", {"image.env": {"V": "2"}}) is first
    assert capsys.readouterr().err == ""
    with pytest.raises(SpecError, match=r"one by one with `%sky update p` and the new options, close it with"):
        pools.get_or_open("p", {"image.env": {"V": "3"}})


def test_pool_that_fails_to_open_is_unregistered(pools: PoolManager, compute: Pools) -> None:
    compute.fail = NodeStartError("no machine")
    with pytest.raises(NodeStartError, match="no machine"):
        pools.get_or_open("p")
    assert pools.names == []
    (failed,) = pools.failed_starts
    assert (failed.name, failed.reason) == ("p", "no machine")
    compute.fail = None
    assert pools.get_or_open("p").is_open
    assert pools.failed_starts == (), "it is open again"


def test_failed_start_is_listed_until_it_is_dismissed(pools: PoolManager, compute: Pools) -> None:
    compute.fail = OSError()
    for name in ("p", "q"):
        with pytest.raises(OSError, match="^$"):
            pools.get_or_open(name)
    pools.dismiss("p")
    pools.dismiss("p")
    assert [(each.name, each.reason) for each in pools.failed_starts] == [("q", "OSError")]


@pytest.mark.parametrize("error", [PoolClosedError("closed"), KeyboardInterrupt()])
def test_start_that_the_user_ends_is_not_a_failure(
    pools: PoolManager, compute: Pools, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute, "fail", error)
    with pytest.raises(type(error)):
        pools.get_or_open("p")
    assert (pools.names, pools.failed_starts) == ([], ())


def test_close_unregisters_the_pool(pools: PoolManager, compute: Pools) -> None:
    pools.get_or_open("p")
    pools.close("p")
    assert compute.made[0].closed == 1
    assert pools.names == []
    assert pools.find("p") is None
    pools.check("p", {"vcpus": 64.0})


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "There is no pool 'x'; open it with `%sky up x`."),
        (["a"], "There is no pool 'x'; there is 'a'."),
        (["a", "b"], "There is no pool 'x'; there are 'a', 'b'."),
    ],
)
def test_unknown_name_is_an_error_that_lists_pools(pools: PoolManager, names: list[str], message: str) -> None:
    for name in names:
        pools.get_or_open(name)
    for call in (pools.get, pools.close, lambda name: pools.scale(name, 2)):
        with pytest.raises(UsageError) as caught:
            call("x")
        assert str(caught.value) == message


def test_close_all_closes_every_pool_once_and_continues_after_an_error(pools: PoolManager, compute: Pools) -> None:
    for name in "abc":
        pools.get_or_open(name)

    def broken() -> None:
        raise RuntimeError("the cloud is down")

    compute.made[1].close = broken  # type: ignore[method-assign]
    with pytest.raises(ProvisioningError, match=r"^Pool 'b': the cloud is down$"):
        pools.close_all()
    assert [pool.closed for pool in compute.made] == [1, 0, 1]
    assert pools.close_all() == {}


def test_concurrent_threads_get_the_same_pool(pools: PoolManager, compute: Pools) -> None:
    inside, go = threading.Event(), threading.Event()
    found: list[object] = []

    @contextmanager
    def slowly(_: object) -> Iterator[None]:
        inside.set()
        assert go.wait(10)
        yield

    threads = [threading.Thread(target=lambda: found.append(pools.get_or_open("p", opening=slowly))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert inside.wait(10)
    go.set()
    for thread in threads:
        thread.join(10)
    assert len(compute.made) == 1
    assert found == [compute.made[0]] * 4


# Pools that code makes.


@pytest.fixture
def observing(pools: PoolManager) -> Iterator[PoolManager]:
    """A pool manager that registers the pools that code opens."""
    pools.observe()
    yield pools
    pools.stop_observing()


def test_pool_opened_by_code_is_registered(observing: PoolManager, compute: Pools) -> None:
    pool: Any = compute(name="train", nodes=2, vcpus=4.0)
    assert observing.names == []
    pool.open()
    assert observing.names == ["train"]
    assert observing.get("train") is observing.find("train") is observing.get_or_open("train") is pool
    observing.check("train", {"nodes": Nodes(2), "vcpus": 4.0})
    with pytest.raises(SpecError) as caught:
        observing.get_or_open("train", {"nodes": Nodes(2), "vcpus": 8.0, "image.pip": ("numpy",)})
    assert str(caught.value) == (
        "Pool 'train' has --vcpus 4, not 8; --pip none, not numpy: replace its nodes one by one with "
        "`%sky update train` and the new options, close it with `%sky down train` and run this again to replace it, or "
        "use another pool with `--pool NAME`."
    )


@pytest.mark.parametrize("closed_by", ["code", "name", "all"])
def test_pool_of_code_is_closed_by_code_or_by_name(observing: PoolManager, compute: Pools, closed_by: str) -> None:
    pool: Any = compute(name="train")
    pool.open()
    match closed_by:
        case "code":
            pool.close()
        case "name":
            observing.close("train")
        case "all":
            assert observing.close_all() == {"train": 0}
    assert (pool.closed, observing.names) == (1, [])
    pool.open()
    assert observing.find("train") is pool, "it can be opened again"


def test_resize_by_code_updates_the_size_used_in_comparisons(observing: PoolManager, compute: Pools) -> None:
    pool: Any = compute(name="train", nodes=2)
    pool.open()
    pool.resize((2, 8))
    observing.check("train", {"nodes": Nodes(2, 8)})
    with pytest.raises(SpecError, match="has --nodes 2:8, not 2: resize it with `%sky scale train 2`"):
        observing.check("train", {"nodes": Nodes(2)})


def test_pool_with_several_groups_suggests_to_resize_a_group(observing: PoolManager, compute: Pools) -> None:
    groups = {"cpu": Spec(vcpus=4), "gpu": Spec(accelerator="A100")}
    compute(name="mixed", groups=groups).open()
    with pytest.raises(SpecError) as caught:
        observing.check("mixed", {"nodes": Nodes(3)})
    assert str(caught.value) == (
        "Pool 'mixed' has --nodes 1, not 3: resize a group of it, as with `%sky scale mixed 3 --group cpu`."
    )


def test_group_of_a_pool_with_several_is_resized_by_its_name(observing: PoolManager, compute: Pools) -> None:
    groups = {"cpu": Spec(vcpus=4), "gpu": Spec(accelerator="A100")}
    made: Any = compute(name="mixed", groups=groups)
    made.open()
    resized: list[Any] = []
    made.resize = lambda *given: resized.append(given)
    changes: list[Callable[[], object]] = [
        lambda: observing.scale("mixed", (0, 4)),
        lambda: observing.update("mixed", {"image.pip": ("torch",)}),
    ]
    for change in changes:
        with pytest.raises(SpecError, match=r"^Pool 'mixed' has the groups 'cpu' and 'gpu': name one, as in `%sky "):
            change()
    assert observing.scale("mixed", (0, 4), "gpu") == Nodes(0, 4)
    assert resized == [(Nodes(0, 4), "gpu")]


def test_second_pool_of_the_same_name_is_rejected_before_it_opens(observing: PoolManager, compute: Pools) -> None:
    observing.get_or_open("made")
    compute(name="coded").open()
    for name in ("made", "coded"):
        second: Any = compute(name=name)
        with pytest.raises(UsageError) as caught:
            second.open()
        assert str(caught.value) == (
            f"There is a pool {name!r} in this kernel already: close it with `%sky down {name}`, or use another name "
            "for the new one."
        )
        assert not second.is_open
        assert observing.get(name) is not second


def test_interrupted_close_frees_the_name(observing: PoolManager, compute: Pools) -> None:
    first: Any = compute(name="train")
    first.open()
    first.is_open = False  # closed without a notification
    second: Any = compute(name="train")
    second.open()
    assert observing.find("train") is second


def test_pool_of_code_that_fails_to_open_is_unregistered(observing: PoolManager, compute: Pools) -> None:
    compute.fail = NodeStartError("no machine")
    with pytest.raises(NodeStartError):
        compute(name="train").open()
    assert observing.names == []
    assert [each.name for each in observing.failed_starts] == ["train"]
    compute.fail = None
    compute(name="train").open()
    assert observing.failed_starts == ()


def test_interrupted_wait_for_a_pool_of_code_keeps_it_registered(
    observing: PoolManager, compute: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = compute(name="train")
    pool.open()
    pool.is_open = False
    monkeypatch.setattr(compute, "fail", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        observing.get_or_open("train")
    assert observing.names == ["train"]
    assert observing.failed_starts == ()


def test_pool_of_code_without_nodes_is_reopened(observing: PoolManager, compute: Pools) -> None:
    pool: Any = compute(name="train", vcpus=4.0)
    pool.open()
    pool.alive = False
    with pytest.raises(SpecError, match="has --vcpus 4, not 8"):
        observing.get_or_open("train", {"vcpus": 8.0})
    again: Any = observing.get_or_open("train")
    assert (again.closed, len(compute.made)) == (1, 1)
    assert again is observing.find("train")
    assert again is pool
    again.close()
    assert observing.names == []


def test_cell_waits_for_code_that_opens_its_pool(
    observing: PoolManager, compute: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens, go = threading.Lock(), threading.Event()
    open_it = compute.open

    def slowly(self: FakeCompute) -> FakeCompute:
        with opens:
            return open_it(self)

    monkeypatch.setattr(compute, "open", slowly)
    inside = threading.Event()

    @contextmanager
    def shown(_: object) -> Iterator[None]:
        inside.set()
        assert go.wait(10)
        yield

    observing.observe(shown)
    pool: Any = compute(name="train")
    found: list[object] = []
    code = threading.Thread(target=pool.open)
    cell = threading.Thread(target=lambda: found.append(observing.get_or_open("train")))
    code.start()
    assert inside.wait(10)
    cell.start()
    go.set()
    for thread in (code, cell):
        thread.join(10)
    assert found == [pool]
    assert (len(compute.made), pool.closed) == (1, 0)


def test_opening_progress_is_shown_once(observing: PoolManager, compute: Pools) -> None:
    shown: list[str] = []

    @contextmanager
    def show(pool: Any) -> Iterator[None]:
        shown.append(pool.name)
        yield

    observing.observe(show)
    compute(name="coded").open()
    observing.get_or_open("cell", opening=show)
    observing.get_or_open("panel")
    assert shown == ["coded", "cell"]


def test_pools_already_open_are_registered_when_observing_begins(
    pools: PoolManager, compute: Pools, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Any] = [compute(name=name) for name in ("train", "train", "other")]
    first, _, other = made
    monkeypatch.setitem(vars(PoolManager)["observe"].__globals__, "opened", made)
    for pool in made:
        pool.open()
    pools.observe()
    try:
        assert [pools.get(name) for name in pools.names] == [first, other]
        assert capsys.readouterr().err == (
            "Two open pools are named 'train'; cells and views use one of them. Close the other, and open it again "
            "under another name.\n"
        )
    finally:
        pools.stop_observing()
    assert pools.names == []
    assert first.is_open, "it still belongs to the code that made it"
    compute(name="train").open()
    assert pools.names == []


def test_dotted_paths_become_parts_of_image_and_worker() -> None:
    assert compute_fields({}) == {}
    assert compute_fields({"nodes": Nodes(1), "image.python": "3.13", "worker.executor": "process"}) == {
        "nodes": Nodes(1),
        "image": Image(python="3.13"),
        "worker": Worker(executor="process"),
    }


def test_kernel_has_one_manager() -> None:
    assert resident() is resident()
