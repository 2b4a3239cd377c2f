"""What a guard enters in the ledger for a contribution. Whole runs are in tests/runtime."""

from __future__ import annotations

from collections import Counter

import pytest
from support.ledgers import Clock

from secagg.contracts import Field, Kind, Stage
from secagg.contracts.noise import Adjacency, Placement, Sensitivity
from secagg.core.randomness import system_random
from secagg.errors import PolicyRefusal
from secagg.privacy.accounting.calibration import EXACT, calibrate
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.policy.evaluation import PolicyRequest
from secagg.privacy.policy.guard import ContributionRequest, Guard, PlannedRelease
from secagg.privacy.policy.site_policy import SitePolicy

ABC = ("a", "b", "c")
SPEC = (Field("g", (4,), 1e3, 32, Kind.BOUNDED),)
COUNT = Stage("cohort", (Field("n", (1,), 1e3, 32, Kind.COUNT),), 1, "", Sensitivity(1.0, 1.0))
ROUNDS = Stage("gradient", SPEC, 3, "", Sensitivity(1.0, 2.0))
TERMS = Terms(Placement.ROUND, 1.0, 1e-6, Adjacency.ADD_REMOVE, 1, 0.05)
CALIBRATED = calibrate(TERMS, (COUNT, ROUNDS), 3, 100, hides=True)


def guard_of(ledger: Ledger, private: bool = True, replayable: bool = False) -> Guard:
    template = PolicyRequest(
        site="a", coordinator_key=bytes(32), method="gradient", columns=(), protocol="masked",
        parameters=4, cohort=ABC, counting=False,
    )  # fmt: skip
    return Guard(
        "5e55", "heart", SitePolicy(min_sites=3, min_records=1), template,
        CALIBRATED if private else None, lambda: ledger, b"", b"", replayable,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("private", "replayable", "rounds"), [(True, False, 3), (True, True, 3), (False, False, 1)]
)
def test_the_guard_charges_each_contribution_its_cost(
    private: bool, replayable: bool, rounds: int
) -> None:
    """Noise that others can draw again costs as much as none; of exact sums the first suffices."""
    with Ledger.in_memory(Clock()) as ledger:
        guard = guard_of(ledger, private, replayable)
        first = PlannedRelease(ContributionRequest(0, "cohort", ABC, None, 0), COUNT.spec, {}, 1)
        guard.record_release(first, system_random)
        assert ledger.cohorts("heart") == ()  # sites may still drop out
        for before in range(3):
            request = ContributionRequest(1 + before, "gradient", ABC, 100, before)
            seed = guard.record_release(PlannedRelease(request, SPEC, {}, 1), system_random)
            assert bool(seed) == (before < rounds)
        exact = not private or replayable
        count, each = (CALIBRATED.mechanisms[name].cost() for name in ("cohort", "gradient"))
        spent = {EXACT: 1 + rounds} if exact else {count: 1, each: 3}
        assert ledger.spent("heart") == spent
        cohorts = ledger.cohorts("heart")  # that of the count is settled by the round after it
        assert [(c.round, c.sites) for c in cohorts] == [(n, {*ABC}) for n in range(1 + rounds)]


def test_every_refusal_is_recorded_and_each_approval_once() -> None:
    with Ledger.in_memory(Clock()) as ledger:
        guard = guard_of(ledger)
        for _ in range(2):
            with pytest.raises(PolicyRefusal):
                guard.admit(ContributionRequest(0, "cohort", ("a", "b"), None, 0))
        rules = Counter(
            (line.content["rule"], line.content["allowed"]) for line in ledger.history("heart")
        )
        assert rules == {("min_sites", False): 2, ("cohorts", False): 2}
        guard.admit(ContributionRequest(0, "cohort", ABC, None, 0))
        guard.admit(ContributionRequest(0, "cohort", ABC, None, 0))
        assert len(ledger.history("heart")) == 6
