"""Rows of stored offers: the columns from which an offer is restored, and those by which it is filtered.

The filters of `skyward.market.filters` are what a filter means; the conditions here select the same offers, by columns
that are indexed. In a column of a filter, an infinite number and an empty text exclude nothing.
"""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import lru_cache
from itertools import product
from math import inf, isnan
from typing import Any, Final

from skyward.accelerators import describe
from skyward.market.filters import MEMORY_TOLERANCE, memory_of_one
from skyward.providers.protocol import InstanceType, Market, Offer
from skyward.specs import Spec

__all__ = ["COLUMNS", "SCHEMA", "offer_of", "queries", "row_of", "size_query"]

COLUMNS: Final = (
    *("id", "type", "vcpus", "memory_gb", "accelerator", "accelerator_count", "accelerator_memory_gb"),
    *("architecture", "spot_price", "on_demand_price", "billing_unit", "region", "open_ended", "specific", "others"),
)
"""Columns from which an offer is restored."""

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS fetches (
    number INTEGER PRIMARY KEY, settings TEXT NOT NULL UNIQUE, provider TEXT NOT NULL, at REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS offers (
    fetch INTEGER NOT NULL REFERENCES fetches ON DELETE CASCADE,
    id TEXT NOT NULL, type TEXT NOT NULL, vcpus REAL NOT NULL, memory_gb REAL NOT NULL, accelerator TEXT,
    accelerator_count REAL NOT NULL, accelerator_memory_gb REAL, architecture TEXT NOT NULL, spot_price REAL,
    on_demand_price REAL, billing_unit TEXT NOT NULL, region TEXT NOT NULL, open_ended INTEGER NOT NULL,
    specific TEXT NOT NULL, others TEXT NOT NULL,
    spot REAL, on_demand REAL, place TEXT NOT NULL, model TEXT NOT NULL, form_factor TEXT NOT NULL,
    count_of REAL NOT NULL, memory_of_one REAL NOT NULL, vcpus_of REAL NOT NULL, memory_of REAL NOT NULL,
    architecture_of TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS by_spot ON offers (fetch, spot, vcpus_of, memory_of, architecture_of);
CREATE INDEX IF NOT EXISTS by_on_demand ON offers (fetch, on_demand, vcpus_of, memory_of, architecture_of);
CREATE INDEX IF NOT EXISTS by_place_and_spot ON offers (fetch, place, spot, vcpus_of, memory_of);
CREATE INDEX IF NOT EXISTS by_place_and_on_demand ON offers (fetch, place, on_demand, vcpus_of, memory_of);
CREATE INDEX IF NOT EXISTS by_model_and_spot ON offers (fetch, model, spot, count_of, place, memory_of_one);
CREATE INDEX IF NOT EXISTS by_model_and_on_demand ON offers (fetch, model, on_demand, count_of, place, memory_of_one);
CREATE INDEX IF NOT EXISTS by_size ON offers (fetch, vcpus_of, memory_of);
"""
"""Offers of each fetch. A price is infinite if it is unknown, and NULL if the offer is not sold in that market.

The indexes have further columns of filters, so that few rows are read that do not fit.
"""

_ANY_MODEL: Final = " any"
_NO_MODEL: Final = " none"
"""The models of offers with an unknown accelerator, and without one. No accelerator has a name with a space."""

_PLAIN: Final = Offer("", InstanceType("", 0, 0))
_STORED: Final = {*COLUMNS, "instance_type"}
_OTHERS: Final = tuple(each for each in fields(Offer) if each.name not in _STORED)

_MARKETS: Final[dict[Market, str]] = {"spot": "spot", "on-demand": "on_demand"}


def row_of(offer: Offer) -> tuple[Any, ...]:
    """Return the values of an offer, in the order of `COLUMNS` and those of the filters.

    Raises:
        TypeError, ValueError: `specific` is not plain data, or a value has another type than it states.
    """
    kind = offer.instance_type
    specific = json.dumps(dict(offer.specific))
    if json.loads(specific) != dict(offer.specific):
        raise TypeError("`specific` of an offer must be plain data")
    return (
        *(offer.id, kind.name, kind.vcpus, kind.memory_gb, kind.accelerator, kind.accelerator_count),
        *(kind.accelerator_memory_gb, kind.architecture, _stored(offer.spot_price), _stored(offer.on_demand_price)),
        *(offer.billing_unit, offer.region, int(offer.open_ended), specific, _others_of(offer)),
        *(_price(offer, "spot"), _price(offer, "on-demand"), offer.region.casefold()),
        *((_ANY_MODEL, "", inf, inf, inf, inf, "") if offer.open_ended else _hardware(kind)),
    )


def _others_of(offer: Offer) -> str:
    """Return the fields without a column that differ from their defaults, as JSON; empty if there are none."""
    found = {each.name: getattr(offer, each.name) for each in _OTHERS}
    differing = {name: value for name, value in found.items() if value != getattr(_PLAIN, name)}
    return json.dumps(differing) if differing else ""


def _stored(price: float | None) -> float | None:
    """Return a price as SQLite can store it: it has no NaN."""
    return inf if price is not None and isnan(price) else price


def _price(offer: Offer, market: Market) -> float | None:
    if market not in offer.markets:
        return None
    price = offer.hourly_price(market)
    return inf if price is None else price


@lru_cache(maxsize=4096)  # many offers are of the same type
def _hardware(kind: InstanceType) -> tuple[str | float, ...]:
    """Return the values of the columns that are filtered by the hardware."""
    unknown = kind.accelerator == ""
    sold = describe(kind.accelerator) if kind.accelerator else None
    count = inf if unknown and not kind.accelerator_count else kind.accelerator_count or 1
    of_one = memory_of_one(kind) if sold else None
    return (
        _ANY_MODEL if unknown else sold.model if sold else _NO_MODEL,
        (sold.form_factor if sold else None) or "",
        count,
        inf if of_one is None else of_one,
        kind.vcpus if kind.vcpus > 0 else inf,
        kind.memory_gb if kind.memory_gb > 0 else inf,
        kind.architecture,
    )


def offer_of(row: tuple[Any, ...]) -> Offer:
    """Return the offer with these values, which are in the order of `COLUMNS`."""
    id, name, vcpus, memory, accelerator, count, of_one, architecture, *priced, region, ended, data, others = row
    kind = InstanceType(name, vcpus, memory, accelerator, count, architecture, of_one)
    spot, on_demand, unit = priced
    offer = Offer(id, kind, spot, on_demand, unit, region, json.loads(data), bool(ended))
    return replace(offer, **json.loads(others)) if others else offer


def queries(
    spec: Spec, fields: frozenset[str], market: Market, *, priced: bool = False
) -> Iterator[tuple[str, tuple[str | float, ...]]]:
    """Yield the queries for the offers of one fetch that fit `spec` in one market, each best first as `rank` has it.

    The first value is the key of the settings, and is left out here. `fields` and `priced` are those of `excluded_by`
    and `market_excluded_by`. Accelerators and regions need two queries, since an
    index has the order of prices for one of them only: of the one that is asked for, and of those that are unknown.
    So do offers without and with accelerators, where the spec asks for none.
    """
    price, most = _MARKETS[market], spec.max_hourly_cost
    terms = [f"{price} IS NOT NULL"]
    values: list[str | float] = []
    if most is not None or priced:
        terms.append(f"{price} < 9e999")
    if most is not None:
        terms.append(f"{price} <= ?")
        values.append(most)
    for field, column, test, value in _tests(spec):
        if field in fields and value is not None:
            terms.append(f"{column} {test}")
            values.append(value)
    lead = ""
    firsts: tuple[str, ...] = ("",)
    if spec.accelerator is not None and "accelerator" in fields:
        lead, firsts = "model", (describe(spec.accelerator.name).model, _ANY_MODEL)
    elif spec.region is not None and "region" in fields:
        lead, firsts = "place", tuple({spec.region.casefold(), ""})
    kinds: tuple[str, ...] = ("",)
    if spec.accelerator is None and spec.allocation != "cheapest":
        kinds = (" AND coalesce(accelerator, '') = ''", " AND coalesce(accelerator, '') <> ''")
    for first, kind in product(firsts, kinds):
        index, chosen = (f"by_{lead}_and_{price}", f" AND {lead} = ?") if lead else (f"by_{price}", "")
        yield (
            f"SELECT rowid, {', '.join(COLUMNS)} FROM offers INDEXED BY {index} WHERE fetch = ({_FETCH}){chosen} "
            f"AND {' AND '.join(terms)}{kind} ORDER BY {price}, type, region, id",
            (*((first,) if lead else ()), *values),
        )


def size_query(spec: Spec, fields: frozenset[str]) -> tuple[str, tuple[str | float, ...]] | None:
    """Return the query that finds a row if an offer of one fetch is as large as `spec` asks; None if it asks nothing.

    What no offer has would be looked for in all of them, once for each query of `queries`.
    """
    asked = [
        (f"{column} {test}", value)
        for field, column, test, value in _tests(spec)
        if field in _SIZES and field in fields and value is not None
    ]
    if not asked:
        return None
    terms, values = zip(*asked, strict=True)
    chosen = f"SELECT 1 FROM offers INDEXED BY by_size WHERE fetch = ({_FETCH}) AND {' AND '.join(terms)} LIMIT 1"
    return chosen, values


_SIZES: Final = ("vcpus", "memory_gb")
_FETCH: Final = "SELECT number FROM fetches WHERE settings = ?"


def _tests(spec: Spec) -> list[tuple[str, str, str, str | float | None]]:
    """Return the field of each filter, its column, its comparison, and its value; None for no limit."""
    found: list[tuple[str, str, str, str | float | None]] = [
        ("region", "place", "IN ('', ?)", spec.region.casefold() if spec.region is not None else None),
        ("vcpus", "vcpus_of", ">= ?", spec.vcpus),
        ("memory_gb", "memory_of", ">= ?", spec.memory_gb),
        ("architecture", "architecture_of", "IN ('', ?)", spec.architecture),
    ]
    if (asked := spec.accelerator) is not None:
        form = asked.metadata.get("form_factor") if asked.metadata else None
        least = None if asked.memory_gb is None else asked.memory_gb * MEMORY_TOLERANCE
        found += [
            ("accelerator", "form_factor", "IN ('', ?)", form or None),
            ("accelerator", "count_of", ">= ?", asked.count),
            ("accelerator", "memory_of_one", ">= ?", least),
        ]
    return found
