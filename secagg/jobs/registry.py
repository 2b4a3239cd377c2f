"""The only list of all methods and protocols: their names, modules and classes.

A module is imported when it is first used, so that `import secagg` is fast.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, ConfigDict

from secagg.contracts import AskedRegression, Method, SecureSum
from secagg.contracts.noise import Placement, Placements
from secagg.core.validation import build, unknown_key
from secagg.errors import CapabilityError, JobError


class Named(BaseModel):
    """A method or protocol by name, with its settings; they are checked when it is built."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """All keys except the name."""
        return dict(self.model_extra or {})


METHODS = {
    "moments": ("secagg.models.moments.method", "PooledMoments"),
    "tables": ("secagg.models.tables.method", "CountTables"),
    "logistic": ("secagg.models.glm.logistic", "Logistic"),
    "poisson": ("secagg.models.glm.poisson", "Poisson"),
    "one_step": ("secagg.models.one_step.method", "OneStep"),
    "gradient": ("secagg.models.glm.gradient_descent", "Gradient"),
    "notears_admm": ("secagg.models.notears_admm.linear", "NotearsAdmm"),
    "notears_mlp_admm": ("secagg.models.notears_admm.mlp", "NotearsMlpAdmm"),
    "local_graphs": ("secagg.models.local_graphs.method", "LocalGraphs"),
    "sparse_regression": ("secagg.models.sparse_bayes.regression", "SparseRegression"),
    "sparse_markov": ("secagg.models.sparse_bayes.markov_random_field", "SparseMarkov"),
    "sparse_directed": ("secagg.models.sparse_bayes.directed_graph", "SparseDirected"),
    "fedavg": ("secagg.models.fedlin.fedavg", "FedAvg"),
    "fedlin_hm1": ("secagg.models.fedlin.hm1", "FedLinHm1"),
    "fedlin_hm2": ("secagg.models.fedlin.hm2", "FedLinHm2"),
    "fedlin_full": ("secagg.models.fedlin.full.method", "FedLinFull"),
    "fedngm": ("secagg.models.neural.ngm.method", "FedNgm"),
    "fedngr": ("secagg.models.neural.ngm.revealer", "FedNgr"),
    "torch_module": ("secagg.models.neural.torch_module", "TorchModule"),
}
REGRESSIONS_UNDER_NOISE = ("one_step", "moments", "gradient")
"""Methods that `secagg plan` compares; each has `answering`."""

Answer = tuple[str, tuple[dict[str, Any], ...], Placement]

PROTOCOLS = {
    "plain": ("secagg.protocols.plain", "Plain"),
    "additive": ("secagg.protocols.additive", "Additive"),
    "masked": ("secagg.protocols.masked.protocol", "Masked"),
    "paillier": ("secagg.protocols.paillier.single_key", "Paillier"),
    "threshold_paillier": ("secagg.protocols.paillier.threshold", "ThresholdPaillier"),
}

CHOOSING_A_METHOD = (
    "For a linear graph without lags, use moments with the analyses pc and notears: one secure\n"
    'sum instead of some 120 rounds. Without noise, and with centre = "site", it releases\n'
    "strictly less than notears_admm.\n"
    "For a linear regression at similar sites, use moments with ols, ridge or lasso: it releases\n"
    "less than sparse_regression, and its intervals are narrower. The sparse methods estimate\n"
    "what sites that may differ have in common; with four sites their intervals are two to three\n"
    "times as wide. If each site wants its own regression that borrows strength from the other\n"
    "sites, use fedlin_hm2; fedlin_hm1 and fedavg are there for comparison."
)
"""Advice that `secagg methods` prints below the list."""


def make_method(named: Named) -> Method:
    """Return the method of a job. Raises `JobError` for an unknown name or setting."""
    if named.name not in METHODS:
        _refuse_analysis(named.name)
    kind = _find(METHODS, "method", named.name)
    unknown: Mapping[str, str] = getattr(kind, "unknown_settings", {})
    for key in unknown.keys() & named.settings.keys():
        raise JobError(f"method.{key}", f"{named.name} {unknown[key]}", "Leave it out.")
    return cast("Method", build(kind, named.settings, "method"))


def make_protocol(named: Named) -> SecureSum:
    """Return the protocol of a job. Raises `JobError` for an unknown name or setting."""
    kind = _find(PROTOCOLS, "protocol", named.name)
    return cast("SecureSum", build(kind, named.settings, "protocol"))


def settings_of(built: Any) -> dict[str, Any]:
    """Return the settings of a method or protocol, including defaults."""
    return dataclasses.asdict(built)


def describe(table: dict[str, tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (name, first line of its docstring) for each entry of METHODS or PROTOCOLS."""
    return [
        (name, (importlib.import_module(module).__doc__ or "").strip().splitlines()[0])
        for name, (module, _) in table.items()
    ]


WHAT_A_RECORD_IS = (
    "A record is a row of a site's table. With privacy.person, it is a person: all rows of one\n"
    "person at a site, up to records_per_person."
)
"""What the guarantee protects, which `secagg list methods --privacy` prints below the list."""


def placements() -> dict[str, Placements]:
    """Return where each method can have the noise of differential privacy."""
    return {name: _find(METHODS, "method", name).placements for name in METHODS}


def default_placement(method: Named) -> Placement:
    """Return where a method has its noise if the job does not say: the first of its placements.

    Raises `JobError` for an unknown method, `CapabilityError` for one that can have no noise.
    """
    name, settings = method.name, method.model_dump()
    if name not in METHODS:
        _refuse_analysis(name)
    possible: Placements = _find(METHODS, "method", name).placements
    if not possible.where:
        what = f"method {name!r} can have no noise: {possible.note}".rstrip(".")
        raise CapabilityError("privacy", what, possible.instead)
    chosen = (place for key, value, place in possible.with_settings if settings.get(key) == value)
    return next(chosen, possible.where[0])


def answers(asked: Sequence[AskedRegression]) -> list[Answer]:
    """Return the ways to answer regressions under noise: in one job, or else in one job for each.

    A way is a method, the settings of its jobs, and a placement.
    """
    found = list[Answer]()
    for name in REGRESSIONS_UNDER_NOISE:
        kind = _find(METHODS, "method", name)
        jobs = [(settings,) for settings in kind.answering(*asked)]
        jobs = jobs or list(zip(*(kind.answering(each) for each in asked), strict=True))
        found += [(name, each, place) for each in jobs for place in kind.placements.where]
    return found


def _refuse_analysis(name: str) -> None:
    """If `name` is an analysis and not a method, raise `JobError` and show how to request it."""
    from secagg.models.moments.analyses import KINDS  # noqa: PLC0415  # with all its models

    kind = name.lower()
    if kind in KINDS:
        what = f"{name!r} is an analysis of the method 'moments'"
        advice = (
            f'Write: name = "moments", analyses = [{{ kind = "{kind}" }}], and put the settings of '
            f"{kind} next to its kind."
        )
        raise JobError("method.name", what, advice)


def _find(table: dict[str, tuple[str, str]], what: str, name: str) -> type[Any]:
    if name not in table:
        error = unknown_key(f"{what}.name", name, table)
        raise JobError(error.where, f"no {what} {name!r}", error.advice)
    module, attribute = table[name]
    return cast("type[Any]", getattr(importlib.import_module(module), attribute))
