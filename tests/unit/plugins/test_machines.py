"""Plugins for GPUs whose work is on machines: real shells and processes, with stand-ins for the commands of NVIDIA."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import skyward as sky
from skyward.errors import NodeStartError
from skyward.plugins.nodes import mps_node
from skyward.plugins.nodes.cuml_node import CumlOnNode
from skyward.plugins.nodes.mig_node import MigOnNode
from skyward.plugins.nodes.mps_node import MpsOnNode
from skyward.specs.plugin import PluginStep
from skyward.task.instance import InstanceInfo
from tests.unit.plugins.stand_ins import Machine, is_alive
from tests.waiting import wait_for

pytestmark = pytest.mark.unit

INFO = InstanceInfo(node=3, total_nodes=4, workers_per_node=4)


def mig(profile: str, accelerator: str = "A100:2") -> PluginStep:
    spec = sky.Spec(accelerator=accelerator, plugins=[sky.plugins.mig(profile=profile)])
    (step,) = spec.plugins[0].steps(spec)
    return step


def test_shellcheck_finds_nothing() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("there is no shellcheck here")
    (mps,) = sky.plugins.mps().steps(sky.Spec())
    (hub,) = sky.plugins.huggingface(models=["a/b"], datasets=["c"], cache="~/it's here").steps(sky.Spec())
    for step in (mig("1g.10gb"), mps, hub):
        checked = ["shellcheck", "--shell=sh", "-"]
        done = subprocess.run(checked, input=step.commands, capture_output=True, text=True, check=False, timeout=50)
        assert done.stdout == ""


# MIG


def test_mig_fills_each_gpu_with_instances_and_does_nothing_when_it_is_run_again(machine: Machine) -> None:
    machine.set_gpus({}, {})
    assert machine.run(mig("3g.40gb")) == (0, "GPU 1: 2 instances of 3g.40gb")
    assert machine.instances() == [["3g.40gb"] * 2] * 2
    asking = ("-lgip", "-lgi", "-lci", "--format=csv,noheader")
    changes = [
        *("nvidia-smi -i 0 -mig 1", "nvidia-smi mig -i 0 -cgi 3g.40gb,3g.40gb -C"),
        *("nvidia-smi -i 1 -mig 1", "nvidia-smi mig -i 1 -cgi 3g.40gb,3g.40gb -C"),
    ]
    assert machine.without(*asking) == changes
    assert machine.run(mig("3g.40gb")) == (0, "GPU 1: 2 instances of 3g.40gb")
    assert machine.without(*asking) == changes


def test_mig_touches_only_the_gpus_of_the_pool(machine: Machine) -> None:
    machine.set_gpus({}, {})
    assert machine.run(mig("1g.10gb", "A100")) == (0, "GPU 0: 7 instances of 1g.10gb")
    assert machine.instances() == [["1g.10gb"] * 7, []]
    assert not [call for call in machine.calls if " -i 1" in call]


def test_mig_makes_what_is_missing_beside_what_others_made(machine: Machine) -> None:
    others = [{"id": 1, "profile": "3g.40gb", "computes": True}, {"id": 5, "profile": "1g.10gb", "computes": True}]
    machine.set_gpus({"mode": "Enabled", "instances": others})
    assert machine.run(mig("1g.10gb", "A100")) == (0, "GPU 0: 4 instances of 1g.10gb")
    assert machine.instances() == [["3g.40gb", *["1g.10gb"] * 4]]


def test_mig_completes_what_an_interrupted_run_left(machine: Machine) -> None:
    left = [{"id": 7, "profile": "3g.40gb", "computes": True}, {"id": 8, "profile": "3g.40gb", "computes": False}]
    machine.set_gpus({"mode": "Enabled", "instances": left})
    assert machine.run(mig("3g.40gb", "A100")) == (0, "GPU 0: 2 instances of 3g.40gb")
    assert machine.instances() == [["3g.40gb"] * 2]


@pytest.mark.parametrize(
    ("gpu", "profile", "reason"),
    [
        (
            {"used": True},
            "1g.10gb",
            "GPU 0: MIG is pending until the GPU is reset or the machine is restarted: Warning: MIG mode is in pending "
            "enable state for GPU 00000000:07:00.0:In use by another client. Stop what uses the GPU (dcgm, nvsm and "
            "MPS do), or restart the machine, then try again",
        ),
        (
            {"refuses": "Insufficient Permissions"},
            "1g.10gb",
            "GPU 0: MIG cannot be enabled: Unable to enable MIG Mode for GPU 00000000:07:00.0: Insufficient "
            "Permissions. It needs root; in a container, it has to be enabled on the host",
        ),
        (
            {"mode": "Enabled", "refuses": "Insufficient Permissions"},
            "3g.40gb",
            "GPU 0: instances of 3g.40gb cannot be created: Unable to create a GPU instance on GPU  0 using profile "
            "3g.40gb: Insufficient Permissions",
        ),
        (
            {"mode": "Enabled", "instances": [{"id": 0, "profile": "7g.80gb", "computes": True}]},
            "1g.10gb",
            "GPU 0 has no room for 1g.10gb: it has 1 MIG instances of other profiles, which are not destroyed here. If "
            "nothing uses them, run: nvidia-smi mig -i 0 -dci && nvidia-smi mig -i 0 -dgi",
        ),
        (
            {"mode": "Enabled"},
            "1g.12gb",
            "GPU 0 has no MIG profile 1g.12gb: it has 1g.10gb+me 1g.10gb 1g.20gb 2g.20gb 3g.40gb 7g.80gb",
        ),
        ({"mode": "[N/A]"}, "1g.10gb", "GPU 0 has no MIG: the plugin needs another accelerator"),
    ],
)
def test_mig_ends_with_the_reason_in_one_line(
    machine: Machine, gpu: dict[str, object], profile: str, reason: str
) -> None:
    machine.set_gpus(gpu)
    before = machine.instances()
    accelerator = sky.accelerators.Custom("A100X")
    spec = sky.Spec(accelerator=accelerator, plugins=[sky.plugins.mig(profile=profile)])
    (step,) = spec.plugins[0].steps(spec)
    assert machine.run(step) == (1, reason)
    assert machine.instances() == before


def test_mig_becomes_effective_once_nothing_uses_the_gpu(machine: Machine) -> None:
    machine.set_gpus({"used": True})
    assert machine.run(mig("7g.80gb", "A100"))[0] == 1
    machine.set_gpus({})
    assert machine.run(mig("7g.80gb", "A100")) == (0, "GPU 0: 1 instances of 7g.80gb")


def test_mig_without_a_driver(tmp_path: Path) -> None:
    message = "MIG needs nvidia-smi of NVIDIA's driver, which is not on the PATH of this machine"
    assert Machine.make(tmp_path).run(mig("1g.10gb")) == (1, message)


def test_mig_becomes_root_by_sudo(machine: Machine) -> None:
    machine.set_gpus({})
    machine.add("id", "echo 1000\n")
    machine.add("sudo", 'shift\nexec "$@"\n')
    assert machine.run(mig("7g.80gb", "A100"))[0] == 0
    assert f"sudo -n {machine.folder}/bin/nvidia-smi -i 0 -mig 1" in machine.calls


def test_each_slot_has_a_mig_device_of_its_own(machine: Machine) -> None:
    machine.set_gpus({}, {})
    assert machine.run(mig("3g.40gb"))[0] == 0
    node = MigOnNode("3g.40gb")
    devices = [node.environment(INFO, slot)["CUDA_VISIBLE_DEVICES"] for slot in range(4)]
    assert [device[:7] for device in devices] == ["MIG-007", "MIG-008", "MIG-107", "MIG-108"]
    assert all(re.fullmatch(r"MIG-[0-9a-f-]{36}", device) for device in devices)
    message = "Node 3 has 4 MIG devices of profile 3g.40gb, but 4 processes"
    with pytest.raises(NodeStartError, match=message):
        node.environment(INFO, 4)


def test_slots_have_devices_of_their_profile_only(machine: Machine) -> None:
    made = [{"id": 1, "profile": "3g.40gb", "computes": True}, {"id": 9, "profile": "1g.10gb", "computes": True}]
    machine.set_gpus({"mode": "Enabled", "instances": made})
    assert MigOnNode("1g.10gb").environment(INFO, 0)["CUDA_VISIBLE_DEVICES"].startswith("MIG-009")
    with pytest.raises(NodeStartError, match="has 0 MIG devices of profile 2g.20gb"):
        MigOnNode("2g.20gb").environment(INFO, 0)


def test_mig_devices_cannot_be_listed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.add("nvidia-smi", 'echo "couldn\'t communicate with the NVIDIA driver"\nexit 9\n')
    with pytest.raises(
        NodeStartError, match="cannot list the MIG devices: couldn't communicate with the NVIDIA driver"
    ):
        MigOnNode("1g.10gb").environment(INFO, 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NodeStartError, match="MIG needs nvidia-smi"):
        MigOnNode("1g.10gb").environment(INFO, 0)


# MPS


def test_step_of_mps_checks_that_the_driver_has_it(machine: Machine) -> None:
    (step,) = sky.plugins.mps().steps(sky.Spec())
    assert machine.run(step) == (0, "")
    assert not machine.calls
    (machine.folder / "bin" / "nvidia-cuda-mps-control").unlink()
    message = "MPS needs nvidia-cuda-mps-control of NVIDIA's driver, which is not on the PATH of this machine"
    assert machine.run(step) == (1, message)


@pytest.fixture
def place(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> str:
    """Beginning of the directories of MPS, on this machine."""
    beginning = str(machine.folder / "mps")
    monkeypatch.setattr(mps_node, "_PLACE", beginning)
    return beginning


def test_variables_of_mps_are_those_of_the_pool(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = MpsOnNode(**sky.plugins.mps(active_thread_percentage=25, pinned_memory_limit="0=2G").settings())
    found = node.environment(INFO, 0)
    assert found == node.environment(INFO, 3)
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=2G"
    monkeypatch.setenv("SKYWARD_POOL", f"train-{'2' * 100}")
    other = MpsOnNode(None, None).environment(INFO, 0)
    assert other.keys() == {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"}
    assert other["CUDA_MPS_PIPE_DIRECTORY"] != found["CUDA_MPS_PIPE_DIRECTORY"]
    name = Path(other["CUDA_MPS_PIPE_DIRECTORY"]).name
    assert len(f"/tmp/skyward-{name}-ended-12345678/control_privileged") < 108, "addresses of sockets are short"


@contextmanager
def slot(machine: Machine, place: str, **given: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that enters the context of MPS, says so, and leaves it when its input ends."""
    program = (
        "import sys\n"
        "from skyward.plugins.nodes import mps_node\n"
        f"mps_node._PLACE = {place!r}\n"
        "with mps_node.MpsOnNode(None, None).around_process(None):\n"
        "    print('in', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    found = MpsOnNode(None, None).environment(INFO, 0)
    variables = {**machine.variables, **found, "PYTHONPATH": ":".join(sys.path), **given}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], env=variables, stdin=pipe, stdout=pipe, text=True
    ) as process:
        yield process


def entered(process: "subprocess.Popen[str]") -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "in\n"


def left(place: str) -> list[Path]:
    """Return the directories of MPS."""
    return list(Path(place).parent.glob(f"{Path(place).name}-*"))


def test_first_process_starts_the_daemon_of_mps_and_the_last_one_ends_it(
    machine: Machine, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with ExitStack() as first:
        with ExitStack() as others:
            one = first.enter_context(slot(machine, place))
            more = [others.enter_context(slot(machine, place)) for _ in range(3)]
            assert all(entered(each) for each in (one, *more))
            (daemon,) = machine.daemons
        assert is_alive(daemon)
        (directory,) = left(place)
        assert directory.stat().st_mode & 0o777 == 0o700
    wait_for(lambda: not is_alive(daemon), "the daemon to end")
    wait_for(lambda: not left(place), "the directory to be removed")
    (call,) = ended(machine)
    assert call.startswith(f"quit of {directory}-ended-")
    variables = (machine.folder / "environment").read_text().splitlines()
    assert f"CUDA_MPS_PIPE_DIRECTORY={directory}" in variables
    assert f"CUDA_MPS_LOG_DIRECTORY={directory}/log" in variables
    assert not [each for each in variables if each.startswith("CUDA_VISIBLE_DEVICES")]


def test_daemon_of_mps_precedes_the_processes(machine: Machine, place: str) -> None:
    node = MpsOnNode(50, None)
    for worker in (0, 1):
        node.environment(INFO, worker)
        (daemon,) = machine.daemons
        assert is_alive(daemon)
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in (machine.folder / "environment").read_text()


def test_process_that_is_killed_uses_the_daemon_no_more(machine: Machine, place: str) -> None:
    with slot(machine, place) as other, slot(machine, place) as killed:
        assert entered(killed)
        assert entered(other)
        (daemon,) = machine.daemons
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert is_alive(daemon), "it does not end with a process that uses it"
    wait_for(lambda: not is_alive(daemon), "the daemon to end")


def test_next_process_has_a_daemon_of_its_own_while_the_last_one_ends(
    machine: Machine, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon waits for its clients, and the process that ends it is one: that must not wait for the daemon."""
    (clients := machine.folder / "clients").touch()
    node = MpsOnNode(None, None)
    found = node.environment(INFO, 0)
    for number in (1, 2):
        with monkeypatch.context() as process:
            for name, value in found.items():
                process.setenv(name, value)
            with node.around_process(INFO):
                assert len(machine.daemons) == number
    assert all(map(is_alive, machine.daemons))
    clients.unlink()
    wait_for(lambda: not any(map(is_alive, machine.daemons)), "the daemons to end")
    wait_for(lambda: not left(place), "the directories to be removed")


def ended(machine: Machine) -> list[str]:
    return [call for call in machine.calls if call.startswith("quit of ")]


def test_daemon_of_mps_that_ends_is_that_of_the_pool(
    machine: Machine, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = MpsOnNode(None, None)
    for name, value in node.environment(INFO, 0).items():
        monkeypatch.setenv(name, value)
    with node.around_process(INFO):
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")  # by a task
    wait_for(lambda: not any(map(is_alive, machine.daemons)), "the daemon to end")
    (call,) = ended(machine)
    assert call.startswith(f"quit of {place}-")


def test_directories_of_workers_that_were_killed_are_removed(machine: Machine, place: str) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    stale = Path(f"{place}-{os.getuid()}-train-0-{gone.pid}")
    ending = Path(f"{stale}-ended-x_1")
    used = Path(f"{place}-{os.getuid()}-train-{gone.pid}-{gone.pid}")
    own = Path(f"{place}-{os.getuid()}-train-0-{os.getpid()}")
    for each in (stale, ending, used, own):
        each.mkdir()
        (each / "users").touch()
    with (used / "users").open() as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        directory = MpsOnNode(None, None).environment(INFO, 0)["CUDA_MPS_PIPE_DIRECTORY"]
    assert {*left(place)} == {used, own, Path(directory)}


def test_daemon_of_the_user_is_left_alone(machine: Machine, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(machine.folder / "nvidia-mps"))
    node = MpsOnNode(50, None)
    assert node.environment(INFO, 0) == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    with node.around_process(INFO):
        pass
    assert not machine.calls


def test_mps_that_cannot_start(machine: Machine, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = MpsOnNode(None, None)
    machine.refuse("Cannot find MPS control daemon process\n")
    with pytest.raises(NodeStartError, match="did not start: Cannot find MPS control daemon process"):
        node.environment(INFO, 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NodeStartError, match="MPS needs nvidia-cuda-mps-control"):
        node.environment(INFO, 0)
    (directory,) = left(place)
    (elsewhere := machine.folder / "elsewhere").mkdir()
    shutil.rmtree(directory)
    directory.symlink_to(elsewhere)
    with pytest.raises(NodeStartError, match="the directory of MPS, belongs to someone else"):
        node.environment(INFO, 0)
    assert not list(elsewhere.iterdir())


# cuML


def test_cuml_is_switched_on_unless_it_is_or_the_user_has_switched_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cuml").mkdir()
    (tmp_path / "cuml" / "__init__.py").touch()
    text = "calls = []\ndef enabled(): return bool(calls)\ndef install(): calls.append(True)\n"
    (tmp_path / "cuml" / "accel.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    node = CumlOnNode()
    monkeypatch.setenv("CUML_ACCEL_ENABLED", "0")
    with node.around_process(INFO):
        assert "cuml" not in sys.modules
    for name, value in node.environment(INFO, 0).items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        with node.around_process(INFO):
            assert sys.modules["cuml.accel"].calls == [True]
    for name in ("cuml", "cuml.accel"):
        del sys.modules[name]


def test_cuml_that_cannot_be_loaded_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUML_ACCEL_ENABLED", "1")
    monkeypatch.setitem(sys.modules, "cuml", None)
    with pytest.raises(ImportError):
        CumlOnNode().around_process(INFO)
