"""Attacks on jobs with noise once at the sites: each runs, or says why it does not apply."""

from typing import Any

import pytest
from support.privacy.ledger_runs import FIVE, noised
from support.runs.jobs import raw_job, table

from secagg.audits.audit import audit_job
from secagg.audits.outcomes import Verdict
from secagg.jobs.job import parse_job

QUESTIONS = ["cohort_differencing", "last_site"]
SHORT = {"rounds": 12, "chains": 2, "warmup": 4}


@pytest.mark.attack
@pytest.mark.parametrize(
    ("method", "attacks"),
    [
        ({"name": "fedlin_hm2", "outcome": "age"}, ["hm2_invented", "ep_messages", *QUESTIONS]),
        ({"name": "sparse_regression", "outcome": "age", **SHORT},
         ["gibbs_messages", "gibbs_sums", "sparse_invented"]),
        ({"name": "notears_admm", "rounds": 5}, ["admm_sums", "identified_share", *QUESTIONS]),
        ({"name": "local_graphs"},
         ["many_run_epsilon", "canaries", "noise_self_test", *QUESTIONS]),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_no_attack_ends_with_an_error(method: dict[str, Any], attacks: list[str]) -> None:
    """It would be reported as inconclusive, after the disclosure of the method named the attack."""
    job = raw_job(privacy=noised(4.0, placement="site"), method=method)
    tables = {name: table(i, 40) for i, name in enumerate(FIVE)}
    found = audit_job(parse_job(job | {"protocol": {"name": "masked"}}), tables, attacks=attacks)
    assert [a.why for a in found.attacked if "ended with an error" in a.why] == []
    assert all(one.why for one in found.attacked if one.verdict is Verdict.NOT_APPLICABLE)
