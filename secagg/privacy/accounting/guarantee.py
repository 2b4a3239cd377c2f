"""What a run guarantees under differential privacy, as plain data.

`secagg plan`, run.json and the report contain the same facts. They are the facts that a claim
should state according to NIST SP 800-226: unit, adjacency, clipping, sensitivity, noise, placement,
accountant, epsilon and delta, assumptions, and what is not covered.
`secagg.evidence.claims.guarantee` puts them in words.
"""

from __future__ import annotations

import math
from typing import Any

from secagg.contracts.noise import Adjacency, Clip
from secagg.privacy.accounting.calibration import Calibrated, Mechanism
from secagg.privacy.accounting.events import to_data

_DELTAS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
UNPROTECTED = (
    "Which sites take part, and when and how much they send. The log holds times to the "
    "millisecond, and a site with more records takes longer.",
    "In placement 'site', an unchanged answer in a later run shows that the records and the "
    "requested columns have not changed. If the budget is used up, any answer shows this too, and "
    "a refusal shows that they have changed.",
    "Whether a site's file can be read and has the declared columns. Otherwise the site refuses, "
    "under every job alike. Apart from these two cases, no refusal depends on the records.",
    "What the job itself declares: columns, bounds, levels, the expected number of records.",
    "A site that leaves out its noise, or invents records within the bounds.",
)


_EXACT = "exact composition of Gaussian mechanisms (Balle and Wang 2018, theorem 8)"
_PLD = (
    "privacy-loss distributions of Poisson samples (Zhu, Dong and Wang 2022; Doroshenko and others "
    "2022), an upper bound"
)
_KNOWN_SAMPLES = (
    "Nothing beyond the noise protects a record from someone who knows in which rounds it took "
    "part. Sites draw this at random and do not tell."
)


def guarantee(calibrated: Calibrated, clip: Clip, sites: int, withstands: int) -> dict[str, Any]:
    """Return the facts of the guarantee, for sums over `sites` sites.

    calibrated: the noise of the run
    clip: how sites clip their records
    withstands: the number of colluding sites from which the protocol hides single contributions
    """
    terms = calibrated.terms
    adjacency = terms.adjacency
    return {
        "placement": terms.placement.value,
        "unit": terms.unit,
        "person": terms.person,
        "person_pinned": terms.pinned,
        "records_per_person": 1 if terms.person is None else terms.records,
        "records_per_event": terms.records if terms.person is None else 1,
        "sites_per_person": terms.sites,
        "adjacency": adjacency.value,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "mu": calibrated.mu(),
        "mu_other_adjacency": calibrated.mu(_other(adjacency)),
        "epsilon_accounted": calibrated.epsilon(terms.delta),
        "delta_for_discreteness": calibrated.remainder(terms.epsilon),
        "curve": [[delta, calibrated.epsilon(delta)] for delta in _DELTAS],
        "events": {
            each.value: [to_data(event) for event in calibrated.events(each)] for each in Adjacency
        },
        "accountant": _PLD if calibrated.sampled else _EXACT,
        "record_norm": clip.norm,
        **({"constant": clip.constant} if clip.whole else {}),
        "person_norm": None if clip.person_square is None else math.sqrt(clip.person_square),
        "grid": f"2^-{clip.grid_bits}",
        "colluding": terms.colluding,
        "withstands": withstands,
        "if_more_collude": [list(row) for row in calibrated.if_more_collude(sites, withstands)],
        "mechanisms": [
            _facts(name, m, m.noise.site_variance(m.noise.min_sites if i == 0 else sites), sites)
            for i, (name, m) in enumerate(calibrated.mechanisms.items())
        ],
        "unprotected": [*UNPROTECTED, *([_KNOWN_SAMPLES] if calibrated.sampled else [])],
    }


def _other(adjacency: Adjacency) -> Adjacency:
    return Adjacency.REPLACE if adjacency is Adjacency.ADD_REMOVE else Adjacency.ADD_REMOVE


def _facts(stage: str, mechanism: Mechanism, at_site: int, sites: int) -> dict[str, Any]:
    """Return the facts about the noise of one stage.

    at_site: variance of each site's noise. Sites may drop out in the first sum, so for that sum it
        is computed for the smallest allowed number of sites
    """
    noise = mechanism.noise
    step = 2.0**-noise.fraction_bits
    sigma = math.sqrt(noise.variance) * step
    return {
        "stage": stage,
        "releases": mechanism.rounds,
        "numbers": mechanism.numbers,
        "law": "discrete Gaussian",
        "sensitivity_add": mechanism.add * sigma,
        "sensitivity_replace": mechanism.replace * sigma,
        "sigma": sigma,
        "sigma_of_a_site": math.sqrt(at_site) * step,
        "sigma_in_the_sum": math.sqrt(noise.sum_variance(sites, at_site)),
        "step": f"2^-{noise.fraction_bits}",
        "mu_add": mechanism.add,
        "mu_replace": mechanism.replace,
        "sampling_rate": mechanism.rate,
        "steps": mechanism.steps,
    }
