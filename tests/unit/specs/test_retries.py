"""`retries=` and `retry_on=`: accepted values and covered exceptions."""

import re
from typing import Any

import pytest

import skyward as sky
from skyward.specs.retries import NO_RETRIES, Retries

pytestmark = pytest.mark.unit


def flaky() -> None: ...


def test_functions_and_calls_set_retries() -> None:
    plain = sky.function(flaky)
    assert plain().retries is NO_RETRIES
    assert sky.function(retries=2)(flaky)().retries == Retries(2, (Exception,))
    assert sky.function(retries=1, retry_on=OSError)(flaky)().retries == Retries(1, (OSError,))
    assert plain().with_retries(3, retry_on=(OSError, KeyError)).retries == Retries(3, (OSError, KeyError))
    assert sky.function(retries=2)(flaky)().with_retries(0).retries is NO_RETRIES


def test_decorators_keep_the_retries() -> None:
    class Model:
        @sky.silent
        @sky.function(retries=2)
        def fit(self) -> None: ...

    assert Model().fit().retries.times == 2
    assert Model.fit.retries.times == 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a negative number": ({"retries": -1}, "retries must be a whole number of at least 0, but got -1."),
    "a text": (
        {"retries": 1, "retry_on": "OSError"},
        "retry_on must hold classes of exceptions, as in `retry_on=(OSError,)`, but got 'O'.",
    ),
    "an exception that is no class": (
        {"retries": 1, "retry_on": OSError()},
        "retry_on must hold classes of exceptions, as in `retry_on=(OSError,)`, but got OSError().",
    ),
    "what no function raises as itself": (
        {"retries": 1, "retry_on": KeyboardInterrupt},
        "retry_on must hold classes of exceptions, as in `retry_on=(OSError,)`, but got <class 'KeyboardInterrupt'>.",
    ),
    "no number": (
        {"retry_on": OSError},
        "retry_on= has no effect without `retries=`: give both.",
    ),
    "nothing": (
        {"retries": 1, "retry_on": ()},
        "retry_on is empty, so no call would be retried: name an exception, or leave it out.",
    ),
    "a lost node": (
        {"retries": 1, "retry_on": (OSError, sky.NodeLostError)},
        "retry_on takes exceptions that the function raises, but NodeLostError is raised by Skyward: a task that was "
        "cancelled or timed out is not retried; for lost nodes, set the pool's `retry_on_interruption=`.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_retries_are_refused(case: str) -> None:
    given, expected = REFUSED[case]
    with pytest.raises(sky.SpecError, match=f"^{re.escape(expected)}$"):
        sky.function(**given)
    with pytest.raises(sky.SpecError, match=f"^{re.escape(expected)}$"):
        sky.function(flaky)().with_retries(given.get("retries", 0), given.get("retry_on"))


@pytest.mark.parametrize(
    ("on", "error", "covered"),
    [
        (None, ValueError(), True),
        (None, sky.RemoteError("x"), True),
        (None, sky.NotPicklableError("the result"), False),
        (sky.NotPicklableError, sky.NotPicklableError("the result"), True),
        (None, sky.TaskExitError("exit"), False),
        (sky.TaskExitError, sky.TaskExitError("exit"), True),
        (OSError, ConnectionError(), True),
        (OSError, ValueError(), False),
        ((OSError, ValueError), ValueError(), True),
    ],
)
def test_retries_cover_the_given_exceptions_and_their_subclasses(on: Any, error: Exception, covered: bool) -> None:
    assert Retries.of(1, on).covers(error) is covered
    assert not NO_RETRIES.covers(error)
