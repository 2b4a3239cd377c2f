"""The only list of all attacks: their names, modules and classes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import cast

from secagg.audits.contract import Attack
from secagg.core.validation import unknown_key
from secagg.errors import UsageError

ATTACKS = {
    "clear_contributions": "statistics.clear_contributions",
    "identified_share": "statistics.identified_share",
    "site_accuracy": "statistics.site_accuracy",
    "admm_messages": "statistics.admm_messages",
    "admm_sums": "statistics.admm_sums",
    "hm1_messages": "fedlin.hm1_messages",
    "hm1_sums": "fedlin.hm1_sums",
    "hm1_invented": "fedlin.hm1_sums",
    "ep_messages": "fedlin.ep_messages",
    "hm2_points": "fedlin.hm2_sums",
    "hm2_invented": "fedlin.hm2_sums",
    "full_sums": "fedlin.full_sums",
    "full_invented": "fedlin.full_sums",
    "gibbs_messages": "samplers.gibbs_messages",
    "gibbs_sums": "samplers.gibbs_sums",
    "sparse_invented": "samplers.sparse_invented",
    "cohort_differencing": "questions.cohort_differencing",
    "last_site": "questions.last_site",
    "job_differencing": "questions.job_differencing",
    "rare_cell": "questions.rare_cell",
    "single_estimates": "questions.single_estimates",
    "refusal_oracle": "questions.refusal_oracle",
    "tracing": "records.tracing",
    "gram_records": "records.gram_records",
    "null_combination": "records.null_combination",
    "coefficient_tracing": "records.coefficient_tracing",
    "attribute_inference": "records.attribute_inference",
    "gradient_inversion": "records.gradient_inversion",
    "membership": "records.membership",
    "crossing_records": "records.crossing_records",
    "largest_record": "records.largest_record",
    "many_run_epsilon": "guarantees.many_run_epsilon",
    "canaries": "guarantees.canaries",
    "noise_self_test": "guarantees.noise_self_test",
    "keys_and_masks": "guarantees.keys_and_masks",
}
"""Modules in `secagg.audits.attacks`. The class has the attack's name, as in `IdentifiedShare`."""


def make_attacks(names: Sequence[str] = ()) -> list[Attack]:
    """Return the attacks of these names; without names, all. Raises `UsageError`."""
    for name in names:
        if name not in ATTACKS:
            error = unknown_key("attack", name, ATTACKS)
            raise UsageError("attack", f"no attack {name!r}", error.advice)
    found = []
    for name in names or ATTACKS:
        module = importlib.import_module(f"secagg.audits.attacks.{ATTACKS[name]}")
        found.append(cast("Attack", getattr(module, name.title().replace("_", ""))()))
    return found
