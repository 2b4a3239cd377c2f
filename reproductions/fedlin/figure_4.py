"""FedLin's figure 4: intervals of HM2, of one device's coefficients and of what devices share.

Yue, Al Kontar and Estrada Gomez (2022), section 5.2. The paper shows one run, whose intervals hold
the truth. One run cannot show more than that, so we count over runs.
"""

from __future__ import annotations

from reproductions.fedlin.tasks.hm2_selection import LEVEL
from reproductions.harness.figures import Figure, Method, Metric, Panel, Place, Remark
from secagg.experiments.runner.cells import cell

COMPONENTS = tuple(float(j) for j in range(1, 9))
_PANELS = {"device": "theta of the first device, case I", "shared": "mu 1 to 4, then log tau"}
_METHODS = {"device": ("hm2", "least"), "shared": ("hm2", "exact")}
_METRICS = (
    Metric("covered", f"share of runs whose {LEVEL:.0%} interval holds the truth", 2, top=1.0),
    Metric("width", "width of the interval", 4),
    Metric("off", "distance of the estimate from the truth", 4),
)
_SECONDS = {"device": 10.0, "shared": 20.0}  # rough time of a cell
_NOTES = (
    "One device: the records of case I of table 2, lasso, the device's own posterior; beside it, "
    f"Student's {LEVEL:.0%} intervals of its least squares.",
    "What devices share: 100 devices with 100 records, theta_k ~ N(mu, diag(tau)) with the paper's "
    "mu and tau, prior normal: mu ~ N(0, 1), log tau ~ N(0, 1). The paper does not state the noise "
    "of these records; here its standard deviation is 0.05.",
    "The paper shows a single run of each, whose intervals hold every true value.",
)


def intervals(seeds: int, *, quick: bool) -> Figure:
    """Return figure 4. quick: the device only"""
    kinds = ("device",) if quick else tuple(_PANELS)
    return Figure(
        name=f"figure4{'-quick' if quick else ''}",
        title="Figure 4: intervals of HM2",
        metrics=_METRICS,
        costs=(),
        methods=(
            Method("hm2", "HM2"),
            Method("least", "Separate, least squares"),
            Method("exact", "Exact posterior", note="by quadrature, with the noise known."),
        ),
        panels=tuple(Panel(_PANELS[kind], "component", COMPONENTS) for kind in kinds),
        points={
            Place(_PANELS[kind], j, method): {
                seed: cell(
                    "reproductions.fedlin.tasks.intervals", _SECONDS[kind], what=kind, seed=seed
                )
                for seed in range(seeds)
            }
            for kind in kinds
            for j in COMPONENTS
            for method in _METHODS[kind]
        },
        statements=(),
        remarks=tuple(
            Remark(
                f"HM2 minus {other}.",
                "width",
                tuple(
                    (Place(_PANELS[kind], j, "hm2"), Place(_PANELS[kind], j, method))
                    for j in COMPONENTS
                ),
            )
            for kind in kinds
            for method, other in ((_METHODS[kind][1], f"{_METHODS[kind][1]}, {_PANELS[kind]}"),)
        ),
        stated=(),
        notes=_NOTES,
    )
