"""Offers for the nodes of one group: the machine sources that fit, in order of preference."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from typing import Any

from skyward.control.act.machines.guarded import guarded
from skyward.control.decide.machines.sources import MachineSource
from skyward.errors import ProviderMissingError, SkywardError, SpecError
from skyward.formatting import money_text
from skyward.journal import data_directory
from skyward.market import (
    ListedOffers,
    OfferCandidate,
    OfferLister,
    SpecOffers,
    excluded_by,
    filtering_fields,
    no_offer_fits,
    rank,
    reason_of,
)
from skyward.providers.protocol import Offer, Provider, ProviderConfig, acts_on, find_provider, not_acted_on
from skyward.specs import Spec
from skyward.specs.options import Selection

__all__ = ["ASK_WITHIN", "FoundOffers", "SourceOffer", "find_offers", "isolated_providers", "provider_config"]

ASK_WITHIN = 120.0
"""Default timeout of a provider's listing of offers in seconds; `provision_timeout` overrides it."""

_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)

MOST_PLACES = 8
"""Maximum number of sources of one provider and market for one group."""


@dataclass(frozen=True, slots=True)
class SourceOffer:
    """A machine source with the provider, spec, and offer to launch machines from. `spec` requests its market."""

    source: MachineSource
    provider: Provider
    spec: Spec
    offer: Offer
    config: ProviderConfig

    @property
    def resources(self) -> Mapping[str, float]:
        """Known resources of a machine. Fields that the spec leaves open have the offer's values, if it is whole."""
        if self.is_part:
            return self.spec.node_resources
        kind = self.offer.instance_type
        return {"CPU": kind.vcpus, "memory": kind.memory_gb, **self.spec.node_resources}

    @property
    def accelerators(self) -> str:
        """Accelerators of a machine, such as "A100" or "H100:8"; empty for none."""
        asked, sold = self.spec.accelerator, self.offer.instance_type
        if asked is None and self.is_part:
            return ""
        if asked is None or self._has_hardware_of_offer:
            return _accelerators(sold.accelerator, sold.accelerator_count)
        return _accelerators(asked.name, asked.count)

    @property
    def is_part(self) -> bool:
        """True if a machine has no more of the offer's hardware than the spec requests."""
        return getattr(self.offer, "divisible", False)  # an entry of an older journal may lack the attribute

    @property
    def _has_hardware_of_offer(self) -> bool:
        """True if a machine has the accelerators of the offer, whatever the spec requests."""
        declared = acts_on(self.config)
        return declared.knows_hardware and "accelerator" not in declared.fields

    @property
    def priced(self) -> bool:
        """True if the price of a machine is known."""
        market = self.source.market or self.offer.markets[0]
        return self.offer.hourly_price(market) is not None

    @property
    def at_price(self) -> str:
        """The source and the price of a machine, such as "aws t3.micro us-east-1 spot at $0.01 per hour each"."""
        price = f"at {money_text(self.source.hourly_price)} per hour each" if self.priced else "at an unknown price"
        return f"{self.source} {price}"

    def price_note(self, fitting: int) -> tuple[str, ...]:
        """Return a notice with the price of a machine, one of `fitting` offers; nothing if it is free or unknown."""
        if not self.source.hourly_price:
            return ()
        chosen = f", the first of {fitting} offers that fit" if fitting > 1 else ""
        return (f"Nodes come from {self.at_price}{chosen}.",)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notice about the fields of the spec that the provider ignores; empty if there are none."""
        declared, asked = acts_on(self.config), self.spec.accelerator
        ignored = list(not_acted_on(self.spec, declared))
        parts = []
        if asked is not None and self._has_hardware_of_offer:
            ignored.remove("accelerator")
            if excluded_by(self.spec, self.offer, frozenset({"accelerator"})):
                wanted, present = _accelerators(asked.name, asked.count), self.accelerators or "none"
                runs = f"runs with {present}" if self.accelerators else "runs without it"
                parts.append(f"asked for {wanted}, a {self.config.name} node has {present}, and {runs}")
        if ignored:
            parts.append(f"not acted on: {', '.join(ignored)}")
        return ("; ".join((declared.otherwise, *parts)) + ".",) if parts else ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor's arguments: the provider's client is created again on loading."""
        return _restore_offer, (self.source, self.spec, self.offer, self.config)


def _accelerators(name: str | None, count: float) -> str:
    return f"{name}:{count:g}" if name and count not in (0, 1) else name or ""


def _restore_offer(source: MachineSource, spec: Spec, offer: Offer, config: ProviderConfig) -> SourceOffer:
    return SourceOffer(source, guarded(config), spec, offer, config)


@dataclass(frozen=True, slots=True)
class FoundOffers:
    """Offers for one group.

    Attributes:
        offered: the sources that fit, in order of preference; at least one.
        notes: one notice for each provider that was left out because it did not list its offers.
    """

    offered: tuple[SourceOffer, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Answer:
    """Answer of the provider of one spec: its offers, or an error. `fields` filter the offers."""

    spec: Spec
    config: ProviderConfig
    fields: frozenset[str]
    provider: Provider | None = None
    listed: ListedOffers = field(default_factory=lambda: ListedOffers((), 0.0))
    error: Exception | None = None

    @property
    def asked(self) -> SpecOffers:
        """The answer in the form that `rank` takes."""
        return SpecOffers(self.spec, self.config.name, self.listed.offers, self.fields, acts_on(self.config).lacks)

    def with_all(self, lister: OfferLister) -> "_Answer":
        """Return the answer with all offers of the provider."""
        return replace(self, listed=replace(self.listed, offers=lister.everything(self.config, self.listed)))


async def find_offers(
    specs: Sequence[Spec], selection: Selection, *, priced: bool = False, within: float = ASK_WITHIN
) -> FoundOffers:
    """Find the offers that fit any of `specs`, best first; see `skyward.market.rank` for the order.

    With "cheapest", the providers of all specs are queried concurrently; with "first", one after another, until one
    has an offer that fits. A provider that fails, or takes longer than `within` seconds, is left out and named in the
    notes. With `priced`, offers without a known price are left out. Offers that a provider listed before are used while
    they are fresh.

    Raises:
        NoOffersError: no offer fits. If the only provider failed with a `SkywardError`, that error instead.
        ProviderMissingError: a spec names a provider that is not installed.
    """
    configs = [provider_config(spec) for spec in specs]
    pairs = list(zip(specs, configs, filtering_fields(configs), strict=True))
    answers: list[_Answer] = []
    batches = [[pair] for pair in pairs] if selection == "first" else [pairs]
    with OfferLister(data_directory(), within) as lister:
        for batch in batches:
            answers += await asyncio.gather(*(_ask(lister, *pair, priced) for pair in batch))
            ranking = rank([each.asked for each in answers], selection, priced=priced)
            if ranking.candidates:
                break
        else:
            answers = await _renewed(lister, answers, priced)
            ranking = rank([each.asked for each in answers], selection, priced=priced)
            if not ranking.candidates:  # the error counts what each filter excludes
                answers = [each if each.error else each.with_all(lister) for each in answers]
                ranking = rank([each.asked for each in answers], selection, priced=priced)
    failures = {number: each for number, each in enumerate(answers) if each.error is not None}
    reasons = {number: reason_of(each.error) for number, each in failures.items() if each.error is not None}
    if not ranking.candidates:
        error = next((each.error for each in failures.values()), None)
        if isinstance(error, SkywardError) and len(answers) == 1:
            raise error
        raise no_offer_fits([each.asked for each in answers], ranking, reasons) from error
    notes = tuple(dict.fromkeys(_left_out(answers[number].config, reason) for number, reason in reasons.items()))
    return FoundOffers(tuple(_places(answers, ranking.candidates)), notes)


async def _ask(
    lister: OfferLister, spec: Spec, config: ProviderConfig, fields: frozenset[str], priced: bool
) -> _Answer:
    try:
        provider = guarded(config)
        return _Answer(
            spec, config, fields, provider, await lister.fitting(config, lambda: provider, spec, priced=priced)
        )
    except Exception as error:  # providers and cloud libraries raise anything
        return _Answer(spec, config, fields, error=error)


async def _renewed(lister: OfferLister, answers: Sequence[_Answer], priced: bool) -> list[_Answer]:
    """Ask the providers again whose offers were stored, since the stock may have changed; keep the others' answers."""
    lister.ask_again()

    async def renewed(answer: _Answer) -> _Answer:
        if answer.error is not None or not lister.is_stored(answer.listed):
            return answer
        found = await _ask(lister, answer.spec, answer.config, answer.fields, priced)
        return answer if found.error is not None else found

    return await asyncio.gather(*map(renewed, answers))


def _left_out(config: ProviderConfig, reason: str) -> str:
    return f"Provider {config.name!r} is left out, because it did not list its offers: {reason}."


def _places(answers: Sequence[_Answer], candidates: Iterable[OfferCandidate]) -> Iterator[SourceOffer]:
    """Yield the distinct sources of `candidates`, at most `MOST_PLACES` of each provider and market."""
    configs = [answer.config for answer in answers]
    count: Counter[tuple[int, str]] = Counter()
    known: set[MachineSource] = set()
    for one in candidates:
        answer, kind = answers[one.position], one.offer.instance_type
        position = configs.index(answer.config)
        market = "" if one.offer.market_unknown else one.market
        source = MachineSource(
            one.provider, kind.name, one.offer.region, market, position, hourly_price=one.hourly_price or 0.0
        )
        if source in known or count[position, one.market] == MOST_PLACES or answer.provider is None:
            continue
        known.add(source)
        count[position, one.market] += 1
        yield SourceOffer(
            source, answer.provider, replace(answer.spec, allocation=one.market), one.offer, answer.config
        )


def provider_config(spec: Spec) -> ProviderConfig:
    """Return the provider settings of `spec`: its own, those of the provider it names, or `sky.Local()`.

    Raises:
        ProviderMissingError: `spec.provider` is neither settings nor the name of an installed provider.
        SpecError: it names a provider whose settings are required.
    """
    given = spec.provider
    if given is None or isinstance(given, str):
        settings = find_provider(given or "local")
        parameters = signature(settings).parameters.values()
        if required := [each.name for each in parameters if each.default is each.empty and each.kind not in _VARIADIC]:
            needed = ", ".join(f"{name}=..." for name in required)
            raise SpecError(f"Provider {given!r} needs settings: write `provider={settings.__name__}({needed})`.")
        given = settings()
    if not isinstance(given, ProviderConfig):
        raise ProviderMissingError(f"{given!r} is no provider; give one such as sky.Local().")
    return given


def isolated_providers(groups: Mapping[str, Sequence[Spec]]) -> tuple[str, ...]:
    """Return the names of the providers of these specs whose machines do not reach each other."""
    configs = [provider_config(spec) for specs in groups.values() for spec in specs]
    return tuple(dict.fromkeys(each.name for each in configs if getattr(each, "isolated_nodes", False) is True))
