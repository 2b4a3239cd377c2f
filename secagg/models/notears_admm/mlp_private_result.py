"""The graph of a run of `notears_mlp_admm` with noise, and what its notes say about the noise."""

from __future__ import annotations

from typing import Final

import numpy as np

from secagg.contracts import PublicFacts, Result, State
from secagg.models.common.variables import halves
from secagg.models.graphs.acyclicity import graph_over_threshold, is_acyclic, no_edge_note
from secagg.models.graphs.job_result import graph_result, note_indicators
from secagg.models.graphs.proximal_newton import graph_constraint
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.mlp_settings import MlpSettings

ALL_ROUNDS: Final = "All rounds were run. Noisy sums do not show whether the search converged."


def noisy_result(
    state: State,
    settings: MlpSettings,
    public: PublicFacts,
    *,
    clip: float,
    learning_rate: float,
    averaged: int,
) -> Result:
    """Return the graph of W: edges with W_ij > threshold.

    state: the last one, with W the estimate; averaged: over how many rounds
    """
    networks, names = settings.networks(public), settings.names(public)
    weights, threshold = networks.adjacency(state["W"]), settings.threshold
    directed, applied, notes = weights > threshold, threshold, tuple[str, ...]()
    caution = _caution(state, names)
    if settings.acyclic:
        directed, applied, notes = graph_over_threshold(weights, threshold, None)
    elif not is_acyclic(directed):
        notes = (f"the edges above {threshold:g} contain a cycle; none was removed",)
    if not np.any(directed):
        notes += (no_edge_note(weights, names, applied),)
    fit = GraphFit(
        method="notears-mlp-noisy-rounds",
        names=names,
        directed=directed,
        undirected=np.zeros_like(directed),
        weights=weights,
        converged=True,  # left out of the summary below: nobody can know
        settings={
            "penalty": networks.sparsity,
            "hidden": networks.m,
            "zero_diagonal": networks.zero_diagonal,
            "threshold": threshold,
            "acyclic": settings.acyclic,
            "rho1": settings.rho1,
            "standardise": settings.standardised,
            "random_inputs": settings.starts_random,
            "rounds": settings.in_force["rounds"],
            "clip": clip,
            "learning_rate": learning_rate,
            "sampling_rate": settings.sampling_rate,
            "seed": settings.seed,
        },
        diagnostics={
            "h": graph_constraint(networks, state["W"])[0],
            "rounds": state["rounds"],
            "threshold": applied,
        },
        notes=(
            *filter(None, [caution]),
            _noise_note(clip, state["rounds"], averaged),
            *_failed_steps(state),
            *notes,
        ),
        caution=caution,
        knowledge=settings.known(public),
    )
    result = note_indicators(graph_result(fit, settings.truth, linear=False), public)
    del result.summary["converged"]
    result.summary["status"] = state["status"]
    result.arrays["parameters"] = state["W"]
    if settings.standardised:  # to undo it: the networks read (x - means) / deviations
        chosen = settings.chosen(public)
        half = halves(public, chosen)
        middle = np.array([public.variables[i].midpoint for i in chosen])
        result.arrays["means"] = middle + half * state["centre"]
        result.arrays["deviations"] = half / state["scale"]
    return result


def _noise_note(clip: float, rounds: int, averaged: int) -> str:
    return (
        f"With noise, this is not ADMM: the networks were trained by gradient steps, with fresh "
        f"noise in each of {rounds} rounds, among which the budget is divided. Each "
        f"record's gradient was clipped to norm {clip:g}, which makes effects look weaker. Weights "
        f"are those of the mean of the networks over the last {averaged} rounds. They contain "
        "noise, also where there is no effect, and its size is not known. So any edge may be "
        "noise, whatever its weight, and a missing edge does not mean that there is no effect."
    )


def _caution(state: State, names: tuple[str, ...]) -> str:
    """Return which columns' edges nobody should rely on; "" if there is no such column."""
    columns = ", ".join(repr(names[i]) for i in state["hidden_variances"])
    if not columns:
        return ""
    return (
        f"do not rely on edges of {columns}: the noise hides how much these columns vary. Declare "
        "narrower bounds, or raise epsilon"
    )


def _failed_steps(state: State) -> tuple[str, ...]:
    if not state["failed_steps"]:
        return ()
    return (f"{state['failed_steps']} steps could not be made finite and were left out.",)
