"""The parallel parts of scikit-learn on a pool have the results that they have here, with one job and with loky."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 - makes the next import possible
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.parallel import Parallel, delayed

import skyward as sky

pytestmark = pytest.mark.local

X, Y = load_iris(return_X_y=True)
DIGITS, LABELS = (each[:300] for each in load_digits(return_X_y=True))
GRID = {"C": [0.1, 1.0, 10.0], "gamma": [0.001, 0.01]}


@pytest.fixture(scope="module")
def pool() -> Iterator[sky.Compute]:
    """Two nodes, which scikit-learn uses in this module."""
    with sky.Compute(provider="local", nodes=2, name="sklearn", plugins=[sky.plugins.sklearn()]) as pool:
        yield pool


def searched(search: Any) -> list[Any]:
    search.fit(DIGITS, LABELS)
    scores = search.cv_results_
    return [search.best_params_, scores["mean_test_score"], scores["params"], search.predict(DIGITS)]


def grid(jobs: int) -> Any:
    return searched(GridSearchCV(SVC(), GRID, cv=3, n_jobs=jobs))


def halving(jobs: int) -> Any:
    return searched(HalvingGridSearchCV(SVC(), GRID, cv=3, n_jobs=jobs, random_state=0))


def randomized(jobs: int) -> Any:
    return searched(RandomizedSearchCV(SVC(), GRID, n_iter=4, cv=3, n_jobs=jobs, random_state=0))


def pipeline(jobs: int) -> Any:
    steps = make_pipeline(StandardScaler(), SVC())
    return searched(GridSearchCV(steps, {"svc__C": [1, 10]}, cv=3, n_jobs=jobs))


def nested(jobs: int) -> Any:
    """Search over an estimator that is parallel itself."""
    trees = RandomForestClassifier(8, random_state=0, n_jobs=jobs)
    return searched(GridSearchCV(trees, {"max_depth": [2, 4]}, cv=3, n_jobs=jobs))


def scores(jobs: int) -> Any:
    return cross_val_score(SVC(), DIGITS, LABELS, n_jobs=jobs)


def own_scorer(jobs: int) -> Any:
    return cross_val_score(SVC(), X, Y, scoring=lambda estimator, x, _: estimator.predict(x).sum(), n_jobs=jobs)


def predictions(jobs: int) -> Any:
    return cross_val_predict(LogisticRegression(max_iter=200), X, Y, method="predict_proba", n_jobs=jobs)


def forest(jobs: int) -> Any:
    """Its trees grow on the pool, and predict in threads here, because they share memory."""
    fitted = RandomForestClassifier(20, random_state=0, n_jobs=jobs, oob_score=True).fit(DIGITS, LABELS)
    return [fitted.predict_proba(DIGITS), fitted.oob_score_, fitted.feature_importances_]


def bagging(jobs: int) -> Any:
    return BaggingClassifier(DecisionTreeClassifier(), 8, random_state=0, n_jobs=jobs).fit(X, Y).predict_proba(X)


def voting(jobs: int) -> Any:
    members = [("logistic", LogisticRegression(max_iter=200)), ("vectors", SVC())]
    return VotingClassifier(members, n_jobs=jobs).fit(X, Y).predict(X)


def one_against_rest(jobs: int) -> Any:
    return OneVsRestClassifier(SVC(), n_jobs=jobs).fit(X, Y).decision_function(X)


def importance(jobs: int) -> Any:
    fitted = DecisionTreeClassifier(random_state=0).fit(X, Y)
    return permutation_importance(fitted, X, Y, n_repeats=4, random_state=0, n_jobs=jobs).importances


def curve(jobs: int) -> Any:
    return learning_curve(SVC(), X, Y, train_sizes=[30, 60, 90], shuffle=True, random_state=0, n_jobs=jobs)


FITS = [
    grid,
    halving,
    randomized,
    pipeline,
    nested,
    scores,
    own_scorer,
    predictions,
    forest,
    bagging,
    voting,
    one_against_rest,
    importance,
    curve,
]


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.__name__)
def test_results_are_those_of_one_job(pool: sky.Compute, fit: Callable[[int], Any]) -> None:
    before = pool.snapshot().done
    found = fit(-1)
    assert pool.snapshot().done > before
    np.testing.assert_equal(found, fit(1))


@pytest.mark.timeout(300)
def test_results_are_those_of_loky(pool: sky.Compute) -> None:
    """In a process of its own, which ends loky's."""
    code = (
        "import json\n"
        "from tests.local.test_sklearn import forest, scores\n"
        "print(json.dumps([scores(2).tolist(), forest(2)[0].tolist()]))\n"
    )
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # more threads than cores make each other slow
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=280, env=alone
    )
    assert json.loads(done.stdout) == [scores(-1).tolist(), forest(-1)[0].tolist()]


class Broken(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Estimator that cannot be fitted."""

    def fit(self, x: Any, y: Any) -> "Broken":
        """Raise."""
        raise ValueError("cannot be fitted")


def test_error_of_a_fit_is_raised(pool: sky.Compute) -> None:
    with pytest.raises(ValueError, match="cannot be fitted"):
        cross_val_score(Broken(), X, Y, n_jobs=-1, error_score="raise")


def test_configuration_reaches_the_nodes(pool: sky.Compute) -> None:
    with sklearn.config_context(assume_finite=True, working_memory=7):
        configs = Parallel(n_jobs=-1)(delayed(sklearn.get_config)() for _ in range(3))
    assert [(config["assume_finite"], config["working_memory"]) for config in configs] == [(True, 7)] * 3


def test_search_inside_a_task_stays_on_its_node(pool: sky.Compute) -> None:
    @sky.function
    def search() -> tuple[int, set[int]]:
        import os

        from sklearn.utils.parallel import Parallel, delayed

        return os.getpid(), set(Parallel(n_jobs=2, prefer="threads")(delayed(os.getpid)() for _ in range(4)))

    own, others = search() >> pool
    assert own != os.getpid()
    assert others == {own}
