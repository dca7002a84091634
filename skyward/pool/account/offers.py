"""Offers of providers, listed without opening a pool."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from skyward.config import Config, load
from skyward.control.act.machines.guarded import guarded
from skyward.control.act.machines.offers import provider_config
from skyward.control.observe.startup import usual_start
from skyward.errors import JournalError, SpecError
from skyward.journal import data_directory
from skyward.market.gpuhunt_catalogue import GPUHUNT, gpuhunt_providers
from skyward.market.survey import AskedProvider, MachineOffer, Survey, survey
from skyward.pool.account.clouds import is_implicit, known_clouds
from skyward.process import background
from skyward.specs import Spec, SpecFields
from skyward.specs.options import Selection
from skyward.values.validation import shown, whole

__all__ = ["notes_on", "offers", "survey_offers"]

WITHIN = 60.0
"""Timeout of a provider's listing of its offers, seconds."""

_logger = logging.getLogger(__name__)


def offers(
    *specs: Spec, selection: Selection = "cheapest", limit: int | None = 20, **fields: Unpack[SpecFields]
) -> list[MachineOffer]:
    """Return the machines that providers offer for a pool of these specs, in the order in which it would try them.

    Nothing is bought. A provider that does not answer is logged as a warning; its offers are those that it listed
    before, or those of the bundled catalogue, which `is_current` and `listed` tell.

    Args:
        specs: alternatives, as `sky.Compute` takes them.
        selection: with several specs, the "cheapest" offers first, or those of the "first" spec.
        limit: most offers to return; None for all.
        fields: fields of one spec instead, such as `accelerator="A100"`. `provider` may also be a list of providers, or
            their names joined by commas. Without a provider, all that have credentials are asked, and the others are
            shown with the prices of the catalogue. Clusters, such as Kubernetes, are asked only by name.
            "gpuhunt" shows prices of clouds that Skyward does not rent from, if the extra `gpuhunt` is installed.

    Raises:
        SpecError: an argument is not allowed.
        ProviderMissingError: there is no such provider.

    Example:
        >>> [(offer.provider, offer.hourly_price) for offer in sky.offers(accelerator="H100:8", limit=3)]
    """
    found = survey_offers(specs, fields, selection, limit)
    for note in found.notes.values():
        _logger.warning("%s", note)
    return list(found.offers)


def survey_offers(
    specs: Sequence[Spec], fields: Mapping[str, Any], selection: Selection = "cheapest", limit: int | None = None
) -> Survey:
    """Return what `offers` returns, with notes about providers that did not list their offers.

    Raises:
        SpecError: an argument is not allowed.
        ProviderMissingError: there is no such provider.
    """
    if limit is not None:
        whole(limit, "limit", least=1)
    settings = load()
    asked = [each for spec in _specs(specs, fields) for each in _asked(spec, settings)]
    surveying = survey(
        asked,
        selection,
        directory=_directory(),
        create=guarded,
        usual_start=usual_start,
        within=WITHIN,
        limit=limit,
    )
    return background.run(surveying).result()


def notes_on(found: Survey) -> list[str]:
    """Return a sentence about each provider of a survey that did not list its offers, or has no credentials."""
    shown = {offer.provider for offer in found.offers if offer.origin == "catalogue"} - found.notes.keys()
    missing = [
        f"{each.provider} has no credentials, so its prices are those of the bundled catalogue; to rent from it, "
        f"{each.how}."
        for each in known_clouds()
        if each.provider in shown and not each.is_usable
    ]
    return [*found.notes.values(), *missing]


def _specs(specs: Sequence[Spec], fields: Mapping[str, Any]) -> list[Spec]:
    """Return the specs of the arguments, one for each provider."""
    for spec in specs:
        if not isinstance(spec, Spec):
            raise SpecError(f"offers takes only `sky.Spec(...)` by position, but got {shown(spec)}.")
    if specs:
        if fields:
            names = ", ".join(fields)
            raise SpecError(f"offers got specs and also {names}: put {names} inside each `sky.Spec(...)`.")
        return list(specs)
    given = fields.get("provider")
    providers: Iterable[object] = (given,)
    if isinstance(given, str):
        providers = filter(None, map(str.strip, given.split(",")))
    elif isinstance(given, (list, tuple)):
        providers = given
    found = [Spec(**{**fields, "provider": provider}) for provider in providers]
    if not found:
        raise SpecError("provider must be the name of a provider, or several, such as 'aws,runpod', but got none.")
    return found


def _asked(spec: Spec, settings: Config) -> Iterator[AskedProvider]:
    """Yield the providers to ask for a spec."""
    if spec.provider is None:
        for each in filter(lambda cloud: is_implicit(cloud.config), known_clouds()):
            yield AskedProvider(spec, each.provider, each.config if each.is_usable else None)
        return
    if spec.provider == GPUHUNT:
        for listed in gpuhunt_providers():
            yield AskedProvider(spec, listed.name, listed)
        return
    if isinstance(spec.provider, str):
        spec = replace(spec, provider=settings.provider(spec.provider))
    config = provider_config(spec)
    yield AskedProvider(spec, config.name, config)


def _directory() -> Path | None:
    try:
        return data_directory()
    except JournalError as error:
        _logger.warning("%s", error)
        return None
