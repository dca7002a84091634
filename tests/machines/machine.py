"""Real machines for tests, each with an address, process tree, hostname and disposable disk of its own, and sshd as its
first process. Needs root, iproute2 and openssh-server.

A machine is a set of kernel namespaces over an overlay of `/`, so it boots in a fraction of a second, and has the files
of this host, including the virtual environment of the tests; or those of another `system`. It has none of the start-up
files of this host's shells: they may wait for locks, such as pyenv's, that a process of the host held when the machine
booted. All of it ends with its first process, except for the bridge of the run, which `Network.close` removes. The
leftovers of a killed run are removed by the next.
"""

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Machine", "Network", "command_line", "why_not"]

STATE = Path("/run/skyward-test-machines")
_READY_WITHIN = 20.0

_INIT = """
set -e
read -r go
mount -t tmpfs -o size=2g tmpfs {state}
mkdir {state}/upper {state}/work {state}/root
mount -t overlay overlay -o lowerdir={system},upperdir={state}/upper,workdir={state}/work {state}/root
cd {state}/root
mount -t proc proc proc
mount -t tmpfs tmpfs run && mkdir run/sshd
mount -t tmpfs tmpfs tmp && chmod 1777 tmp
mount -t tmpfs -o mode=755 tmpfs dev
for x in null zero full random urandom tty fuse; do
  if [ -e /dev/$x ]; then touch dev/$x; mount --bind /dev/$x dev/$x; fi
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs dev/shm
ln -s /proc/self/fd dev/fd
rm -rf root/.ssh root/.skyward && mkdir -m 700 root/.ssh
rm -f root/.bashrc root/.bash_profile root/.bash_login root/.profile
printf '%s\\n' '{public_key}' > root/.ssh/authorized_keys
hostname {name}
echo '127.0.0.1 localhost {name}' > etc/hosts
rm -f etc/ssh/ssh_host_*
install -m 600 /dev/null etc/ssh/ssh_host_ed25519_key
cat > etc/ssh/ssh_host_ed25519_key <<'END'
{host_key}END
cat > etc/first-process <<'END'
{start}
END
mkdir .old
pivot_root . .old
umount -l /.old
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root {variables} \\
  sh /etc/first-process
"""

_SSHD = """
exec /usr/sbin/sshd -D -e -f /dev/null -o HostKey=/etc/ssh/ssh_host_ed25519_key -o PermitRootLogin=prohibit-password \\
  -o PasswordAuthentication=no -o UsePAM=no -o StrictModes=no -o MaxStartups=100:30:200 \\
  -o PidFile=none -o 'Subsystem=sftp internal-sftp'
"""


def why_not() -> str:
    """Return the reason why machines cannot be created here; empty if they can."""
    if os.geteuid() != 0:
        return "machines need root"
    wanted = {"sshd": "openssh-server", "ssh-keygen": "openssh-client", "ip": "iproute2", "unshare": "util-linux"}
    missing = [package for command, package in wanted.items() if not shutil.which(command)]
    return f"machines need {', '.join(missing)}" if missing else ""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def make_key(path: Path) -> str:
    """Create an ed25519 key in `path`. Return the public key as a line."""
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path))
    return path.with_name(f"{path.name}.pub").read_text().strip()


@dataclass(slots=True)
class Machine:
    """One machine.

    Attributes:
        name: its hostname.
        address: address of its sshd, at port 22.
        host_key: its public host key, as a line.
        start: shell script of its first process, which starts an sshd.
        variables: environment variables of its first process.
    """

    network: "Network"
    number: int
    name: str
    address: str
    host_key: str = ""
    start: str = _SSHD
    variables: Mapping[str, str] = field(default_factory=dict)
    _private_key: str = ""
    _link: str = ""
    _wire: subprocess.Popen[str] | None = None
    _process: subprocess.Popen[str] | None = None

    def boot(self) -> None:
        """Start the machine, with an empty disk. Its host key is the same at each boot."""
        state = self.network.state / self.name
        state.mkdir(exist_ok=True)
        if not self._private_key:
            self.renew_host_key()
        init = _INIT.format(
            state=state,
            system=self.network.system,
            name=self.name,
            public_key=self.network.public_key,
            host_key=self._private_key,
            start=self.start,
            variables=" ".join(f"{name}={shlex.quote(value)}" for name, value in self.variables.items()),
        )
        with (self.network.state / f"{self.name}.log").open("w") as log:
            self._process = subprocess.Popen(
                ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", init],
                stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip  # one option a line would hide the command
        self._connect()
        assert self._process.stdin is not None
        with self._process.stdin as stdin:
            stdin.write("go\n")
        self._wait()

    def renew_host_key(self) -> None:
        """Replace the host key from the next boot on."""
        path = self.network.state / f"{self.name}-{secrets.token_hex(2)}"
        self.host_key = make_key(path)
        self._private_key = path.read_text()

    def _connect(self) -> None:
        """Connect the machine to the bridge by a cable."""
        assert self._process is not None
        self._link = f"{self.network.name}-{self.number}-{secrets.token_hex(1)}"
        inside = ("nsenter", "--target", str(self._process.pid), "--net", "ip")
        deadline = time.monotonic() + _READY_WITHIN
        while os.stat(f"/proc/{self._process.pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} has no network of its own")
            time.sleep(0.002)
        if self.network.wire is None:
            peer = ("type", "veth", "peer", "name", "eth0", "netns", str(self._process.pid))
            _run("ip", "link", "add", self._link, *peer)
        else:
            self._lay_wire(self.network.wire)
        _run("ip", "link", "set", self._link, "master", self.network.name, "up")
        _run(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "up")
        _run(*inside, "link", "set", "lo", "up")
        _run(*inside, "route", "add", "default", "via", self.network.address)

    def _lay_wire(self, program: Path) -> None:
        """Connect the machine by a process instead of a cable, which forwards frames and may delay or drop them."""
        assert self._process is not None
        far = f"{self._link}w"
        for tap in (self._link, far):
            _run("ip", "tuntap", "add", tap, "mode", "tap")
        self._wire = subprocess.Popen(
            [sys.executable, str(program), self._link, far], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._wire.stdout is not None
        if self._wire.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{program} did not start")
        _run("ip", "link", "set", far, "netns", str(self._process.pid), "name", "eth0")

    def disturb(self, **faults: float) -> None:
        """Set the faults of its wire: `delay` and `jitter` in seconds each way, and a `loss` between 0 and 1."""
        assert self._wire is not None
        assert self._wire.stdin is not None
        assert self._wire.stdout is not None
        self._wire.stdin.write(json.dumps(faults) + "\n")
        self._wire.stdin.flush()
        if self._wire.stdout.readline().strip() != "ok":
            raise RuntimeError("the wire is gone")

    def _wait(self) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while True:
            with contextlib.suppress(OSError), socket.create_connection((self.address, 22), timeout=1) as connection:
                if connection.recv(4) == b"SSH-":
                    return
            if time.monotonic() > deadline or (self._process is not None and self._process.poll() is not None):
                raise RuntimeError(f"{self.name} did not come up: {self.log()}")
            time.sleep(0.01)

    def log(self) -> str:
        """Return the output of its start and its sshd."""
        return (self.network.state / f"{self.name}.log").read_text()

    def pids(self) -> list[int]:
        """Return the pids, on this host, of all its processes, the first process first."""
        if self._process is None or self._process.poll() is not None:
            return []
        mine = os.readlink("/proc/self/ns/pid")
        found = [pid for pid, space in _namespaces() if space != mine and self._owns(space)]
        return sorted(found, key=_number_inside)

    def running(self, word: str) -> list[int]:
        """Return its processes with `word` on their command lines."""
        return [pid for pid in self.pids() if word.encode() in command_line(pid)]

    def _owns(self, space: str) -> bool:
        assert self._process is not None
        try:
            return os.readlink(f"/proc/{self._process.pid}/ns/pid_for_children") == space
        except OSError:
            return False

    @property
    def disk(self) -> Path:
        """Path of its files on this host. Absolute links in it lead to files of this host."""
        return Path(f"/proc/{self.pids()[0]}/root")

    @property
    def received(self) -> int:
        """Number of bytes that its cable delivered to it."""
        return int(Path(f"/sys/class/net/{self._link}/statistics/tx_bytes").read_text())

    def cut(self) -> None:
        """Disconnect its cable."""
        _run("ip", "link", "set", self._link, "down")

    def mend(self) -> None:
        """Reconnect its cable."""
        _run("ip", "link", "set", self._link, "up")

    def isolate(self) -> None:
        """Restrict its network to the client: no traffic to or from other machines."""
        _run("bridge", "link", "set", "dev", self._link, "isolated", "on")

    def drop(self, address: str) -> None:
        """Drop its packets to an address of the network, as a firewall does."""
        words = ("ip", "neigh", "replace", address, "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
        _run("nsenter", "--target", str(self.pids()[0]), "--net", *words)

    def freeze(self) -> None:
        """Stop every process in it."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue every process in it."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_sessions(self) -> None:
        """Kill the sshd processes of its open connections; the listening one continues."""
        for pid in self.pids()[1:]:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                    os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """Power the machine off, without notice to its processes or peers. Idempotent."""
        if self._process is None:
            return
        with contextlib.suppress(RuntimeError):  # already gone
            _run("ip", "link", "del", self._link)
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._process = None
        if self._wire is not None:
            self._wire.kill()
            self._wire.communicate()
            self._wire = None
            with contextlib.suppress(RuntimeError):  # ended with its process
                _run("ip", "link", "del", self._link)


@dataclass(slots=True)
class Network:
    """A bridge with an address on this host, and its machines.

    Attributes:
        wire: program that forwards the frames of machines added from now on; None for plain cables.
        system: folder with the initial files of the machines.
    """

    name: str = field(default_factory=lambda: f"sky{secrets.token_hex(3)}")
    machines: list[Machine] = field(default_factory=list)
    wire: Path | None = None
    system: Path = Path("/")
    state: Path = field(init=False)
    key: Path = field(init=False)
    public_key: str = field(init=False)
    subnet: str = field(init=False)

    def __post_init__(self) -> None:
        sweep()
        self.state = STATE / f"{self.name}-{os.getpid()}"
        self.state.mkdir(parents=True, mode=0o700)
        self.key = self.state / "key"
        self.public_key = make_key(self.key)
        taken = _run("ip", "-4", "route")
        while True:
            self.subnet = f"10.{64 + secrets.randbelow(128)}.{secrets.randbelow(256)}"
            if f"{self.subnet}." not in taken:
                break
        _run("ip", "link", "add", self.name, "type", "bridge")
        _run("ip", "addr", "add", f"{self.address}/24", "dev", self.name)
        _run("ip", "link", "set", self.name, "up")

    @property
    def address(self) -> str:
        """Address of this host on the bridge."""
        return f"{self.subnet}.1"

    def add(self, start: str = _SSHD, variables: Mapping[str, str] | None = None) -> Machine:
        """Add and boot a machine, with a shell script as its first process."""
        number = len(self.machines) + 1
        name, address = f"{self.name}-n{number}", f"{self.subnet}.{100 + number}"
        machine = Machine(self, number, name, address, start=start, variables=variables or {})
        self.machines.append(machine)
        machine.boot()
        return machine

    def slow_down(self, rate: str) -> None:
        """Limit the rate of this host to all machines together, such as "80mbit"; not that between machines."""
        _run("tc", "qdisc", "replace", "dev", self.name, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "1s")

    def known_hosts(self, *machines: Machine) -> Path:
        """Return a file with the host keys of those machines, by address."""
        path = self.state / f"known-{secrets.token_hex(3)}"
        path.write_text("".join(f"{machine.address} {machine.host_key}\n" for machine in machines))
        return path

    def close(self) -> None:
        """Remove the machines and the bridge. Idempotent."""
        for machine in self.machines:
            machine.kill()
        with contextlib.suppress(RuntimeError):  # already gone
            _run("ip", "link", "del", self.name)
        shutil.rmtree(self.state, ignore_errors=True)


def sweep() -> None:
    """Remove the leftovers of killed runs."""
    for state in STATE.glob("*-*"):
        name, _, owner = state.name.rpartition("-")
        if Path(f"/proc/{owner}").exists():
            continue
        for pid, _ in _namespaces():
            if name.encode() in command_line(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(RuntimeError):
            _run("ip", "link", "del", name)
        shutil.rmtree(state, ignore_errors=True)


def command_line(pid: int) -> bytes:
    """Return the command line of a process, as words that end with null bytes; empty if it has exited."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _number_inside(pid: int) -> int:
    """Return the pid of a process in its own namespace; 1 for the first process. A large number if it has exited."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 2**31
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))


def _namespaces() -> Iterator[tuple[int, str]]:
    """Yield each process of this host with its pid namespace."""
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        with contextlib.suppress(OSError):
            yield pid, os.readlink(f"/proc/{pid}/ns/pid")
