"""The only list of all attacks: their names, modules and classes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import cast

from secagg.audits.contract import Attack
from secagg.core.validation import unknown_key
from secagg.errors import UsageError

ATTACKS = {
    "clear_contributions": (
        "secagg.audits.attacks.statistics.clear_contributions",
        "ClearContributions",
    ),
    "identified_share": ("secagg.audits.attacks.statistics.identified_share", "IdentifiedShare"),
    "admm_messages": ("secagg.audits.attacks.statistics.admm_messages", "AdmmMessages"),
    "admm_sums": ("secagg.audits.attacks.statistics.admm_sums", "AdmmSums"),
    "hm1_messages": ("secagg.audits.attacks.fedlin.hm1_messages", "Hm1Messages"),
    "hm1_sums": ("secagg.audits.attacks.fedlin.hm1_sums", "Hm1Sums"),
    "hm1_invented": ("secagg.audits.attacks.fedlin.hm1_sums", "Hm1Invented"),
    "ep_messages": ("secagg.audits.attacks.fedlin.ep_messages", "EpMessages"),
    "hm2_points": ("secagg.audits.attacks.fedlin.hm2_sums", "Hm2Points"),
    "hm2_invented": ("secagg.audits.attacks.fedlin.hm2_sums", "Hm2Invented"),
    "gibbs_messages": ("secagg.audits.attacks.samplers.gibbs_messages", "GibbsMessages"),
    "gibbs_sums": ("secagg.audits.attacks.samplers.gibbs_sums", "GibbsSums"),
    "sparse_invented": ("secagg.audits.attacks.samplers.sparse_invented", "SparseInvented"),
    "cohort_differencing": (
        "secagg.audits.attacks.questions.cohort_differencing",
        "CohortDifferencing",
    ),
    "last_site": ("secagg.audits.attacks.questions.last_site", "LastSite"),
    "job_differencing": ("secagg.audits.attacks.questions.job_differencing", "JobDifferencing"),
    "rare_cell": ("secagg.audits.attacks.questions.rare_cell", "RareCell"),
    "single_estimates": (
        "secagg.audits.attacks.questions.single_estimates",
        "SingleEstimates",
    ),
    "refusal_oracle": ("secagg.audits.attacks.questions.refusal_oracle", "RefusalOracle"),
    "tracing": ("secagg.audits.attacks.records.tracing", "Tracing"),
    "gram_records": ("secagg.audits.attacks.records.gram_records", "GramRecords"),
    "coefficient_tracing": (
        "secagg.audits.attacks.records.coefficient_tracing",
        "CoefficientTracing",
    ),
    "attribute_inference": (
        "secagg.audits.attacks.records.attribute_inference",
        "AttributeInference",
    ),
    "gradient_inversion": (
        "secagg.audits.attacks.records.gradient_inversion",
        "GradientInversion",
    ),
    "membership": ("secagg.audits.attacks.records.membership", "Membership"),
    "largest_record": ("secagg.audits.attacks.records.largest_record", "LargestRecord"),
    "many_run_epsilon": (
        "secagg.audits.attacks.guarantees.many_run_epsilon",
        "ManyRunEpsilon",
    ),
    "canaries": ("secagg.audits.attacks.guarantees.canaries", "Canaries"),
    "noise_self_test": ("secagg.audits.attacks.guarantees.noise_self_test", "NoiseSelfTest"),
    "keys_and_masks": ("secagg.audits.attacks.guarantees.keys_and_masks", "KeysAndMasks"),
}


def make_attacks(names: Sequence[str] = ()) -> list[Attack]:
    """Return the attacks of these names; without names, all. Raises `UsageError`."""
    for name in names:
        if name not in ATTACKS:
            error = unknown_key("attack", name, ATTACKS)
            raise UsageError("attack", f"no attack {name!r}", error.advice)
    found = []
    for name in names or ATTACKS:
        module, attribute = ATTACKS[name]
        found.append(cast("Attack", getattr(importlib.import_module(module), attribute)()))
    return found
