"""Getting machines for a pool and starting its nodes on them: the provider's side of the shell."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skyward.console import ConsoleSink
from skyward.control.node import Node
from skyward.errors import NoOffersError, ProviderMissingError
from skyward.instance import AcceleratorInfo, InstanceInfo, NetworkInfo, Peer
from skyward.provider import Cluster, Instance, Offer, Provider, ProviderConfig, find_provider
from skyward.specs import Options, Spec

if TYPE_CHECKING:
    from skyward.control.work import Sink

__all__ = ["Launcher"]

START_TIMEOUT = 60.0
"""Seconds that a worker has to come up on a machine that runs, unless the options say otherwise."""


class Launcher:
    """The machines of one pool. Everything that the provider handed out is given back at `teardown`."""

    def __init__(self, name: str, specs: Sequence[Spec], options: Options) -> None:
        self._name = name
        self._specs = specs
        self._options = options
        self._spec = specs[0]
        self._configs = [provider_config(spec) for spec in specs]
        self.provider_name = self._configs[0].name
        self._provider: Provider | None = None
        self._cluster: Cluster | None = None
        self._instances: dict[str, Instance] = {}
        self.sink: Sink = ConsoleSink(label=True)

    @property
    def slots(self) -> int:
        """Tasks that a node runs at once."""
        return self._options.worker.concurrency

    @property
    def notes(self) -> Sequence[str]:
        """What the provider has to say about the spec."""
        return () if self._cluster is None else self._cluster.notes

    async def prepare(self) -> None:
        """Choose a spec and an offer, and set up what the machines share.

        With `selection="first"` the first spec that has offers is taken, else the one with the cheapest offer.

        Raises:
            NoOffersError: nothing on offer fits.
        """
        choices: list[tuple[Offer, Spec, ProviderConfig, Provider]] = []
        for spec, config in zip(self._specs, self._configs, strict=True):
            provider = config.create_provider()
            offers = [offer async for offer in provider.offers() if _fits(offer, spec)]
            if offers:
                choices.append((min(offers, key=_price), spec, config, provider))
                if self._options.selection == "first":
                    break
        if not choices:
            names = ", ".join(dict.fromkeys(config.name for config in self._configs))
            raise NoOffersError(f"No machine on offer from {names} fits the spec; ask for less, or pay more.")
        offer, self._spec, config, self._provider = min(choices, key=lambda choice: _price(choice[0]))
        self.provider_name = config.name
        self._cluster = await self._provider.prepare(self._spec, offer, self._name)

    async def provision(self, count: int) -> Sequence[Instance]:
        """Machines, as many as came of `count`."""
        provider, cluster = self._ready()
        self._cluster, instances = await provider.provision(cluster, count)
        self._instances.update({instance.id: instance for instance in instances})
        return instances

    async def start(self, node: Node) -> None:
        """Start a node's worker and connect to it.

        Raises:
            NodeStartError: it did not come up.
        """
        timeout = self._options.bootstrap_timeout or START_TIMEOUT
        await node.start(self._environment(node.rank), timeout)

    def _environment(self, rank: int) -> Mapping[str, str]:
        worker = self._options.worker
        return {
            **self._spec.image.env,
            "SKYWARD_WORKERS_PER_NODE": str(worker.concurrency),
            "SKYWARD_WORKER_EXECUTOR": worker.resolved_executor,
            "MPLBACKEND": self._spec.image.env.get("MPLBACKEND", "agg"),
        }

    async def terminate(self, instance: Instance) -> None:
        """Give one machine back."""
        provider, cluster = self._ready()
        await provider.terminate(cluster, [instance.id])
        self._instances.pop(instance.id, None)

    async def teardown(self) -> None:
        """Give every machine back, and remove what they shared. Twice does no harm."""
        if self._provider is None or self._cluster is None:
            return
        async with asyncio.timeout(self._options.shutdown_timeout):
            await self._provider.terminate(self._cluster, list(self._instances))
            self._instances.clear()
            await self._provider.teardown(self._cluster)
        self._cluster = None

    def _ready(self) -> tuple[Provider, Cluster]:
        if self._provider is None or self._cluster is None:
            raise RuntimeError(f"pool {self._name!r} is not prepared")
        return self._provider, self._cluster

    def topology(self, node: Node, nodes: Mapping[int, Node], total: int) -> str:
        """What `instance_info()` says on `node`, as JSON."""
        head = nodes.get(0, node).instance.address
        accelerator = accelerator_info(self._spec)
        accelerators = 0 if accelerator is None else accelerator.count
        processes = self._options.worker.resolved_executor == "process"
        info = InstanceInfo(
            node=node.rank,
            total_nodes=total,
            workers_per_node=self._options.worker.concurrency if processes else 1,
            accelerators=accelerators,
            total_accelerators=accelerators * total,
            head_addr=head,
            job_id=self._cluster.id if self._cluster is not None else "",
            peers=tuple(
                Peer(node=rank, private_ip=peer.instance.address, public_ip=peer.instance.public_address)
                for rank, peer in sorted(nodes.items())
            ),
            accelerator=accelerator,
            network=NetworkInfo(interface=node.instance.interface),
        )
        return info.to_json()


def provider_config(spec: Spec) -> ProviderConfig:
    """The provider settings of `spec`: its own, those of the provider it names, or `sky.Local()`.

    Raises:
        ProviderMissingError: it is neither settings nor the name of an installed provider.
    """
    given = spec.provider
    if given is None or isinstance(given, str):
        given = find_provider(given or "local")()
    if not isinstance(given, ProviderConfig):
        raise ProviderMissingError(f"{given!r} is no provider; give one such as sky.Local().")
    return given


def accelerator_info(spec: Spec) -> AcceleratorInfo | None:
    """What the accelerators of a node of `spec` are."""
    accelerator = spec.accelerator
    if accelerator is None:
        return None
    size = re.fullmatch(r"(\d+(?:\.\d+)?)GB", accelerator.memory)
    return AcceleratorInfo(
        type=accelerator.name,
        count=accelerator.count,
        memory_gb=float(size[1]) if size else 0,
        is_trainium=accelerator.name.startswith("Trainium"),
    )


def _fits(offer: Offer, spec: Spec) -> bool:
    """Whether a node on this offer stays within the price that the spec allows."""
    return spec.max_hourly_cost is None or _price(offer) <= spec.max_hourly_cost


def _price(offer: Offer) -> float:
    prices = [price for price in (offer.spot_price, offer.on_demand_price) if price is not None]
    return min(prices, default=float("inf"))
