"""`sky.Container()`: nodes that are containers of a Docker-compatible engine, on this machine or another.

A container is entered by the engine's own `exec`, not by an sshd in it. So any image will do that has a shell and
Python (or lets uv fetch one), its environment variables count, nothing listens and nothing has to be installed for us;
there are no keys, since who may use the engine may enter its containers anyway; and a remote engine is the same as one
here. A stream through `exec` carries about 400 MB/s, and a command takes 70 ms.

Its first process is a loop of ours, which ends when neither we nor a worker have been there for a while: the container
was made to be removed at its end, so the engine does that, whatever has become of us. What the containers of a pool
share is a network; one that was left behind, for instance by a client that was killed, is removed by the next pool.
"""

import asyncio
import contextlib
import logging
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from skyward.errors import ProvisioningError, SpecError
from skyward.providers.protocol import (
    SETUP_FIELDS,
    ActsOn,
    Cluster,
    ExecAccess,
    Instance,
    InstanceType,
    Offer,
    Provider,
)
from skyward.specs import Spec
from skyward.values import limits
from skyward.values.validation import number, of_type, seconds, shown, strings
from skyward_providers.container_engine import Engine, EngineError, missing

__all__ = ["Container"]

_logger = logging.getLogger(__name__)

_PULL_WITHIN = 1800.0
_START_WITHIN = 120.0
_RELEASED_WITHIN = 15.0
_UNPAUSED_WITHIN = 10.0
"""Seconds that an image takes to be pulled, a container to start, and a network to be let go of, at most."""

_LEFT_BEHIND = 3600.0
"""Seconds after which a network without a container is nobody's. Who still wants it makes it again."""

_FIRST_PROCESS = """
trap 'exit 0' TERM
quiet=0 patience=60
while [ "$quiet" -lt "$patience" ]; do
  sleep 2
  quiet=$((quiet + 2))
  if grep -qs 'sky[w]ard-session-' /proc/[0-9]*/cmdline; then quiet=0; fi
  if grep -qs 'sky[w]ard\\.worker' /proc/[0-9]*/cmdline; then quiet=0 patience=4; fi
done
"""
"""Ends where there was nobody for 60 s, and soon where a worker has been and gone. It does not look like one itself."""

_SHELL = "command -v bash >/dev/null && exec bash; exec sh"
"""What a person types into: not every image has the better one."""

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,20}")


@dataclass(frozen=True, slots=True)
class Container:
    """Containers of Docker, podman or an engine that takes the same commands.

    Each is made for one node and removed after it, by the engine itself where we are gone. `vcpus`, `memory_gb` and
    `accelerator` of the spec are limits of each container; without, it may use the engine's whole machine.

    Attributes:
        image: the image; "{python}" in it stands for the version of Python. It needs `sh`, `grep` and `sleep`.
        binary: the engine's command; None for `docker`, or `podman` where there is no `docker`.
        host: where the engine is, such as "ssh://me@gpu1"; None as the command has it (`DOCKER_HOST`, contexts).
        network: a network of the engine's to join; None for one of the pool's own.
        container_prefix: how the names of the containers begin.
        options: more options of `docker run`, such as ["--volume", "/data:/data"].
        hourly_price: that each container is said to cost, USD.
        grace: seconds that a node may be out of reach before it is replaced and its tasks run again.
        python: an interpreter in the image that already has what a node needs; None to set one up.

    Raises:
        SpecError: a value is not allowed.
    """

    image: str = "python:{python}-slim"
    binary: str | None = None
    host: str | None = None
    network: str | None = None
    container_prefix: str = "skyward"
    options: Sequence[str] = ()
    hourly_price: float = 0.0
    grace: float = 30.0
    python: str | None = None

    def __post_init__(self) -> None:
        of_type(self.image, "image", str, "image='python:3.13-slim'")
        if not self.image or self.image.startswith("-"):
            raise SpecError(f"image must name an image, such as 'python:3.13-slim', but got {shown(self.image)}.")
        for name in ("binary", "host", "network", "python"):
            if (value := getattr(self, name)) is not None:
                of_type(value, name, str, f"{name}='...'")
                if not value or value.startswith("-"):
                    raise SpecError(f"{name} must not be empty, nor begin with '-', but got {shown(value)}.")
        if not isinstance(self.container_prefix, str) or not _NAME.fullmatch(self.container_prefix):
            raise SpecError(
                "container_prefix must be up to 21 letters, digits, '_', '.' and '-', the first a letter or digit, "
                f"but got {shown(self.container_prefix)}."
            )
        object.__setattr__(self, "options", strings(self.options, "options", "['--volume', '/data:/data']"))
        number(self.hourly_price, "hourly_price", zero=True, most=limits.USD)
        seconds(self.grace, "grace")

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "container"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect. With `python`, there is nothing to set up."""
        fields = {"vcpus", "memory_gb", "accelerator", "architecture", "ttl"}
        if self.python is None:
            fields |= SETUP_FIELDS
        elif "{python}" in self.image:
            fields.add("image.python")
        return ActsOn(frozenset(fields), "Containers are where their engine is, on its disk")

    def create_provider(self) -> Provider:
        """What drives the engine."""
        return _ContainerProvider(self)


class _ContainerProvider:
    def __init__(self, settings: Container) -> None:
        self._settings = settings
        self._engine = Engine(settings.binary, settings.host)

    async def offers(self) -> AsyncIterator[Offer]:
        """The engine's machine: what one container can have of it at most."""
        info = await self._engine.info()
        architecture: Literal["x86_64", "arm64"] = "arm64" if info.architecture == "arm64" else "x86_64"
        memory = round(info.memory / 2**30, 1)
        accelerator = "" if info.gpus else None  # the engine does not say which
        kind = InstanceType(info.name, info.vcpus, memory, accelerator, architecture=architecture)
        yield Offer("container", kind, on_demand_price=self._settings.hourly_price, region="container")

    async def prepare(self, spec: Spec, offer: Offer, pool: str) -> Cluster:
        """The image, and a network for the pool, unless there is one to join."""
        image = self._settings.image.replace("{python}", spec.image.resolved_python)
        await self._have_image(image)
        network = self._settings.network or f"{self._settings.container_prefix}-{_slug(pool)}"
        cluster = Cluster(
            f"container-{secrets.token_hex(4)}", pool, spec, offer, {"image": image, "network": network}, _notes(spec)
        )
        await self._sweep()
        await self._have_network(cluster)
        return cluster

    async def _have_image(self, image: str) -> None:
        try:
            await self._engine.call("image", "inspect", "--format", "{{.Id}}", image)
            return
        except EngineError as error:
            if not missing(error, "image"):
                raise
        _logger.info("pulling image %s", image)
        try:
            await self._engine.call("pull", image, within=_PULL_WITHIN)
        except EngineError as error:
            raise ProvisioningError(
                f"Image {image!r} is not on the engine's machine, and could not be pulled: {error}; pull or build it "
                "there, or name another with `sky.Container(image=...)`."
            ) from None

    async def _have_network(self, cluster: Cluster) -> None:
        """The pool's own network, which may have been taken for left behind while the pool had no node."""
        if self._settings.network is not None:
            return
        labels = _labels({**_tags(cluster), "skyward-made": f"{time.time():.0f}"})
        try:
            await self._engine.call("network", "create", *labels, cluster.specific["network"])
        except EngineError as error:
            if "already" not in str(error):  # "exists", or "used by" it
                raise

    async def _sweep(self) -> None:
        """Remove networks that were left behind. The engine keeps those that a container is in."""
        listed = await self._engine.call(
            "network", "ls", "--filter", "label=skyward-made", "--format", "{{.Name}} {{.Labels}}"
        )
        for line in listed.splitlines():
            name, _, labels = line.partition(" ")
            made = _MADE.search(labels)
            if made is not None and time.time() - int(made[1]) > _LEFT_BEHIND:
                with contextlib.suppress(EngineError):
                    await self._engine.call("network", "rm", name)

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Start containers. Those that came are given, however many failed."""
        await self._have_network(cluster)
        prefix = f"{self._settings.container_prefix}-{_slug(cluster.pool)}"
        names = [f"{prefix}-{secrets.token_hex(4)}" for _ in range(count)]
        starting = asyncio.ensure_future(asyncio.gather(*(self._start(cluster, name) for name in names)))
        try:
            refusals = await asyncio.shield(starting)
            found = [await self._look(name) for name, refusal in zip(names, refusals, strict=True) if refusal is None]
        except asyncio.CancelledError:
            # A start that is cut half-way may still bring a container: see it through, then take all of them back.
            await starting
            await self.terminate(cluster, names)
            raise
        came = [instance for instance in found if instance is not None]
        if not came:
            said = next(filter(None, refusals), None) or "the containers ended at once: see that the image has `grep`"
            raise ProvisioningError(f"no container of image {cluster.specific['image']!r} could be started: {said}")
        return cluster, came

    async def _start(self, cluster: Cluster, name: str) -> EngineError | None:
        """Start a container; why that did not work, if it did not."""
        try:
            await self._engine.call(*self._run_words(cluster, name), within=_START_WITHIN)
        except EngineError as error:
            with contextlib.suppress(EngineError):
                await self.terminate(cluster, [name])  # it may have been made, and not started
            return error
        return None

    def _run_words(self, cluster: Cluster, name: str) -> Iterator[str]:
        """How to start one container."""
        specific, spec = cluster.specific, cluster.spec
        yield from ("run", "--detach", "--rm", "--name", name, "--network", specific["network"])
        yield from _labels(_tags(cluster))
        memory = spec.memory_gb or cluster.offer.instance_type.memory_gb
        yield from ("--shm-size", f"{int(memory * 2**29)}b")  # half of the memory, as machines have it
        if spec.vcpus is not None:
            yield from ("--cpus", f"{spec.vcpus:g}")
        if spec.memory_gb is not None:
            yield from ("--memory", f"{int(spec.memory_gb * 2**30)}b")
        if spec.accelerator is not None:
            count = f"{math.ceil(spec.accelerator.count)}"  # there are no parts of one
            yield from ("--device", "nvidia.com/gpu=all") if self._engine.podman else ("--gpus", count)
        yield from ("--entrypoint", "sh", *self._settings.options, specific["image"], "-c", _FIRST_PROCESS)

    async def _look(self, name: str) -> Instance | None:
        words = await self._engine.inspect(name)
        return None if words is None else self._instance(name, words)

    def _instance(self, name: str, words: Mapping[str, Any]) -> Instance:
        settings, status = self._settings, words["State"]["Status"]
        networks = (words["NetworkSettings"].get("Networks") or {}).values()
        addresses = (each.get("IPAddress") or each.get("GlobalIPv6Address") for each in networks)
        access = ExecAccess(
            (*self._engine.words, "exec", "--interactive", name),
            f"container {name}",
            grace=settings.grace,
            python=settings.python,
            terminal=(*self._engine.words, "exec", "-it", name, "sh", "-c", _SHELL),
        )
        return Instance(
            name,
            "running" if status in ("running", "paused") else "exited" if status in _ENDED else "provisioning",
            access,
            address=next(filter(None, addresses), "127.0.0.1"),  # on the network of its host it has none of its own
            interface="eth0",
            hourly_price=settings.hourly_price,
        )

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """How a container is."""
        return cluster, await self._look(instance_id)

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """The containers that carry the labels of the pool."""
        label = f"label=skyward-pool={cluster.pool}"
        listed = await self._engine.call("ps", "--all", "--filter", label, "--format", "{{.Names}}")
        found = [await self._look(name) for name in listed.split()]
        return [instance for instance in found if instance is not None]

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Kill and remove containers."""
        removing = (self._remove(name) for name in instance_ids)
        for error in await asyncio.gather(*removing, return_exceptions=True):
            if error is not None:
                raise error

    async def _remove(self, name: str) -> None:
        with contextlib.suppress(EngineError):  # not paused, mostly; else `rm` waits for what is frozen
            await self._engine.call("unpause", name, within=_UNPAUSED_WITHIN)
        try:
            at_once = ("--time", "0") if self._engine.podman else ()
            await self._engine.call("rm", "--force", "--volumes", *at_once, name)
        except EngineError as error:
            if not missing(error, "container"):
                raise

    async def teardown(self, cluster: Cluster) -> None:
        """Remove the pool's own network, as soon as the containers have let go of it."""
        if self._settings.network is not None:
            return
        deadline = time.monotonic() + _RELEASED_WITHIN
        while True:
            try:
                await self._engine.call("network", "rm", cluster.specific["network"])
                return
            except EngineError as error:
                if missing(error, "network"):
                    return
                if time.monotonic() > deadline:
                    _logger.warning("network %s is left: %s", cluster.specific["network"], error)
                    return
            await asyncio.sleep(0.2)


_ENDED = ("exited", "dead", "removing", "stopped", "stopping")
_MADE = re.compile(r"skyward-made=(\d+)")


def _tags(cluster: Cluster) -> Mapping[str, str]:
    """What the containers and the network of a pool are labelled with."""
    return {"skyward-pool": cluster.pool, **cluster.tags}


def _labels(tags: Mapping[str, str]) -> Iterator[str]:
    for name, value in tags.items():
        yield from ("--label", f"{name}={value}")


def _slug(pool: str) -> str:
    """The name of a pool, as the engine takes it in names."""
    return re.sub(r"[^a-zA-Z0-9_.-]+", "-", pool)[-32:].strip("-.") or "pool"  # its end tells it from others


def _notes(spec: Spec) -> tuple[str, ...]:
    if spec.accelerator is None:
        return ()
    return ("The engine does not say which GPUs it has: containers get some of them, and may share them.",)
