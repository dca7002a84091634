"""`sky.Container()`: nodes that are containers of a Docker-compatible engine, on this machine or another.

Commands run in a container through the engine's own `exec`, not through an sshd. So any image works that has a shell
and Python (or lets uv install one), its environment variables apply, no port is open, and Skyward installs nothing for
access. There are no keys, since every user of the engine has access to its containers anyway. Remote engines work like
local ones. A stream through `exec` transfers about 400 MB/s, and a command takes 70 ms.

A container's first process is a loop that ends when no session and no worker have been there for a while. The container
is started with `--rm`, so the engine removes it then, even if the client was killed. The containers of a pool share a
network; an orphaned one is removed by the next pool.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from skyward.errors import ProvisioningError, SpecError
from skyward.providers import (
    SETUP_FIELDS,
    ActsOn,
    Cluster,
    ExecAccess,
    Instance,
    InstanceType,
    Offer,
    PoolIdentity,
    Provider,
    ProviderImage,
)
from skyward.specs import Spec
from skyward.values import limits
from skyward.values.validation import number, of_type, seconds, shown, strings
from skyward_providers.cloud import first_process
from skyward_providers.container_engine import Engine, EngineError, missing

__all__ = ["Container"]

_logger = logging.getLogger(__name__)

_PULL_WITHIN = 1800.0
_START_WITHIN = 120.0
_COMMIT_WITHIN = 1800.0
_RELEASED_WITHIN = 15.0
_UNPAUSED_WITHIN = 10.0
"""Timeouts in seconds: of a pull, of the start of a container, of the commit of one to an image, of the removal of a
network, and of an unpause."""

_ENVIRONMENTS = "/opt/skyward"
"""Folder with the environment, which a mount must not hide: mounts are not part of an image."""

_ORPHANED_AFTER = 3600.0
"""Seconds after which a network without a container is an orphan. A pool that still needs it creates it again."""

_FIRST_PROCESS = first_process(starting=60, idle=4)
"""Loop that ends after 60 s without a session or worker, and after 4 s once a worker has exited."""

_SHELL = "command -v bash >/dev/null && exec bash; exec sh"
"""Interactive shell: bash if the image has it."""

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,20}")


@dataclass(frozen=True, slots=True)
class Container:
    """Containers of Docker, podman or an engine with the same commands.

    Each is created for one node and removed after it; by the engine itself if the client was killed. `vcpus`,
    `memory_gb` and `accelerator` of the spec are limits of each container; without, it may use the engine's whole
    machine.

    Attributes:
        image: name of the image; "{python}" is replaced by the version of Python. It needs `sh`, `grep` and `sleep`.
        binary: the engine's command; None for `docker`, or `podman` if there is no `docker`.
        host: address of the engine, such as "ssh://me@gpu1"; None for the command's default (`DOCKER_HOST`, contexts).
        network: an existing network to join; None for a network of the pool's own.
        container_prefix: prefix of the containers' names.
        options: further options of `docker run`, such as ["--volume", "/data:/data"].
        hourly_price: price to assume for each container, in USD per hour.
        grace: seconds that a node may be unreachable before it is replaced and its tasks are retried.
        python: an interpreter in the image with the packages that a node needs; None to set one up.

    Example:
        with sky.Compute(provider=sky.Container(image="python:3.13-slim"), nodes=2, memory_gb=4) as pool:
            train(0.1) >> pool

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
    def offers_ttl(self) -> float:
        """Seconds for which its offers hold: they are listed whenever they are needed."""
        return 0.0

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect. With `python`, there is nothing to set up."""
        fields = {"vcpus", "memory_gb", "accelerator", "architecture", "ttl"}
        if self.python is None:
            fields |= SETUP_FIELDS
        elif "{python}" in self.image:
            fields.add("image.python")
        return ActsOn(frozenset(fields), "Containers run on the machine of their engine")

    def create_provider(self) -> Provider:
        """Create the provider."""
        return _ContainerProvider(self)


class _ContainerProvider:
    def __init__(self, settings: Container) -> None:
        self._settings = settings
        self._engine = Engine(settings.binary, settings.host)

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the engine's machine: the maximum of resources for one container."""
        info = await self._engine.info()
        architecture: Literal["x86_64", "arm64"] = "arm64" if info.architecture == "arm64" else "x86_64"
        memory = round(info.memory / 2**30, 1)
        accelerator = "" if info.gpus else None  # the engine does not say which
        kind = InstanceType(info.name, info.vcpus, memory, accelerator, architecture=architecture)
        yield Offer("container", kind, on_demand_price=self._settings.hourly_price, region="container")

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Pull the image, and create a network for the pool, unless it joins an existing one."""
        image = self._base(spec)
        await self._ensure_image(image)
        network = self._settings.network or f"{self._settings.container_prefix}-{_slug(pool.id)}"
        specific = {"image": image, "network": network}
        cluster = Cluster(f"container-{secrets.token_hex(4)}", pool.id, spec, offer, specific, _notes(spec))
        await self._sweep()
        await self._ensure_network(cluster)
        return cluster

    async def _ensure_image(self, image: str) -> None:
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

    async def _ensure_network(self, cluster: Cluster) -> None:
        """Create the pool's own network, which may have been removed as an orphan while the pool had no node."""
        if self._settings.network is not None:
            return
        labels = _labels({**_tags(cluster), "skyward-made": f"{time.time():.0f}"})
        try:
            await self._engine.call("network", "create", *labels, cluster.specific["network"])
        except EngineError as error:
            if "already" not in str(error):  # "exists", or "used by" it
                raise

    async def _sweep(self) -> None:
        """Remove orphaned networks. The engine refuses to remove those with a container."""
        listed = await self._engine.call(
            "network", "ls", "--filter", "label=skyward-made", "--format", "{{.Name}} {{.Labels}}"
        )
        for line in listed.splitlines():
            name, _, labels = line.partition(" ")
            made = _MADE.search(labels)
            if made is not None and time.time() - int(made[1]) > _ORPHANED_AFTER:
                with contextlib.suppress(EngineError):
                    await self._engine.call("network", "rm", name)

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Start containers. Return those that started, however many failed."""
        await self._ensure_network(cluster)
        prefix = f"{self._settings.container_prefix}-{_slug(cluster.pool)}"
        names = [f"{prefix}-{secrets.token_hex(4)}" for _ in range(count)]
        starting = asyncio.ensure_future(asyncio.gather(*(self._start(cluster, name) for name in names)))
        try:
            refusals = await asyncio.shield(starting)
            found = [
                await self._inspect(name) for name, refusal in zip(names, refusals, strict=True) if refusal is None
            ]
        except asyncio.CancelledError:
            # An aborted start may still create a container: wait for all of them, then remove them.
            await starting
            await self.terminate(cluster, names)
            raise
        started = [instance for instance in found if instance is not None]
        if not started:
            why = next(filter(None, refusals), None) or "the containers exited at once: check that the image has `grep`"
            image = cluster.specific["image"] if cluster.machine_image is None else cluster.machine_image.id
            raise ProvisioningError(f"no container of image {image!r} could be started: {why}")
        return cluster, started

    async def _start(self, cluster: Cluster, name: str) -> EngineError | None:
        """Start a container; return the error if it failed."""
        try:
            await self._engine.call(*self._run_words(cluster, name), within=_START_WITHIN)
        except EngineError as error:
            with contextlib.suppress(EngineError):
                await self.terminate(cluster, [name])  # it may have been created, and not started
            return error
        return None

    def _run_words(self, cluster: Cluster, name: str) -> Iterator[str]:
        """Yield the arguments of the engine's command that start one container."""
        specific, spec = cluster.specific, cluster.spec
        yield from ("run", "--detach", "--rm", "--name", name, "--network", specific["network"])
        yield from _labels(_tags(cluster))
        memory = spec.memory_gb or cluster.offer.instance_type.memory_gb
        yield from ("--shm-size", f"{int(memory * 2**29)}b")  # half of the memory, the default of Linux
        if spec.vcpus is not None:
            yield from ("--cpus", f"{spec.vcpus:g}")
        if spec.memory_gb is not None:
            yield from ("--memory", f"{int(spec.memory_gb * 2**30)}b")
        if spec.accelerator is not None:
            count = f"{math.ceil(spec.accelerator.count)}"  # whole devices only
            yield from ("--device", "nvidia.com/gpu=all") if self._engine.podman else ("--gpus", count)
        image = specific["image"] if cluster.machine_image is None else cluster.machine_image.id
        yield from ("--entrypoint", "sh", *self._settings.options, image, "-c", _FIRST_PROCESS)

    async def _inspect(self, name: str) -> Instance | None:
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
            address=next(filter(None, addresses), "127.0.0.1"),  # none of its own on the host's network
            interface="eth0",
            hourly_price=settings.hourly_price,
        )

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a container."""
        return cluster, await self._inspect(instance_id)

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the containers with the pool's label."""
        label = f"label=skyward-pool={cluster.pool}"
        listed = await self._engine.call("ps", "--all", "--filter", label, "--format", "{{.Names}}")
        found = [await self._inspect(name) for name in listed.split()]
        return [instance for instance in found if instance is not None]

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Kill and remove containers."""
        removing = (self._remove(name) for name in instance_ids)
        for error in await asyncio.gather(*removing, return_exceptions=True):
            if error is not None:
                raise error

    async def _remove(self, name: str) -> None:
        with contextlib.suppress(EngineError):  # usually it is not paused; if it is, `rm` would wait for it
            await self._engine.call("unpause", name, within=_UNPAUSED_WITHIN)
        try:
            at_once = ("--time", "0") if self._engine.podman else ()
            await self._engine.call("rm", "--force", "--volumes", *at_once, name)
        except EngineError as error:
            if not missing(error, "container"):
                raise

    async def teardown(self, cluster: Cluster) -> None:
        """Remove the pool's own network, once the engine has disconnected all containers."""
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
                    _logger.warning("network %s could not be removed: %s", cluster.specific["network"], error)
                    return
            await asyncio.sleep(0.2)

    async def image_scope(self, spec: Spec, offer: Offer) -> str:
        """Return the engine, its architecture, and what containers are made from: the image, and the options."""
        info = await self._engine.info()
        options = hashlib.sha256(json.dumps([*self._settings.options]).encode()).hexdigest()[:12]
        return " ".join((info.id, info.architecture, self._base(spec), options))

    def _base(self, spec: Spec) -> str:
        """Return the name of the image that containers are started from."""
        return self._settings.image.replace("{python}", spec.image.resolved_python)

    async def make_image(self, cluster: Cluster, instance_id: str, name: str) -> ProviderImage:
        """Commit a container to an image.

        Raises:
            ProvisioningError: the engine refuses, a mount has the environment, which would not be in the image, or the
                image would contain the values of variables.
        """
        words = await self._engine.inspect(instance_id)
        if words is None:
            raise ProvisioningError(f"container {instance_id} is gone")
        if any(each.get("Destination") == _ENVIRONMENTS for each in words.get("Mounts") or ()):
            raise ProvisioningError(
                f"The containers have a volume at {_ENVIRONMENTS}, which is not part of an image, and keeps the "
                "environment by itself: remove it from `options` to build an image."
            )
        (base,) = json.loads(await self._engine.call("image", "inspect", cluster.specific["image"]))
        if stored := _stored_variables(words["Config"].get("Env") or (), base["Config"].get("Env") or ()):
            raise ProvisioningError(
                f"The engine would store the value of {stored[0]} in the image: set it with `sky.Image(env=...)`, "
                "whose values are not stored, instead of `options`."
            )
        id = f"localhost/{name}:latest" if self._engine.podman else f"{name}:latest"  # as the engine lists it
        committing = asyncio.ensure_future(self._engine.call("commit", instance_id, id, within=_COMMIT_WITHIN))
        try:
            await asyncio.shield(committing)
        except asyncio.CancelledError:  # an aborted commit may still make an image
            await asyncio.wait([committing])
            raise
        return await self._image(id)

    async def _image(self, id: str) -> ProviderImage:
        (words,) = json.loads(await self._engine.call("image", "inspect", id))
        engine = (await self._engine.info()).id
        return ProviderImage(id, "container", round(words["Size"] / 1e9, 3), 0.0, {"engine": engine})

    async def _check_engine(self, image: ProviderImage) -> None:
        """Check that an image is in this engine.

        Raises:
            ProvisioningError: it is in another, so that nothing is known about it.
        """
        if (await self._engine.info()).id != image.specific["engine"]:
            raise ProvisioningError(
                f"Image {image.id} is in another container engine than the one of these settings: set DOCKER_HOST, or "
                "the context, to that engine"
            )

    async def find_images(self, cluster: Cluster) -> Sequence[ProviderImage]:
        """Return the images with the pool's label, which they have from its containers."""
        label = f"label=skyward-pool={cluster.pool}"
        listed = await self._engine.call("image", "ls", "--filter", label, "--format", "{{.Repository}}:{{.Tag}}")
        return [await self._image(id) for id in listed.split() if "<none>" not in id]

    async def image_exists(self, image: ProviderImage) -> bool:
        """Return whether the engine has an image."""
        await self._check_engine(image)
        try:
            await self._engine.call("image", "inspect", "--format", "{{.Id}}", image.id)
        except EngineError as error:
            if missing(error, "image"):
                return False
            raise
        return True

    async def delete_image(self, image: ProviderImage) -> None:
        """Remove an image, unless a container uses it."""
        await self._check_engine(image)
        try:
            await self._engine.call("image", "rm", image.id)
        except EngineError as error:
            if not missing(error, "image"):
                raise


_HARMLESS = frozenset({
    "HOME", "HOSTNAME", "LANG", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES", "PATH", "TERM", "TZ",
    "container",
})  # fmt: skip  # one name a line says no more
"""Variables of containers that may be stored in an image: the engine sets them, or their values are no secrets."""


def _stored_variables(ours: Sequence[str], of_image: Sequence[str]) -> list[str]:
    """Return the names of variables of a container that neither its image nor the engine has set."""
    return sorted({each.partition("=")[0] for each in ours if each not in of_image} - _HARMLESS)


_ENDED = ("exited", "dead", "removing", "stopped", "stopping")
_MADE = re.compile(r"skyward-made=(\d+)")


def _tags(cluster: Cluster) -> Mapping[str, str]:
    """Return the labels of a pool's containers and network."""
    return {"skyward-pool": cluster.pool, **cluster.tags}


def _labels(tags: Mapping[str, str]) -> Iterator[str]:
    for name, value in tags.items():
        yield from ("--label", f"{name}={value}")


def _slug(pool: str) -> str:
    """Return a pool's id with only the characters that the engine allows in names."""
    return re.sub(r"[^a-zA-Z0-9_.-]+", "-", pool)[-32:].strip("-.") or "pool"  # its end is unique


def _notes(spec: Spec) -> tuple[str, ...]:
    if spec.accelerator is None:
        return ()
    return ("The engine does not report its GPU models: containers get any of its GPUs, and may share them.",)
