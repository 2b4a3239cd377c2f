"""Attacks on the first sums of a run: what they find after each, and which attacks are refused."""

from typing import Any

import pytest
from support.runs.audited import job, tables

from secagg.audits.audit import Attacked
from secagg.audits.audited_run import AuditedRun
from secagg.audits.by_rounds import audit_by_rounds
from secagg.audits.contract import Verdict
from secagg.audits.views import Who
from secagg.contracts import Result
from secagg.errors import UsageError
from secagg.jobs.job import Job, parse_job

NAMES = ["admm_messages", "identified_share"]
Found = dict[int, dict[str, Attacked]]


def admm(protocol: str) -> Job:
    return parse_job(job({"name": "notears_admm", "rounds": 12}, 2, protocol))


@pytest.fixture(scope="module")
def found() -> dict[str, Found]:
    rounds: dict[str, Any] = {"attacks": NAMES, "rounds": [2, 1, 6, 500], "seed": 1}
    by_protocol = dict[str, Found]()
    for protocol in ("plain", "masked"):
        rows = audit_by_rounds(admm(protocol), tables(2, 2), set_aside=0.0, **rounds)
        by_protocol[protocol] = {
            r: {a.attack.name: a for a in of if a.who is Who.COORDINATOR} for r, of in rows.items()
        }
    return by_protocol


def value(found: Found, r: int, name: str) -> float:
    finding = found[r][name].finding
    assert finding is not None
    return finding.value


def test_numbers_of_sums_are_sorted_and_the_last_is_that_of_all(found: dict[str, Found]) -> None:
    *some, last = found["plain"]
    assert some == [1, 2, 6] and last == 13  # the count and twelve rounds


def test_the_first_response_gives_the_covariance_matrix_in_clear(found: dict[str, Found]) -> None:
    plain = found["plain"]
    assert plain[1]["admm_messages"].verdict is Verdict.NOT_APPLICABLE  # no response yet
    assert value(plain, 2, "admm_messages") < 1e-3
    assert value(plain, 6, "admm_messages") < 1e-5
    assert plain[2]["admm_messages"].verdict is Verdict.LEAK


def test_masked_messages_give_nothing_and_the_control_is_cut_as_well(
    found: dict[str, Found],
) -> None:
    masked = found["masked"]
    for r in (2, 6, 13):
        assert masked[r]["admm_messages"].verdict is Verdict.NO_LEAK_FOUND
    cut, whole = (masked[r]["admm_messages"].control for r in (2, 6))
    assert cut is not None and whole is not None and whole.value < cut.value < 1e-3


def test_sums_identify_more_with_each_round(found: dict[str, Found]) -> None:
    shares = [value(found["masked"], r, "identified_share") for r in (1, 2, 6, 13)]
    assert shares == sorted(shares) and shares[0] < 0.05 and shares[-1] > 0.9


def test_the_first_sums_are_all_that_the_view_has(tmp_path: Any) -> None:
    data = tables(2, 2)
    empty = {name: table[:0] for name, table in data.items()}
    run = AuditedRun.of(admm("plain"), data, empty, 1, tmp_path / "run")
    cut = run.first(3).view
    assert cut.rounds == run.view.rounds[:3] and len(run.view.rounds) == 13
    assert run.view.messages and not cut.messages and cut.result == Result({})


@pytest.mark.parametrize("name", ["hm1_messages", "canaries", "cohort_differencing", "tracing"])
def test_an_attack_that_reads_more_than_sums_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        audit_by_rounds(
            admm("plain"), tables(2, 2), attacks=["admm_messages", name], rounds=[1], seed=1,
            set_aside=0.0,
        )  # fmt: skip
    assert caught.value.where == "attacks.rounds" and name in caught.value.what
