"""What all neural graphical models share: standardised variables, and the loss of a record.

The loss of a record is the sum over columns of its negative log-likelihood given the network's
outputs o (a pseudo-likelihood if no output reads its own column; Besag 1975):

    continuous      (z_v - o_v)^2 / (2 t_v) + log(t_v) / 2,   t_v = exp(2 r_v) + 10^-6           (2)
    with levels     log(1 + sum_l exp o_l) - o_level,         o = 0 for the first level          (3)

The constant in t_v, a thousandth of a pooled standard deviation, keeps the loss bounded where a
column is constant or determined by others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from secagg.core.arrays import Array
from secagg.models.neural.ngm.layout import NgmLayout

if TYPE_CHECKING:
    from torch import Tensor

MIN_VARIANCE = 1e-6
"""The smallest residual variance, of standardised variables."""


def standardised(layout: NgmLayout, centre: Array, scale: Array, records: Tensor) -> Tensor:
    """Return z, shape (records, variables). records: of all the job's variables, scaled."""
    import torch  # noqa: PLC0415

    chosen = records[:, list(layout.chosen)]
    return (chosen - torch.tensor(centre)) * torch.tensor(scale)


def record_losses(
    layout: NgmLayout, outputs: Tensor, z: Tensor, log_sd: Tensor, records: Tensor
) -> Tensor:
    """Return the sum of (2) and (3) over columns, shape (records,).

    outputs: shape (records, variables); log_sd: r, shape (continuous variables,)
    """
    import torch  # noqa: PLC0415

    continuous = layout.continuous.tolist()
    variance = torch.exp(2 * log_sd) + MIN_VARIANCE
    squares = (z[:, continuous] - outputs[:, continuous]) ** 2
    losses = torch.sum(squares / (2 * variance) + torch.log(variance) / 2, dim=1)
    for column in layout.columns:
        if column.indicator:
            positions = list(column.positions)
            logits = outputs[:, positions]
            on = records[:, [layout.chosen[p] for p in positions]] > 0
            all_logits = torch.cat([torch.zeros_like(logits[:, :1]), logits], dim=1)
            losses = losses + torch.logsumexp(all_logits, dim=1) - (logits * on).sum(dim=1)
    return losses
