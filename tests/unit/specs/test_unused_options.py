"""Options of a pool that have no effect together with its other ones."""

import pytest

from skyward.scaling.binpack import Binpack
from skyward.scaling.snapshot import Decision, Snapshot
from skyward.specs.nodes import Nodes
from skyward.specs.options import Options
from skyward.specs.unused_options import unused_options

pytestmark = pytest.mark.unit

FIXED, SCALES = Nodes(2), Nodes(0, 4)


class Own:
    """A policy of a user."""

    name, interval = "own", None

    def decide(self, snapshot: Snapshot) -> Decision:
        return Decision({}, "nothing to do")


@pytest.mark.parametrize(
    ("options", "nodes", "says"),
    [
        (
            Options(target_wait="fast"),
            (FIXED,),
            "target_wait has no effect while the number of nodes is fixed: give a minimum and a maximum, as in "
            "`nodes=(1, 4)` or `--nodes 1:4`, for a pool that scales.",
        ),
        (
            Options(target_wait=30, waiting_cost=2.0, policy="allocate=even_load; scaling=vanilla"),
            (FIXED, SCALES),
            "target_wait and waiting_cost have no effect under policy 'vanilla': only 'adaptive' takes them into "
            "account.",
        ),
        (
            Options(waiting_cost=0, policy=Binpack()),
            (SCALES,),
            "waiting_cost has no effect under policy 'binpack': only 'adaptive' takes it into account.",
        ),
        (
            Options(consolidate_within=0.0, policy="pressure"),
            (SCALES,),
            "consolidate_within has no effect under policy 'pressure': only 'adaptive' takes it into account.",
        ),
        (Options(target_wait="fast", waiting_cost=1.0), (FIXED, SCALES), ""),
        (Options(target_wait="fast", policy=Own()), (SCALES,), ""),
        (Options(policy="vanilla"), (FIXED,), ""),
        (Options(target_wait="balanced"), (FIXED,), ""),
    ],
)
def test_options_that_have_no_effect_are_named(options: Options, nodes: tuple[Nodes, ...], says: str) -> None:
    assert unused_options(options, nodes) == says
