"""The corpus: notebooks as people write them, by what they are about."""

from tests.corpus.scenarios import (
    aliasing,
    arrays,
    caches,
    callables,
    classes,
    control,
    frames,
    library,
    outputs,
    state,
    training,
)

__all__ = ["SCENARIOS"]

SCENARIOS = [
    scenario
    for module in (training, aliasing, arrays, frames, callables, caches, classes, state, control, library, outputs)
    for scenario in module.SCENARIOS
]
