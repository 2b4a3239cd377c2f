from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.models.horseshoe import NoisePrior
from secagg.models.laplace_graph_moves import dies_out

Array = NDArray[np.float64]


def turn_rows(graph: Array, errors: Array, b: Array, mean: Array, w: Array, angles: Array, chances: Array, pairs, prior: NoisePrior):
    """graph (C,p,p), mean, w (C,p,p) [diag: mean 0, w 1], errors (C,p,n), b (C,p): changed in place. pairs (K,2), angles (C,K), chances (C,K)"""
    p = graph.shape[-1]
    unit = np.eye(p)
    taken = np.zeros(angles.shape, bool)
    for i, two in enumerate(pairs):
        rows = np.concatenate([unit[two] - graph[:, two], errors[:, two]], axis=-1) / b[:, two, None]
        c, s = np.cos(angles[:, i]), np.sin(angles[:, i])
        turned = np.stack([c[:, None] * rows[:, 0] - s[:, None] * rows[:, 1], s[:, None] * rows[:, 0] + c[:, None] * rows[:, 1]], axis=1)
        lead = turned[:, [0, 1], two]
        newb = 1 / np.abs(lead)
        made = turned / lead[..., None]
        theta = unit[two] - made[..., :p]
        old = graph[:, two]
        gain = (
            np.abs(rows[..., p:]).sum(axis=(1, 2)) - np.abs(turned[..., p:]).sum(axis=(1, 2))
            + np.sum((p - prior.shape) * np.log(newb / b[:, two]) - prior.scale * (1 / newb - 1 / b[:, two]), axis=1)
            + np.sum(((old - mean[:, two]) ** 2 - (theta - mean[:, two]) ** 2) / (2 * w[:, two]), axis=(1, 2))
        )
        accept = gain > chances[:, i]
        if accept.any():
            k = np.flatnonzero(accept)
            changed = graph[k]
            changed[:, two] = theta[k]
            good = dies_out(changed)
            accept[k] = good
            k = k[good]
            graph[k[:, None], two] = theta[k]
            errors[k[:, None], two] = made[k, :, p:]
            b[k[:, None], two] = newb[k]
        taken[:, i] = accept
    return taken
