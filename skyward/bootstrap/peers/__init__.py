"""Environments from other nodes of a pool: what one node offers to another, and the program that sends it."""

from skyward.bootstrap.peers.offer import (
    PROCESSORS,
    SMALL,
    EnvironmentOffer,
    EnvironmentRequest,
    EnvironmentSource,
    MachineKind,
    can_offer_at,
)

__all__ = [
    "PROCESSORS",
    "SMALL",
    "EnvironmentOffer",
    "EnvironmentRequest",
    "EnvironmentSource",
    "MachineKind",
    "can_offer_at",
]
