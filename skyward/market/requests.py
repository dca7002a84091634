"""Requesting the offers of one provider."""

import asyncio

from skyward.providers.protocol import Offer, Provider

__all__ = ["ask", "reason_of"]

_REASON_LENGTH = 300


async def ask(provider: Provider, within: float) -> tuple[Offer, ...]:
    """Return all offers of `provider`.

    Raises:
        TimeoutError: it took longer than `within` seconds.
        Exception: any exception of the provider. A partial list is discarded: it may lack the cheapest offer.
    """
    try:
        async with asyncio.timeout(within) as deadline:
            return tuple([offer async for offer in provider.offers()])
    except TimeoutError as error:
        if deadline.expired():
            raise TimeoutError(f"it did not list its offers within {within:g} s") from error
        raise


def reason_of(error: BaseException) -> str:
    """Return the first line of an error of a provider, short enough for a sentence."""
    lines = str(error).strip().splitlines()
    text = lines[0].rstrip(".") if lines else type(error).__name__
    return text if len(text) <= _REASON_LENGTH else f"{text[:_REASON_LENGTH]}..."
