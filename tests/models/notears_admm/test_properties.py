"""Any finite records give a result with the right notes, or a typed error."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secagg.errors import SecaggError
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.notears import notears
from secagg.models.notears_admm.coordinator import Schedule
from secagg.models.notears_admm.linear_simulation import learn

VALUES = st.one_of(
    st.floats(-10, 10),
    st.floats(-1e6, 1e6),
    st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e100, -1e300]),
)


@st.composite
def some_sites(draw: st.DrawFn) -> list[np.ndarray]:
    q = draw(st.integers(1, 5))
    rows = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    scale = draw(st.sampled_from([1.0, 1e-8, 1e3]))
    return [scale * draw(arrays(np.float64, (n, q), elements=VALUES)) for n in rows]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(some_sites(), st.sampled_from([0.0, 0.01, 5.0]), st.booleans())
def test_learn(sites: list[np.ndarray], penalty: float, zero_diagonal: bool) -> None:
    try:
        fit = learn(sites, penalty=penalty, zero_diagonal=zero_diagonal)
    except SecaggError:
        return
    assert np.all(np.isfinite(fit.weights))
    assert not (zero_diagonal and np.diagonal(fit.weights).any())
    if fit.converged:
        assert fit.diagnostics["h"] <= 1e-6
        assert fit.diagnostics["consensus_residual"] <= 1e-8
        # An edge above 0.3 in a cycle of d <= 5 has h >= d 0.09^d / d! > 1e-7: hence the note.
        assert is_acyclic(fit.directed) or fit.notes
    else:
        assert "do not rely on this graph" in fit.notes[0]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(some_sites())
def test_learn_as_the_paper(sites: list[np.ndarray]) -> None:
    try:
        fit = learn(sites, schedule=Schedule("paper", rounds=40))
    except SecaggError:
        return
    assert np.all(np.isfinite(fit.weights))
    assert fit.converged or "do not rely on this graph" in fit.notes[0]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(some_sites(), st.booleans())
def test_central_notears(sites: list[np.ndarray], standardise: bool) -> None:
    X = np.concatenate(sites)
    with np.errstate(over="ignore", invalid="ignore"):  # of the moments, which are the caller's
        centred = X - X.mean(axis=0) if len(X) else X
        names = tuple(f"x{i}" for i in range(X.shape[1]))
        mean = X.mean(axis=0) if len(X) else np.zeros(X.shape[1])
        moments = Moments(names, len(X), mean, centred.T @ centred)
    try:
        fit = notears(moments, standardise=standardise)
    except SecaggError:
        return
    assert np.all(np.isfinite(fit.weights))
    if fit.converged:
        assert is_acyclic(fit.weights != 0)
    else:
        assert "do not rely on this graph" in fit.notes[0]
