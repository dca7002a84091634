"""`skyward.toml` and the user's own file: precedence, locations and errors."""

from pathlib import Path
from typing import Any

import pytest

from skyward.accelerators import parse_accelerator
from skyward.config import load
from skyward.config.pools import configured_values
from skyward.errors import SpecError
from skyward.plugins.jax_plugin import Jax
from skyward.plugins.joblib_plugin import Sklearn
from skyward.plugins.keras_plugin import Keras
from skyward.plugins.mps_plugin import Mps
from skyward.pool.compute import Compute
from skyward.specs import Nodes, Options, Spec, Volume
from skyward_jupyter.options.settings import NAMES, settings_from
from skyward_providers.local import Local
from tests.unit.config.conftest import Write

pytestmark = pytest.mark.unit


def test_project_overrides_user_and_pool_overrides_defaults(project: Write, user: Write) -> None:
    user(
        """
        [defaults]
        region = "eu-west-1"
        ttl = 60
        [pools.train]
        budget = 5
        nodes = 4
        """
    )
    project(
        """
        [defaults]
        ttl = 90
        vcpus = 2
        [pools.train]
        nodes = "2:16"
        image.pip = ["numpy"]
        """
    )
    found = load().pool("train")
    assert {path: each.value for path, each in found.items()} == {
        "region": "eu-west-1",
        "ttl": 90,
        "vcpus": 2,
        "budget": 5,
        "nodes": Nodes(2, 16),
        "image.pip": ("numpy",),
    }
    assert found["nodes"].where == "skyward.toml:6"
    assert found["budget"].where.endswith("home/defaults.toml:6")
    assert configured_values("other") == {"region": "eu-west-1", "ttl": 90, "vcpus": 2}


def test_nearest_file_upwards_applies(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project("[defaults]\nvcpus = 1")
    below = path.parent / "notebooks" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert configured_values("default") == {"vcpus": 1}
    (below.parent / "skyward.toml").write_text("[defaults]\nvcpus = 2")
    assert configured_values("default") == {"vcpus": 2}
    assert configured_values("default") == {"vcpus": 2}
    (below.parent / "skyward.toml").write_text("[defaults]\nvcpus = 3.5")
    assert configured_values("default") == {"vcpus": 3.5}, "an edit applies at once"


def test_content_of_files_is_not_in_texts_of_objects(project: Write) -> None:
    project("[pools.x]\nimage.env = {API = 'topsecret'}")
    config = load()
    found = config.pool("x")["image.env"]
    assert found.value == {"API": "topsecret"}
    for each in (config, config.files, found):
        assert "topsecret" not in repr(each)
        assert "skyward.toml" in repr(each)


def test_without_files_configuration_is_empty(project: Write) -> None:
    assert load().files == ()
    assert configured_values("default") == {}


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        ("nodes = [2, 16]", "nodes", Nodes(2, 16)),
        ("nodes = 3", "nodes", Nodes(3)),
        ("nodes = {min = 4, desired = 2}", "nodes", Nodes(4, None, 2)),
        ("accelerator = 'A100:4'", "accelerator", parse_accelerator("A100:4")),
        ("provider = 'local'", "provider", Local()),
        ("image.env = {A = '1'}", "image.env", {"A": "1"}),
        ("worker.concurrency = 2", "worker.concurrency", 2),
        ("policy = 'binpack'", "policy", "binpack"),
        ("target_wait = 'fast'", "target_wait", "fast"),
        ("target_wait = '10m'", "target_wait", 600),
        ("target_wait = 30", "target_wait", 30),
        ("waiting_cost = 2.5", "waiting_cost", 2.5),
        ("consolidate_within = '5m'", "consolidate_within", 300),
        ("consolidate_within = 0", "consolidate_within", 0),
        ("console = 'silent'", "console", "silent"),
        ("console = false", "console", False),
        ("logging = false", "logging", False),
        ("resources = {CPU = 4}", "resources", {"CPU": 4}),
        ("capabilities = ['highmem']", "capabilities", {"highmem"}),
        ("volumes = [{bucket = 'b', mount = '/data'}]", "volumes", (Volume("b", "/data"),)),
        ("default_compute_timeout = 20", "default_compute_timeout", 20),
        ("default_compute_timeout = '2h'", "default_compute_timeout", 7200.0),
        ("ttl = '2m'", "ttl", 120.0),
        ("image.bootstrap_timeout = '90'", "image.bootstrap_timeout", 90.0),
        ("provider = 'local, local'", "provider", (Local(), Local())),
        ("provider = ['local']", "provider", Local()),
    ],
)
def test_values_are_converted_for_compute(project: Write, line: str, path: str, value: Any) -> None:
    project(f"[pools.x]\n{line}")
    assert configured_values("x") == {path: value}
    Compute(name="x")


def test_providers_of_a_list_are_alternatives_of_a_pool_and_of_a_group(project: Write) -> None:
    project(
        "[providers.dear]\ntype = 'local'\nhourly_price = 3.0\n[pools.x]\nprovider = ['local', 'dear']\n"
        "[pools.y.groups.all]\nvcpus = 1\nprovider = 'dear,local'"
    )
    dear = Local(hourly_price=3.0)
    assert configured_values("x") == {"provider": (Local(), dear)}
    assert [spec.provider for spec in Compute(name="x").groups["default"]] == [Local(), dear]
    assert [spec.provider for spec in Compute(name="y").groups["all"]] == [dear, Local()]


def test_table_named_like_a_provider_needs_no_type(project: Write) -> None:
    project("[providers.local]\nhourly_price = 3.0\n[pools.x]\nprovider = 'local'")
    assert configured_values("x") == {"provider": Local(hourly_price=3.0)}
    project("[providers.local]\n[pools.x]\nprovider = 'local'")
    assert configured_values("x") == {"provider": Local()}
    project("[providers.mine]\n[pools.x]\nprovider = 'mine'")
    with pytest.raises(SpecError, match=r"^skyward.toml:1, providers.mine: the table needs `type = ...`"):
        configured_values("x")


def test_decision_log_is_relative_to_the_file(project: Write) -> None:
    path = project("[defaults]\ndecision_log = 'days.jsonl'")
    assert configured_values("x") == {"decision_log": str(path.parent / "days.jsonl")}
    project("[defaults]\ndecision_log = '/abs/days.jsonl'")
    assert configured_values("x") == {"decision_log": "/abs/days.jsonl"}


def test_includes_are_relative_to_the_file(project: Write) -> None:
    path = project("[defaults]\nimage.includes = ['lib', '/abs']")
    assert configured_values("x") == {"image.includes": (str(path.parent / "lib"), "/abs")}


def test_provider_of_a_file_merges_the_tables_of_user_and_project(project: Write, user: Write) -> None:
    user("[providers.dear]\ntype = 'local'\nhourly_price = 2.0\nboot_time = 1.0")
    project("[providers.dear]\nhourly_price = 3.0\n[pools.x]\nprovider = 'dear'")
    assert configured_values("x") == {"provider": Local(hourly_price=3.0, boot_time=1.0)}


def test_compute_takes_fields_from_its_table(project: Write) -> None:
    project("[defaults]\nvcpus = 2\n[pools.train]\nnodes = 3\nbudget = 5\nimage.pip = ['numpy']")
    pool = Compute(name="train")
    assert (pool.spec.nodes, pool.options.budget, pool.spec.vcpus) == (Nodes(3), 5, 2)
    other = Compute(name="train", nodes=2, options=Options(budget=7))
    assert (other.spec.nodes, other.options.budget, other.spec.image.pip) == (Nodes(2), 7, ("numpy",))
    for plain in (Compute(), Compute(name="other"), Compute(Spec(), name="train")):
        assert (plain.spec.nodes, plain.options.budget, plain.spec.vcpus) == (Nodes(1), None, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pools.x]\nnodes = 'few'", "skyward.toml:2, pools.x.nodes: nodes must be N, MIN:MAX or DESIRED/MIN:MAX, "),
        (
            "[pools.x]\ngpu = 'A100'",
            "skyward.toml:2, pools.x.gpu: a pool has no such field; did you mean 'accelerator'?",
        ),
        ("[pools.x]\npip = []", "skyward.toml:2, pools.x.pip: a pool has no such field; did you mean 'image.pip'?"),
        ("[pools.x]\nnode = 3", "skyward.toml:2, pools.x.node: a pool has no such field; did you mean 'nodes'?"),
        (
            "[defaults]\nplugins = [3]",
            "skyward.toml:2, defaults.plugins: plugins must have names and tables of plugins, but it has a value of",
        ),
        ("[pool.x]\nnodes = 3", "skyward.toml:1, pool: there is no such table; did you mean 'pools'?"),
        ("pools = 3", "skyward.toml:1, pools: it must be a table, with `[pools]` above its keys."),
        ("[pools]\nx = 3", "skyward.toml:2, pools.x: it must be a table, with `[pools.x]` above its keys."),
        ("[pools.x]\nimage = 'torch'", "skyward.toml:2, pools.x.image: it must be a table, with `[pools.x.image]` "),
        ("[pools.x]\nbudget = '5'", "skyward.toml:2, pools.x.budget: budget must be a positive number, or None, but "),
        ("[pools.x]\nprovider = 3", "skyward.toml:2, pools.x.provider: provider must be the name "),
        ("[pools.x]\nttl = '2 moons'", "skyward.toml:2, pools.x.ttl: ttl must be seconds, or a duration such as"),
        (
            "[pools.x]\ntarget_wait = 'quick'",
            'skyward.toml:2, pools.x.target_wait: target_wait must be "fast", "balanced", "cheap", seconds, or a',
        ),
        ("[pools.x]\nprovider = ['local', 3]", "skyward.toml:2, pools.x.provider: provider must be the name "),
        ("[pools.x]\nprovider = 'lokal'", "skyward.toml:2, pools.x.provider: There is no provider 'lokal'; did you "),
        (
            "[pools.x]\nprovider = 'ssh'",
            "skyward.toml:2, pools.x.provider: provider 'ssh' needs settings: write them in a table",
        ),
        (
            "[providers.a]\nhourly_price = 1\n[pools.x]\nprovider = 'a'",
            "skyward.toml:2, providers.a.hourly_price: the table needs `type = ...`, the name of a provider; ",
        ),
        (
            "[providers.a]\ntype = 'local'\nprice = 1\n[pools.x]\nprovider = 'a'",
            "skyward.toml:3, providers.a.price: Local has no field 'price'; it has boot_time, ",
        ),
        (
            "[providers.a]\ntype = 'local'\nhourly_price = -1\n[pools.x]\nprovider = 'a'",
            "skyward.toml:3, providers.a.hourly_price: hourly_price must be a number of at least 0",
        ),
        (
            "[providers.a]\ntype = 'ssh'\n[pools.x]\nprovider = 'a'",
            "skyward.toml:2, providers.a.type: SSH needs more settings; the table lacks ",
        ),
        (
            "[providers.a]\ntype = 'ssh'\npython = 'python3'\nhosts = ['my python']\n[pools.x]\nprovider = 'a'",
            "skyward.toml:4, providers.a.hosts: hosts must name machines",
        ),
        ("[pools.x]\nvolumes = [{mount = '/a'}]", "skyward.toml:2, pools.x.volumes: volumes cannot be [{"),
    ],
)
def test_errors_have_their_location(project: Write, text: str, message: str) -> None:
    project(text)
    with pytest.raises(SpecError) as caught:
        configured_values("x")
    assert str(caught.value).startswith(message)


def test_unreadable_file_is_named(project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project("[pools.x]\nnodes = = 3")
    with pytest.raises(
        SpecError, match=r"skyward\.toml is not TOML: invalid value \(at line 2, .*\)\. Fix or remove the file"
    ):
        load()
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(SpecError, match=r"skyward\.toml is not UTF-8 text: save it as UTF-8, or remove it\.$"):
        load()
    path.unlink()
    monkeypatch.setenv("SKYWARD_DEFAULTS", str(tmp_path))
    with pytest.raises(SpecError, match=r"cannot be read \(Is a directory\): fix its permissions, or remove it\.$"):
        load()


def test_example_of_the_documentation_works(project: Write) -> None:
    text = (Path(__file__).parents[3] / "docs" / "use" / "cells.md").read_text()
    project(text.partition("```toml\n")[2].partition("```")[0])
    config = load()
    assert config.pools == ("train", "mixed")
    assert [len(specs) for specs in Compute(name="mixed").groups.values()] == [1, 2]
    pool = Compute(name="train")
    assert (pool.spec.nodes, pool.spec.image.pip) == (Nodes(2, 16), ("torch",))
    assert all(each.source != "default" for each in settings_from(dict.fromkeys(NAMES), (), config).values())


@pytest.mark.parametrize(
    "lines",
    [
        'plugins = ["jax", "keras"]',
        'plugins = [{jax = true}, {keras = {backend = "jax"}}]',
        '[pools.x.plugins]\nkeras = {backend = "jax"}\njax = true\ntorch = false',
    ],
)
def test_plugins_are_names_or_a_table_of_their_settings(project: Write, lines: str) -> None:
    project(f"[pools.x]\n{lines}")
    assert Compute(name="x").spec.plugins == (Jax(), Keras())


@pytest.mark.parametrize(
    "lines",
    [
        'plugins = [["hf_SECRET"]]',
        'plugins = [{huggingface = "hf_SECRET"}]',
        'plugins = {huggingface = "hf_SECRET"}',
        'plugins = {huggingface = {models = "hf", token = "hf_SECRET"}}',
        'plugins = {huggingface = {tokn = "hf_SECRET"}}',
        'plugins = {huggingface = {token = ["hf_SECRET"]}}',
        'image.pip_indexes = [{url = "https://me:hf_SECRET@host", nme = "x"}]',
        'image.pip_indexes = ["https://me:hf_SECRET@host"]',
    ],
)
def test_errors_show_no_secrets(project: Write, lines: str) -> None:
    project(f"[pools.x]\n{lines}\n")
    with pytest.raises(SpecError) as refused:
        Compute(name="x")
    assert "SECRET" not in str(refused.value)


def test_example_of_plugins_works(project: Write) -> None:
    text = (Path(__file__).parents[3] / "docs" / "use" / "plugins.md").read_text()
    project(text.partition("```toml\n")[2].partition("```")[0])
    assert Compute(name="train").spec.plugins == (Jax(), Keras())
    shared = Compute(name="shared")
    assert shared.spec.plugins == (Mps(active_thread_percentage=25), Sklearn())
    assert (shared.options.worker.concurrency, shared.options.worker.executor) == (4, "process")


def test_line_of_a_key_is_its_first_line(project: Write) -> None:
    project(
        '''
        # pools.x.nodes = 3

        [pools.x]
        region = """
        nodes = 1
        """

        # how many
        nodes = [
            2,
            16,
        ]
        [pools."y.z"]
        vcpus = 1
        '''
    )
    found = load().pool("x")
    assert (found["region"].where, found["nodes"].where) == ("skyward.toml:5", "skyward.toml:10")
    assert load().pool("y.z")["vcpus"].where == "skyward.toml:15"
