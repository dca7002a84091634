"""`sky.Container`: validation, and its commands to an engine, which is a script here."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

import skyward as sky
from skyward.providers.protocol import Cluster, InstanceType, Offer, not_acted_on
from skyward.specs import Spec
from skyward_providers.container import _ContainerProvider
from skyward_providers.container_engine import Engine, EngineError, EngineInfo
from tests.identity import identity

OFFER = Offer("container", InstanceType("here", vcpus=8, memory_gb=32, accelerator=""))

DOCKER = """{"Name": "box", "NCPU": 4, "MemTotal": 8589934592, "Architecture": "aarch64", "Runtimes": {"nvidia": {}}}"""
PODMAN = """{"host": {"hostname": "box", "cpus": 4, "memTotal": 8589934592, "arch": "amd64"}}"""


def script(folder: Path, name: str, text: str) -> str:
    """Create an engine command with the script `text`."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"image": ""}, "image must name an image, such as 'python:3.13-slim', but got ''."),
        ({"image": "--privileged"}, "image must name an image, such as 'python:3.13-slim', but got '--privileged'."),
        ({"host": "-x"}, "host must not be empty, nor begin with '-', but got '-x'."),
        ({"network": ""}, "network must not be empty, nor begin with '-', but got ''."),
        ({"container_prefix": "-a"}, "container_prefix must be up to 21 letters"),
        ({"options": "--rm"}, "options must be a list"),
        ({"grace": 0}, "grace must be"),
        ({"hourly_price": -1}, "hourly_price must be"),
    ],
)
def test_invalid_settings_of_containers_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(sky.SpecError) as caught:
        sky.Container(**given)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_missing_engine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sky.ProviderMissingError) as caught:
        sky.Container().create_provider()
    assert str(caught.value) == (
        "sky.Container needs the command of a container engine, and there is neither `docker` nor `podman` on PATH: "
        "install Docker or podman, or name its command with `sky.Container(binary=...)`."
    )
    with pytest.raises(sky.ProviderMissingError, match="there is no `nerdctl` on PATH"):
        sky.Container(binary="nerdctl").create_provider()


def test_docker_is_preferred_to_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    script(tmp_path, "podman", "")
    assert Engine(None, "ssh://me@box").words == ("podman", "--url", "ssh://me@box")
    script(tmp_path, "docker", "")
    assert Engine(None, "ssh://me@box").words == ("docker", "--host", "ssh://me@box")


@pytest.mark.parametrize(
    ("name", "answer", "info"),
    [
        ("docker", DOCKER, EngineInfo("box", 4, 2**33, "arm64", True, "box:None")),
        ("docker", DOCKER.replace('"nvidia": {}', ""), EngineInfo("box", 4, 2**33, "arm64", False, "box:None")),
        ("podman", PODMAN, EngineInfo("box", 4, 2**33, "x86_64", True, "box:None")),
    ],
)
def test_info_of_an_engine_is_parsed(tmp_path: Path, name: str, answer: str, info: EngineInfo) -> None:
    engine = Engine(script(tmp_path, name, f"cat <<'END'\n{answer}\nEND"), None)
    assert asyncio.run(engine.info()) == info


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "echo 'permission denied while trying to connect to the socket' >&2; exit 1",
            "The container engine does not answer `docker info`: permission denied while trying to connect to the "
            "socket; check that you may use its socket (group `docker`), or name another with "
            "`sky.Container(host=...)`.",
        ),
        (
            """echo '{"ServerErrors": ["Cannot connect."]}'""",
            "The container engine does not answer `docker info`: Cannot connect; start it, or name another with "
            "`sky.Container(host=...)`.",
        ),
        ("echo '[]'", "printed unexpected output"),
        ("echo '{}'", "printed unexpected output"),
    ],
)
def test_engine_that_does_not_answer_is_named_with_a_fix(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(EngineError) as caught:
        asyncio.run(Engine(script(tmp_path, "docker", text), None).info())
    assert message in str(caught.value)


def test_error_has_the_last_line_of_the_command(tmp_path: Path) -> None:
    text = """
cat >&2 <<'END'
Unable to find image locally
docker: Error response from daemon: no such thing.
See 'docker run --help'.
END
exit 125"""
    with pytest.raises(EngineError, match=r"^no such thing\.$"):
        asyncio.run(Engine(script(tmp_path, "docker", text), None).call("run"))
    with pytest.raises(EngineError, match="^`docker run` ended with 3$"):
        asyncio.run(Engine(script(tmp_path, "docker", "exit 3"), None).call("run", "--rm"))


def test_container_counts_as_gone_only_if_the_engine_says_so(tmp_path: Path) -> None:
    """After any other error, it may still exist."""
    cluster = Cluster("c", "pool-1", Spec(), OFFER, {"network": "net"})

    def terminate_with(message: str) -> None:
        given = script(tmp_path, "docker", f"echo '{message}' >&2; exit 1")
        asyncio.run(sky.Container(binary=given).create_provider().terminate(cluster, ["box-1"]))

    terminate_with("Error: No such container: box-1")
    terminate_with("Error response from daemon: removal of container box-1 is already in progress")
    for message in ("context not found", "Cannot connect to the Docker daemon"):
        with pytest.raises(EngineError, match=message):
            terminate_with(message)


def test_command_has_a_timeout(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="^`docker pull` did not end within 0 s$"):
        asyncio.run(Engine(script(tmp_path, "docker", "exec sleep 1000"), None).call("pull", within=0.2))


def test_command_does_not_wait_for_a_process_that_it_leaves_behind(tmp_path: Path) -> None:
    """podman leaves one for each container, with the output open."""
    engine = Engine(script(tmp_path, "podman", "sleep 1000 & echo $!"), None)
    pid = int(asyncio.run(engine.call("run")))
    os.kill(pid, signal.SIGKILL)


def words(tmp_path: Path, name: str, spec: sky.Spec, **settings: object) -> str:
    given = {"binary": script(tmp_path, name, ""), **settings}
    provider = _ContainerProvider(sky.Container(**given))  # type: ignore[arg-type]
    specific = {"image": "image:1", "network": "net"}
    cluster = Cluster("c", "pool-1", spec, OFFER, specific, tags={"skyward-request": "token"})
    return " ".join(provider._run_words(cluster, "box-1"))


def test_arguments_that_start_a_container(tmp_path: Path) -> None:
    plain = words(tmp_path, "docker", Spec())
    assert plain.startswith(
        "run --detach --rm --name box-1 --network net --label skyward-pool=pool-1 --label skyward-request=token "
        f"--shm-size {16 * 2**30}b --entrypoint sh image:1 -c "
    )
    limited = words(tmp_path, "docker", Spec(vcpus=1.5, memory_gb=2, accelerator="A100:2"))
    assert f"--shm-size {2**30}b --cpus 1.5 --memory {2**31}b --gpus 2 --entrypoint sh" in limited
    assert "--device nvidia.com/gpu=all" in words(tmp_path, "podman", Spec(accelerator="A100"))
    assert "--entrypoint sh --volume /a:/b image:1" in words(tmp_path, "docker", Spec(), options=["--volume", "/a:/b"])


def test_notes_name_fields_without_effect(tmp_path: Path) -> None:
    settings = sky.Container(binary=script(tmp_path, "docker", ""))
    spec = Spec(region="here", disk_gb=10, accelerator="A100")
    cluster = asyncio.run(settings.create_provider().prepare(spec, OFFER, identity("pool-1")))
    assert not_acted_on(spec, settings.acts_on) == ("disk_gb", "region")
    assert cluster.notes == (
        "The engine does not report its GPU models: containers get any of its GPUs, and may share them.",
    )
    assert cluster.specific["network"] == "skyward-pool-1"
    assert cluster.specific["image"].startswith("python:3.")
