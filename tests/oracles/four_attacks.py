"""Four attacks written from their papers alone, without a look at secagg's code, to compare with.

covariance      Ng and Zhang (2022), equations (4) and (10)
least_squares   Yue, Al Kontar and Estrada Gomez (2022), Algorithm 1 with full batches
traces          Dwork, Smith, Steinke, Ullman and Vadhan (2015); Homer and others (2008)
mu_lower        Nasr and others (2023), with the limits of Clopper and Pearson
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

Floats = NDArray[np.float64]


def covariance(W: Floats, rho2: float, V: Floats) -> Floats:
    """Return S from V = rho2 (B - W): at the minimum over B, S (I - B) = V."""
    B = W + V / rho2
    return np.asarray(np.linalg.solve((np.eye(len(W)) - B).T, V.T).T)


def least_squares(before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """Return the fixed point of after = before + b - G before, and G over its trace."""
    design = np.column_stack([-before, np.ones(len(before))])
    solved = np.linalg.lstsq(design, after - before, rcond=None)[0]
    G = (solved[:-1] + solved[:-1].T) / 2
    return np.linalg.solve(G, solved[-1]), G / np.trace(G)


def traces(M: Floats, n: int, reference: Floats, records: Floats) -> Floats:
    """Return <y - r, q - r>, each coordinate over its variance in the reference."""

    def moments(x: Floats) -> Floats:
        z = np.column_stack([np.ones(len(x)), x])
        i, j = np.triu_indices(z.shape[1])
        return np.asarray((z[:, i] * z[:, j])[:, 1:])

    known = moments(reference)
    released = (M / n)[np.triu_indices(len(M))][1:]
    direction = (released - known.mean(axis=0)) / known.var(axis=0, ddof=1)
    return np.asarray((moments(records) - known.mean(axis=0)) @ direction)


def mu_lower(before: Floats, after: Floats, error: float) -> float:
    """Return a lower bound on mu: half of the runs choose a linear test, and half judge it."""
    half = len(before) // 2
    covariances = np.cov(before[:half].T) + np.cov(after[:half].T)
    w = np.linalg.solve(covariances, after[:half].mean(axis=0) - before[:half].mean(axis=0))
    threshold = (before[:half] @ w).mean() / 2 + (after[:half] @ w).mean() / 2
    false_alarms = int(np.sum(before[half:] @ w > threshold))
    misses = int(np.sum(after[half:] @ w <= threshold))

    def upper(k: int, n: int) -> float:
        return float(beta.ppf(1 - error / 2, k + 1, n - k))

    n = len(before) - half
    return float(norm.ppf(1 - upper(false_alarms, n)) - norm.ppf(upper(misses, n)))
