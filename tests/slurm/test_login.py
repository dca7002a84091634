"""Commands of Slurm on a login node, over a real sshd."""

import asyncio
import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import skyward as sky
from skyward.providers.conformance import check_provider
from skyward.providers.protocol import ExecAccess
from skyward.specs import Spec
from skyward_providers.slurm.commands import _socket_directory
from tests.free_port import free_port
from tests.machines.machine import make_key
from tests.remote_tasks import doubled, hostname
from tests.required import leave_out_for
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import jobs
from tests.waiting import wait_for

pytestmark = pytest.mark.slurm

SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/client.pub
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
MaxSessions 4
SetEnv SLURM_CONF={configuration} HOME={folder}
"""
"""The home is an empty one: start-up files of this host's shells may wait for locks."""

SSH = """
Host login
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/client
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
"""


@pytest.fixture
def login(by_control_group: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A cluster whose commands only the host "login" has, which allows four sessions for each connection."""
    sshd, ssh = shutil.which("sshd"), shutil.which("ssh")
    leave_out_for("" if sshd and ssh else "a login node needs openssh-server", "SKYWARD_SLURM")
    assert sshd is not None
    port = free_port()
    make_key(tmp_path / "client")
    host_key = make_key(tmp_path / "host")
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    words = {"port": port, "folder": tmp_path, "configuration": by_control_group.configuration}
    (tmp_path / "sshd_config").write_text(SSHD.format(**words))
    (tmp_path / "config").write_text(SSH.format(**words))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {tmp_path}/config "$@"\n')
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_CONF", "/nonexistent")
    Path("/run/sshd").mkdir(exist_ok=True)
    command = [sshd, "-D", "-e", "-f", str(tmp_path / "sshd_config")]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stderr=log) as server:
        try:
            wait_for(lambda: "listening" in (tmp_path / "log").read_text(), "sshd to listen")
            yield by_control_group
            wait_for(lambda: not by_control_group.processes(), "the processes of jobs to end", 30)
        finally:
            subprocess.run(["ssh", "-O", "exit", *control_path(), "login"], capture_output=True, check=False)
            server.terminate()


def control_path() -> tuple[str, str]:
    return "-o", f"ControlPath={_socket_directory()}/%C"


def test_conformance_over_ssh(login: SlurmCluster, tmp_path: Path) -> None:
    asyncio.run(check_provider(jobs(login, host="login"), tmp_path, spec=Spec(vcpus=1)))


def test_pool_works_over_ssh(login: SlurmCluster) -> None:
    with sky.Compute(provider=jobs(login, host="login", time=600), nodes=2) as pool:
        assert len(hostname() @ pool) == 2
        data = np.random.default_rng(0).integers(0, 100, 5_000_000, dtype=np.uint8)
        assert np.array_equal(doubled(data) >> pool, data * 2)
        assert len(login.jobs(pool.name)) == 2
        access = pool.snapshot().nodes[0].access
        assert isinstance(access, ExecAccess)
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            access.terminal, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        ) as shell:
            os.close(theirs)
            os.write(ours, b"test -t 0 && echo at $SLURM_JOB_ID.; exit\n")
            output = b""
            with suppress(OSError):  # the end of a terminal
                while part := os.read(ours, 4096):
                    output += part
            assert shell.wait(60) == 0, output
        os.close(ours)
        assert f"at {access.name.split()[1]}." in output.decode()
    assert not login.jobs(pool.name)


def test_login_node_that_refuses_is_named(login: SlurmCluster) -> None:
    with pytest.raises(sky.ProvisioningError) as caught:
        asyncio.run(_offered(jobs(login, host="nobody@login")))
    assert str(caught.value).startswith("Login node nobody@login cannot be reached: ")
    assert str(caught.value).endswith("; check that `ssh nobody@login` works without a password.")


async def _offered(provider: sky.Slurm) -> None:
    await anext(provider.create_provider().offers())
