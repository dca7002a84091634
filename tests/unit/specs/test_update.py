"""Updates of specs: the fields that may change, and the positions of earlier specs."""

from typing import Any

import pytest

import skyward as sky
from skyward.specs import Spec
from skyward.specs.update import SpecHistory, changed_fields, updated

pytestmark = pytest.mark.unit

WORKER = sky.Worker()


def test_only_the_given_fields_change() -> None:
    spec = Spec(vcpus=4, image=sky.Image(pip=["numpy"]), nodes=(1, 4))
    (new,) = updated([spec], {"image": sky.Image(env={"A": "1"})}, WORKER)
    assert new == Spec(vcpus=4, image=sky.Image(env={"A": "1"}), nodes=(1, 4))
    assert changed_fields([spec], [new]) == ("image",)


def test_all_alternatives_change_and_equal_ones_are_one() -> None:
    specs = [Spec(allocation="spot"), Spec(allocation="on-demand")]
    assert updated(specs, {"vcpus": 2}, WORKER) == (
        Spec(allocation="spot", vcpus=2),
        Spec(allocation="on-demand", vcpus=2),
    )
    assert updated(specs, {"allocation": "spot"}, WORKER) == (Spec(allocation="spot"),)


def test_no_field_differs_in_equal_specs() -> None:
    spec = Spec(image=sky.Image(pip=["numpy"]))
    assert changed_fields([spec], updated([spec], {"image": sky.Image(pip=["numpy"])}, WORKER)) == ()


@pytest.mark.parametrize("field", ["nodes", "plugins", "ttl", "warm", "idle_timeout", "worker", "budget", "env", "pip"])
def test_field_that_is_no_part_of_an_update_says_what_to_do(field: str) -> None:
    with pytest.raises(sky.SpecError, match=rf"^pool\.update got '{field}': .*(open another one|use|write)") as error:
        updated([Spec()], {field: 1}, WORKER)
    assert str(error.value).endswith(".")


@pytest.mark.parametrize("fields", [{}, {"gpu": "A100"}, {"vcpus": -1}])
def test_wrong_fields_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(sky.SpecError):
        updated([Spec()], fields, WORKER)


def test_accelerator_does_not_change_under_plugins() -> None:
    spec = Spec(accelerator="A100", plugins=[sky.plugins.mps()])
    with pytest.raises(sky.SpecError, match="with plugins"):
        updated([spec], {"accelerator": "H100"}, WORKER)


def test_each_spec_has_positions_of_its_own_and_an_earlier_one_keeps_them() -> None:
    first, second, third = (Spec(vcpus=1), Spec(vcpus=2)), (Spec(vcpus=3),), (Spec(vcpus=4),)
    history = SpecHistory({0: first})
    history.take(second)
    assert (history.first, history.present) == (2, second)
    history.take(third)
    assert history.first == 3
    history.take(first)
    assert (history.first, history.present) == (0, first)
    assert history.position_of((Spec(vcpus=5),)) == 4


def test_positions_of_an_update_that_failed_are_not_given_to_others() -> None:
    history = SpecHistory({0: (Spec(vcpus=1),)})
    assert history.position_of((Spec(vcpus=2), Spec(vcpus=3))) == 1
    assert history.position_of((Spec(vcpus=4),)) == 3
    assert history.position_of((Spec(vcpus=2), Spec(vcpus=3))) == 1, "it is tried again"
    assert (history.first, history.present) == (0, (Spec(vcpus=1),))
