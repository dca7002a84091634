"""A Kubernetes cluster for the tests: etcd, a control plane and one node, in separate namespaces of this host.

The programs are those that `make kubernetes` has built. The network, the mounts and the processes of the cluster are
isolated, so this host's bridges, firewall and kernel parameters are unchanged, and all of it ends with the test run,
even a killed one. Needs root, `docker.io` and iproute2.

Its pods have the files of this host, as the containers of `tests.containers.engine` have; `POD` is the template for
that.
"""

import contextlib
import io
import json
import secrets
import shutil
import ssl
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.containers import engine
from tests.containers.engine import IMAGE, MOUNTS

__all__ = ["IMAGE", "NODE", "POD", "Cluster", "programs", "why_not"]

KEPT = Path("/var/cache/skyward-tests")
NODE = "node1"
"""Name of the cluster's node."""

_PAUSE = "skyward-pause:1"
"""Image of the process that keeps the network of a pod."""

_READY_WITHIN = 90.0

_mounted = [volume.split(":")[0] for volume in MOUNTS[1::2]]
POD: Mapping[str, Any] = {
    "volumes": [{"name": f"host{n}", "hostPath": {"path": path}} for n, path in enumerate(_mounted)],
    "containers": [
        {"volumeMounts": [{"name": f"host{n}", "mountPath": path, "readOnly": True} for n, path in enumerate(_mounted)]}
    ],
}
"""Template of pods with the files of this host, read-only."""

_START = """
ip link set lo up
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mkdir /run/upper /run/work /run/etcd
mount -t overlay overlay -o lowerdir=/var/lib,upperdir=/run/upper,workdir=/run/work /var/lib

# The kubelet sets kernel parameters of the whole host unless they have its values already.
while read -r name value; do
  echo "$value" >"/run/${{name##*/}}" && mount --bind "/run/${{name##*/}}" "/proc/sys/$name"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END

run() {{
  name=$1
  shift
  "$@" >"{state}/$name.log" 2>&1 &
}}
run docker dockerd --data-root {state}/data --exec-root /run/docker --pidfile /run/docker.pid -H unix://{state}/sock \\
  --cgroup-parent /{name} --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false \\
  --add-runtime unprivileged={state}/runc --default-runtime unprivileged
until ip addr show eth0 | grep -q inet; do sleep 0.05; done 2>/dev/null
run etcd {bin}/etcd --data-dir /run/etcd --listen-client-urls http://127.0.0.1:2379 \\
  --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
run apiserver {bin}/kube-apiserver --etcd-servers http://127.0.0.1:2379 --bind-address {address} \\
  --advertise-address {address} --secure-port 6443 --cert-dir {state}/certs --service-cluster-ip-range 10.96.0.0/24 \\
  --service-account-key-file {state}/key --service-account-signing-key-file {state}/key \\
  --kubelet-preferred-address-types InternalIP --service-account-issuer https://kubernetes.default.svc \\
  --token-auth-file {state}/tokens --authorization-mode RBAC
until [ -e {state}/up ]; do sleep 0.05; done
run controllers {bin}/kube-controller-manager --kubeconfig {state}/admin --leader-elect=false \\
  --service-account-private-key-file {state}/key --port 0 --secure-port 0
run scheduler {bin}/kube-scheduler --kubeconfig {state}/admin --leader-elect=false --port 0 --secure-port 0
until [ -e {state}/images ]; do sleep 0.05; done
run kubelet {bin}/kubelet --config {state}/kubelet.json --kubeconfig {state}/admin --root-dir {state}/kubelet \\
  --cert-dir {state}/kubelet/certs --hostname-override {node} --node-ip {address} \\
  --docker-endpoint unix://{state}/sock --pod-infra-container-image {pause} --minimum-container-ttl-duration 10s
wait
"""

_RUNC = """#!/bin/sh
# runc without negative OOM scores, which not every root may set.
for word; do
  [ "$previous" != --bundle ] || sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$word/config.json"
  previous=$word
done
exec runc "$@"
"""

_KUBELET = {
    "kind": "KubeletConfiguration",
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
    "failSwapOn": False,
    "hairpinMode": "none",
    "imageGCHighThresholdPercent": 100,
    "makeIPTablesUtilChains": False,
    "nodeStatusUpdateFrequency": "2s",
    "syncFrequency": "1s",
    "oomScoreAdj": 0,
    "registryPullQPS": 0,
    "eventRecordQPS": 0,
}


def programs() -> Path | None:
    """Return the folder with the programs of the newest version that was built; None if there is none."""
    return max(KEPT.glob("kubernetes-*/bin"), default=None)


def why_not() -> str:
    """Return the reason why a cluster cannot run here; empty if it can."""
    if why := engine.why_not():
        return why
    if not shutil.which("runc"):
        return "a Kubernetes node needs runc"
    return "" if programs() else f"no Kubernetes was built in {KEPT}: run `make kubernetes`"


class Cluster(engine.Engine):
    """A running cluster, whose node is ready.

    Attributes:
        kubeconfig: file with the contexts "admin", and "user", who may do nothing until a test gives a role.
        server: address of its API.
    """

    def __init__(self) -> None:
        found = programs()
        assert found is not None
        self._bin = found
        taken = _run("ip", "-4", "route")
        while f"{(subnet := f'10.{64 + secrets.randbelow(128)}.{secrets.randbelow(256)}')}." in taken:
            pass
        self._outside, self._address = f"{subnet}.1", f"{subnet}.2"
        self._link = f"sky{secrets.token_hex(3)}"
        self._tokens = {"admin": secrets.token_hex(16), "user": secrets.token_hex(16)}
        self.server = f"https://{self._address}:6443"
        super().__init__()
        try:
            self._wait_for("its API", lambda: self.kubectl("get", "--raw", "/readyz") == "ok")
            (self._state / "up").touch()
            self._wait_for("its node", self._ready)
        except BaseException:
            self.close()
            raise

    @property
    def kubeconfig(self) -> Path:
        """File with the contexts "admin", and "user", who may do nothing until a test binds a role."""
        return self._state / "kubeconfig"

    @property
    def binary(self) -> Path:
        """The `kubectl` of its version."""
        return self._bin / "kubectl"

    def _start(self) -> str:
        state = self._state
        key = rsa.generate_private_key(65537, 2048)
        (state / "key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
        )
        tokens = self._tokens
        (state / "tokens").write_text(f'{tokens["admin"]},admin,1,"system:masters"\n{tokens["user"]},user,2\n')
        (state / "admin").write_text(json.dumps(self._contexts("admin")))
        self.kubeconfig.write_text(json.dumps(self._contexts("admin", "user")))
        (state / "kubelet.json").write_text(json.dumps(_KUBELET))
        (state / "runc").write_text(_RUNC)
        (state / "runc").chmod(0o755)
        names = {"bin": self._bin, "address": self._address, "node": NODE, "pause": _PAUSE}
        return _START.format(state=state, name=self._name, **names)

    def _contexts(self, *users: str) -> Mapping[str, Any]:
        ours = {"server": self.server, "insecure-skip-tls-verify": True}
        return {
            "kind": "Config",
            "apiVersion": "v1",
            "clusters": [{"name": "tests", "cluster": ours}],
            "users": [{"name": user, "user": {"token": self._tokens[user]}} for user in users],
            "contexts": [{"name": user, "context": {"cluster": "tests", "user": user}} for user in users],
            "current-context": users[0],
        }

    def _wait(self) -> None:
        """Connect its network to this host, and wait for its engine."""
        pid = self._process.pid
        self._wait_for("its network", lambda: _namespace(pid) != _namespace("self"))
        _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _run("ip", "addr", "add", f"{self._outside}/30", "dev", self._link)
        _run("ip", "link", "set", self._link, "up")
        inside = ("nsenter", "--target", str(pid), "--net", "ip")
        _run(*inside, "link", "set", "eth0", "up")
        _run(*inside, "addr", "add", f"{self._address}/30", "dev", "eth0")
        _run(*inside, "route", "add", "default", "via", self._outside)
        super()._wait()

    def _import(self) -> None:
        super()._import()
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            archive.add(self._bin / "busybox", "busybox")
        start = 'ENTRYPOINT ["/busybox", "sleep", "1000000"]'
        self.call("import", "--change", start, "-", _PAUSE, given=made.getvalue())
        (self._state / "images").touch()

    def _wait_for(self, what: str, condition: Any) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while True:
            with contextlib.suppress(RuntimeError, OSError):
                if condition():
                    return
            if time.monotonic() > deadline or self._process.poll() is not None:
                logs = {path.name: path.read_text(errors="replace")[-1500:] for path in self._state.glob("*.log")}
                raise RuntimeError(f"the cluster did not come up: no {what}: {logs}")
            time.sleep(0.05)

    def _ready(self) -> bool:
        conditions = self.get("node", NODE)["status"]["conditions"]
        self.get("serviceaccount", "default")
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def kubectl(self, *words: str, given: str = "", context: str = "admin") -> str:
        """Run kubectl, and return its output.

        Raises:
            RuntimeError: it failed.
        """
        command = [str(self.binary), "--kubeconfig", str(self.kubeconfig), "--context", context, *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *words: str) -> Mapping[str, Any]:
        """Return an object, or a list of objects."""
        found: Mapping[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json"))
        return found

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", given=json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))

    def names(self, *kinds: str, namespace: str = "default", selector: str = "skyward-pool") -> list[str]:
        """Return the names "kind/name" of the objects with a label of Skyward."""
        selected = ("-n", namespace, "-l", selector, "-o", "name")
        return self.kubectl("get", ",".join(kinds or ("pods", "configmaps")), *selected).split()

    def set_gpus(self, count: int, model: str) -> None:
        """Give the node GPUs, which are numbers in its description."""
        value = f"nvidia.com/gpu.product={model}" if model else "nvidia.com/gpu.product-"
        self.kubectl("label", "node", NODE, "--overwrite", value)
        patch = {"status": {"capacity": {"nvidia.com/gpu": f"{count}"}, "allocatable": {"nvidia.com/gpu": f"{count}"}}}
        request = urllib.request.Request(
            f"{self.server}/api/v1/nodes/{NODE}/status",
            json.dumps(patch).encode(),
            {
                "Authorization": f"Bearer {self._tokens['admin']}",
                "Content-Type": "application/strategic-merge-patch+json",
            },
            method="PATCH",
        )
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with urllib.request.urlopen(request, context=context, timeout=20):
            pass

    def pods(self, pool: str) -> Sequence[Mapping[str, Any]]:
        """Return the pods of the open pool of that name."""
        found: Sequence[Mapping[str, Any]] = self.get("pods", "-l", "skyward-pool")["items"]
        return [pod for pod in found if pod["metadata"]["labels"]["skyward-pool"].startswith(f"{pool}-")]

    def close(self) -> None:
        """Stop the cluster, with all its pods."""
        with contextlib.suppress(RuntimeError):  # else it ends with its namespace, or was never made
            _run("ip", "link", "del", self._link)
        super().close()


def _namespace(pid: int | str) -> int:
    return Path(f"/proc/{pid}/ns/net").stat().st_ino


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
