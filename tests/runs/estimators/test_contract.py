"""What every estimator must do: scikit-learn's manners, and each argument is given once."""

from typing import Any

import pandas as pd
import pytest
from sklearn.base import clone

import secagg
from secagg.errors import UsageError
from secagg.runs.estimators.fedlin import FedLin
from secagg.runs.estimators.fedmodule import FedModule
from secagg.runs.estimators.fedngm import FedNGM

TABLE = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [2.0, 4.0, 5.0]})
ESTIMATORS: dict[type, tuple[dict[str, Any], tuple[str, ...]]] = {
    FedLin: ({"model": "hm1", "outcome": "z"}, ("name", "outcome", "predictors")),
    FedModule: ({"outcome": "y", "predictors": ("x",)}, ("module", "outcome", "predictors")),
    FedNGM: ({"variables": ("a", "b")}, ("name", "variables")),
}
"""Some arguments of each, and the settings that repeat arguments."""


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_parameters_are_the_constructors_arguments(kind: Any) -> None:
    model = kind(seed=3, **ESTIMATORS[kind][0])
    assert model.get_params().items() >= {"seed": 3, **ESTIMATORS[kind][0]}.items()
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(seed=4).seed == 4 and getattr(secagg, kind.__name__) is kind
    assert repr(model).startswith(f"{kind.__name__}(") and "seed=4" in repr(model)
    with pytest.raises(UsageError) as caught:
        model.set_params(sed=1)
    assert caught.value.where == kind.__name__


@pytest.mark.parametrize(
    "call", [lambda: FedLin().predict(TABLE, "a"), lambda: FedModule().predict(TABLE),
             lambda: FedNGM().sample(3)],
)  # fmt: skip
def test_an_estimator_that_is_not_fitted_says_so(call: Any) -> None:
    with pytest.raises(UsageError):
        call()


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        pytest.param(kind, key, marks=pytest.mark.neural if kind is FedModule else ())
        for kind, (_, keys) in ESTIMATORS.items()
        for key in keys
    ],
)
def test_settings_that_are_arguments_are_refused(kind: Any, key: str) -> None:
    model = kind(settings={key: "y"}, seed=1)
    with pytest.raises(UsageError) as caught:
        model.fit_sites({"a": TABLE, "b": TABLE})
    assert caught.value.where == kind.__name__ and not hasattr(model, "result_")
