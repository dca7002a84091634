"""A Slurm cluster for the tests: Debian's munged, slurmctld and four slurmd in separate namespaces of this host.

They share one network, whose other end this host has, so that the clients' commands run here as on a login node. Their
processes end with the run, even a killed one. Needs root, iproute2, munge, slurmctld, slurmd and slurm-client.
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil

__all__ = ["SlurmCluster", "Tracking", "why_not"]

type Tracking = Literal["linuxproc", "cgroup"]
"""Means by which slurmd finds the processes of a job: their parents, or a control group."""

NODES = 4
_DAEMONS = ("munged", "slurmctld", "slurmd", "slurmstepd", "slurmscriptd", "slurmctld: slurmscriptd")
_READY_WITHIN = 60.0
_EMPTY_WITHIN = 10.0
_PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "ip": "iproute2",
    "setpriv": "util-linux",
}

_CONFIGURATION = """
ClusterName={name}
SlurmctldHost={host}({address})
SlurmctldPort=17000
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={state}/munge.socket
CredType=cred/munge
StateSaveLocation={state}/controller
SlurmdSpoolDir={state}/%n
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/%n.pid
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/%n.log
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdTimeout=10
KillWait=5
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
NodeName={node}-[1-2] NodeHostname={host} NodeAddr={address} Port=[17001-17002] CPUs=4 RealMemory=4000
NodeName={node}-[3-4] NodeHostname={host} NodeAddr={address} Port=[17003-17004] CPUs=2 RealMemory=2000 Gres=gpu:a100:2
PartitionName=main Nodes={node}-[1-4] Default=YES MaxTime=24:00:00 DefaultTime=01:00:00
PartitionName=small Nodes={node}-1 MaxTime=00:10:00
"""

_CONTROL_GROUPS = """
CgroupPlugin=autodetect
CgroupAutomount=no
IgnoreSystemd=yes
"""

_START = """
set -e
read -r go
ip link set lo up
ip addr add {address}/30 dev eth0
ip link set eth0 up
mount -t tmpfs tmpfs /run
export SLURM_CONF={state}/slurm.conf
munged --foreground --force --socket {state}/munge.socket --key-file {state}/munge.key --pid-file /run/munged.pid \\
  --log-file {state}/munged.log --seed-file /run/munge.seed &
while :; do slurmctld -D -f "$SLURM_CONF" || sleep 1; done &
for number in $(seq {nodes}); do slurmd -D -f "$SLURM_CONF" -N {node}-$number & done
wait
"""


def why_not() -> str:
    """Return the reason why a cluster cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "a Slurm cluster of our own needs root"
    missing = sorted({package for command, package in _PACKAGES.items() if not shutil.which(command)})
    return f"a Slurm cluster needs {', '.join(missing)}" if missing else ""


class SlurmCluster:
    """A running cluster.

    Attributes:
        configuration: path of its configuration: the value of SLURM_CONF for the commands of clients.
        address: address of all its nodes.
        nodes: names of its nodes: two with 4 CPUs, two with 2 CPUs and 2 GPUs.
        scratch: directory for the files of workers.
        root: directory for environments.
    """

    def __init__(self, tracking: Tracking) -> None:
        token = secrets.token_hex(3)
        self._name, self._node = f"sky-{token}", f"sky{token}"
        self._state = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.scratch, self.root = self._state / "scratch", self._state / "root"
        self._link = f"sky-slurm-{token[:5]}"
        block = 4 * secrets.randbelow(2**14)
        self.address, ours = (f"10.63.{(block + end) // 256}.{(block + end) % 256}" for end in (1, 2))
        self.nodes = tuple(f"{self._node}-{number}" for number in range(1, NODES + 1))
        self.configuration = self._configure(tracking)
        words = {"address": self.address, "state": self._state, "node": self._node, "nodes": NODES}
        with (self._state / "log").open("w") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                 "--mount-proc", "sh", "-c", _START.format(**words)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip  # one option a line would hide the command
        try:
            self._connect(ours)
            self._wait()
        except BaseException:
            self.close()
            raise

    def _configure(self, tracking: Tracking) -> str:
        state = self._state
        state.chmod(0o755)
        for name in ("controller", "scratch", *self.nodes):
            (state / name).mkdir()
        key = state / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        for number in range(2):
            os.mknod(state / f"nvidia{number}", 0o666 | 0o020000, os.makedev(195, number))
        words = {"name": self._name, "node": self._node, "host": socket.gethostname().partition(".")[0]}
        text = _CONFIGURATION.format(**words, address=self.address, state=state, tracking=tracking)
        (state / "slurm.conf").write_text(text)
        (state / "cgroup.conf").write_text(_CONTROL_GROUPS)
        gpus = f"NodeName={self._node}-[3-4] Name=gpu Type=a100 File={state}/nvidia[0-1]\n"
        (state / "gres.conf").write_text(gpus)
        return str(state / "slurm.conf")

    def _connect(self, ours: str) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while os.stat(f"/proc/{self._process.pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"the cluster has no network of its own: {self.log()}")
            time.sleep(0.002)
        peer = ("type", "veth", "peer", "name", "eth0", "netns", str(self._process.pid))
        subprocess.run(["ip", "link", "add", self._link, *peer], check=True, timeout=20)
        subprocess.run(["ip", "addr", "add", f"{ours}/30", "dev", self._link], check=True, timeout=20)
        subprocess.run(["ip", "link", "set", self._link, "up"], check=True, timeout=20)
        assert self._process.stdin is not None
        with self._process.stdin as stdin:
            stdin.write(b"go\n")

    def _wait(self) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while True:
            with contextlib.suppress(RuntimeError):
                if self.call("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split() == ["idle"] * NODES:
                    return
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"the cluster did not come up: {self.log()}")
            time.sleep(0.05)

    def log(self) -> str:
        """Return the end of the daemons' output."""
        return (self._state / "log").read_text()[-2000:]

    def call(self, *words: str) -> str:
        """Run a command of Slurm, and return its output."""
        environ = {**os.environ, "SLURM_CONF": self.configuration}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def jobs(self, pool: str = "") -> list[str]:
        """Return the ids of the jobs that wait or run, all or those of a pool of that name."""
        listed = self.call("squeue", "-h", "--states=PENDING,RUNNING,SUSPENDED", "-o", "%i %j").splitlines()
        return [job for job, _, name in (line.partition(" ") for line in listed) if f"skyward-{pool}" in name]

    def answers(self) -> bool:
        """Return whether the controller answers."""
        try:
            return bool(self.call("scontrol", "ping"))
        except RuntimeError:
            return False

    def state(self, job: str) -> str:
        """Return the state of a job, as `squeue` names it."""
        return self.call("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def processes(self) -> dict[int, str]:
        """Return the processes of jobs, with their command lines, by their pids on this host."""
        network = os.readlink(f"/proc/{self._process.pid}/ns/net")
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if os.readlink(f"/proc/{process.pid}/ns/net") != network or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                line = " ".join(process.cmdline())
                if line and process.name() not in _DAEMONS and "munged --foreground" not in line:
                    found[process.pid] = line
        return found

    def entering(self, job: str) -> list[int]:
        """Return the processes of this host that run a step of a job of this cluster."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if words[:1] != ["srun"] or f"--jobid={job}" not in words:
                    continue
                if process.environ().get("SLURM_CONF") == self.configuration:
                    found.append(process.pid)
        return found

    def daemon(self, command: str, node: str = "") -> psutil.Process:
        """Return the process of a daemon: that of a node for "slurmd". The controller is started again if it ends."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if words[:1] == [command] and (not node or node in words):
                    return process
        raise LookupError(f"there is no {command} {node}")

    def fail(self, node: str, job: str) -> None:
        """Let a node fail that runs one job: kill its daemon, and all processes of the job."""
        self.daemon("slurmd", node).kill()
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if f"[{job}." in " ".join(process.cmdline()) or process.environ().get("SLURM_JOB_ID") == job:
                    process.kill()

    def close(self) -> None:
        """Stop the daemons and all jobs."""
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            self.call("scancel", "--full", "--signal=KILL", f"--user={os.geteuid()}")
        self._process.kill()
        self._process.wait()
        subprocess.run(["ip", "link", "delete", self._link], capture_output=True, check=False, timeout=20)
        self._remove_control_groups()
        shutil.rmtree(self._state, ignore_errors=True)

    def _control_groups(self) -> Iterator[Path]:
        yield from Path("/sys/fs/cgroup").glob(f"*/slurm_{self._node}-*")

    def _remove_control_groups(self) -> None:
        deadline = time.monotonic() + _EMPTY_WITHIN
        while left := list(self._control_groups()):
            for path in left:
                for folder in [*sorted(path.glob("**/"), reverse=True), path]:
                    with contextlib.suppress(OSError):
                        folder.rmdir()
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
