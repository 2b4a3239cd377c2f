"""`secagg audit`: what it finds in runs whose leaks are known, and in runs without."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.audited import attacked, job, tables
from typer.testing import CliRunner

from secagg.audits.attacks.statistics.identified_share import least_excess
from secagg.audits.audit import audit_job
from secagg.audits.contract import Limit, Verdict
from secagg.audits.views import Who
from secagg.cli.main import app
from secagg.errors import EvidenceError, PolicyRefusal, UsageError
from secagg.evidence.transcript_file import MESSAGES_FILE

# --- identified share -----------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [3, 4, 8])
def test_one_sum_of_moments_identifies_one_kth_and_nothing_beyond(sites: int) -> None:
    found = attacked(tables(sites, 2), "identified_share", {"name": "moments"})
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.value < 1e-9
    shares = found.finding.details["mean_shares"]["1"]
    # Two means and three entries of the covariance matrix.
    assert (2 * shares["means"] + 3 * shares["covariances"]) / 5 == pytest.approx(1 / sites)
    assert found.control is not None and found.control.value == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("who", [Who.COORDINATOR, Who.COALITION])
def test_one_sum_within_sites_is_compared_with_such_a_sum(who: Who) -> None:
    """A pooled sum determines fewer covariances, because it determines means instead."""
    raw = job({"name": "moments", "centre": "site"}, 2)
    (found,) = audit_job(raw, tables(4, 2), attacks=["identified_share"], views=[who]).attacked
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.value < 1e-4
    sites = 4 if who is Who.COORDINATOR else len(found.finding.details["sites"])
    expected = {
        "means": pytest.approx(0, abs=1e-4),
        "covariances": pytest.approx(1 / sites, rel=1e-3),
    }
    assert found.finding.details["mean_shares"]["1"] == expected
    assert found.finding.details["one_sum_of_moments"] == expected


def test_means_and_covariances_are_compared_with_the_same_sum() -> None:
    """A run that determines both what a pooled sum and what one within sites does is a leak."""
    pooled, within = {"means": 0.6, "covariances": 0.3}, {"means": 0.0, "covariances": 0.4}
    both = {"means": 0.6, "covariances": 0.4}
    assert least_excess(pooled, [pooled, within]) == (0.0, pooled)
    assert least_excess(within, [pooled, within]) == (0.0, within)
    assert least_excess(both, [pooled, within]) == (pytest.approx(1 / 7), pooled)


@pytest.mark.attack
@pytest.mark.parametrize(("d", "sites"), [(2, 2), (3, 3)])
def test_rounds_of_admm_identify_every_covariance_and_no_mean(d: int, sites: int) -> None:
    found = attacked(tables(sites, d), "identified_share", {"name": "notears_admm"})
    assert found.verdict is Verdict.LEAK and found.finding is not None
    for shares in found.finding.details["sites"].values():
        assert shares["covariances"] > 0.999 and shares["means"] < 0.01
    first = found.finding.details["mean_shares"]["1"]
    # The first sum has each column's pooled variance: d numbers for K d (d + 1) / 2 unknowns.
    assert first["covariances"] == pytest.approx(2 / (sites * (d + 1)), abs=1e-6)


@pytest.mark.attack
@pytest.mark.parametrize(
    ("name", "moments_only"),
    [("moments", True), ("notears_admm", True), ("notears_mlp_admm", False)],
)
def test_methods_of_moments_are_told_from_methods_of_records(name: str, moments_only: bool) -> None:
    method: dict[str, Any] = {"name": name}
    more = {} if name == "moments" else {"rounds": 2}
    few = {"min_sites": 2, "min_records": 1}  # nine records: each has a large leverage
    found = attacked(tables(3, 2, rows=9), "identified_share", method | more, release=few)
    assert found.finding is not None
    assert found.finding.details["moments_only"] == moments_only


@pytest.mark.attack
def test_columns_that_the_method_does_not_use_do_not_hide_a_leak() -> None:
    method = {"name": "notears_admm", "variables": ["x0", "x2"]}
    found = attacked(tables(2, 5), "identified_share", method)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    for shares in found.finding.details["sites"].values():
        assert shares["covariances"] > 0.999


def test_noise_leaves_little_of_what_the_sum_identifies() -> None:
    privacy = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5}
    found = attacked(tables(3, 2), "identified_share", {"name": "moments"}, privacy=privacy)
    assert found.finding is not None
    assert found.finding.details["mean_shares"]["1"]["covariances"] < 0.05


@pytest.mark.attack
def test_where_sites_draw_random_numbers_the_share_is_a_bound() -> None:
    settings = {"name": "sparse_regression", "outcome": "x1", "predictors": ["x0"],
                "rounds": 12, "warmup": 4, "chains": 2}  # fmt: skip
    found = attacked(tables(3, 2), "identified_share", settings)
    assert found.verdict is Verdict.INCONCLUSIVE and found.finding is not None
    assert found.finding.value > 0.5 and found.finding.bound == found.why


def test_single_records_are_unknown_where_a_method_reads_them() -> None:
    many = {f"s{k}": pd.DataFrame({"x0": [], "x1": []}) for k in range(3)}
    rng = np.random.default_rng(1)
    for table in many:
        many[table] = pd.DataFrame(rng.normal(size=(1500, 2)), columns=["x0", "x1"]).clip(-4, 4)
    mlp = {"name": "notears_mlp_admm", "rounds": 2, "hidden": 2}
    found = attacked(many, "identified_share", mlp)
    assert found.verdict is Verdict.NOT_APPLICABLE and "records" in found.why


def test_where_one_site_remains_or_nothing_varies_the_share_does_not_apply() -> None:
    for attack in audit_job(
        job({"name": "moments"}, 2), tables(2, 2), attacks=["identified_share"],
        views=[Who.COALITION],
    ).attacked:  # fmt: skip
        assert attack.verdict is Verdict.NOT_APPLICABLE and "last_site" in attack.why
    rng = np.random.default_rng(0)
    binary = {f"s{k}": pd.DataFrame(rng.integers(0, 2, (40, 2)), columns=["x0", "x1"])
              for k in range(3)}  # fmt: skip
    raw = job({"name": "moments"}, 2) | {
        "columns": {name: {"type": "binary"} for name in ("x0", "x1")}
    }
    (only, _) = audit_job(raw, binary, attacks=["identified_share"]).attacked
    assert only.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.attack
def test_a_site_of_one_record_does_not_hide_what_is_found_of_the_others() -> None:
    data = tables(3, 2)
    data["s2"] = data["s2"].head(1)
    raw = job({"name": "notears_admm"}, 2, release={"min_sites": 2, "min_records": 1})
    audit = audit_job(raw, data, attacks=["admm_sums", "identified_share"], set_aside=0.0)
    assert {a.attack.name for a in audit.attacked if a.verdict is Verdict.LEAK} == {
        "admm_sums", "identified_share",
    }  # fmt: skip


def test_sums_over_pooled_records_do_not_say_who_has_which() -> None:
    rng = np.random.default_rng(1)
    data = tables(3, 2, 40)
    for table in data.values():
        table["x1"] = (rng.random(40) < 0.5).astype(int)
    columns = {"x0": {"type": "continuous", "low": -4, "high": 4}, "x1": {"type": "binary"}}
    method = {"name": "logistic", "outcome": "x1", "predictors": ["x0"]}
    raw = job(method, 2) | {"columns": columns}
    for attack in audit_job(raw, data, attacks=["identified_share"]).attacked:
        assert attack.verdict is Verdict.NO_LEAK_FOUND and attack.finding is not None
        assert attack.finding.details["pooled"] and attack.finding.value == 0.0


def test_a_coalition_knows_its_own_records() -> None:
    audit = audit_job(
        job({"name": "moments"}, 2), tables(3, 2), attacks=["identified_share"],
        views=[Who.COALITION],
    )  # fmt: skip
    (found,) = audit.attacked
    assert found.finding is not None
    shares = found.finding.details["mean_shares"]["1"]
    assert (2 * shares["means"] + 3 * shares["covariances"]) / 5 == pytest.approx(1 / 2)
    assert len(found.finding.details["sites"]) == 2


def test_columns_with_two_values_stay_as_they_are() -> None:
    rng, found = np.random.default_rng(0), {}
    for k in range(3):
        x = rng.normal(size=40).clip(-4, 4)
        found[f"s{k}"] = pd.DataFrame({"x0": x, "x1": (rng.random(40) < 0.5).astype(float)})
    columns = {"x0": {"type": "continuous", "low": -4, "high": 4}, "x1": {"type": "binary"}}
    raw = job({"name": "moments"}, 2) | {"columns": columns}
    (attack,) = audit_job(
        raw, found, attacks=["identified_share"], views=[Who.COORDINATOR]
    ).attacked
    assert attack.finding is not None
    # One mean, one variance, one covariance with the other column.
    shares = attack.finding.details["mean_shares"]["1"]
    assert (shares["means"] + 2 * shares["covariances"]) / 3 == pytest.approx(1 / 3)


# --- attacks on NOTEARS-ADMM ----------------------------------------------------------------------


@pytest.mark.attack
def test_a_message_in_clear_is_a_covariance_and_a_masked_one_is_nothing() -> None:
    data, method = tables(3, 3), {"name": "notears_admm"}
    clear = attacked(data, "admm_messages", method, protocol="plain")
    assert clear.verdict is Verdict.LEAK and clear.finding is not None
    assert max(clear.finding.details["errors"].values()) < 1e-5  # 40 bits of the first response
    masked = attacked(data, "admm_messages", method)
    assert masked.verdict is Verdict.NO_LEAK_FOUND and masked.finding is not None
    assert masked.finding.value > 1 and masked.control is not None
    assert masked.control.value < 1e-5
    hidden = attacked(data, "admm_messages", method, protocol="additive")
    assert hidden.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.attack
@pytest.mark.parametrize("seed", [3, 4])
def test_masked_sums_are_solved_for_both_sites(seed: int) -> None:
    found = attacked(tables(2, 2, seed=seed), "admm_sums", {"name": "notears_admm"})
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert max(found.finding.details["errors"].values()) < 1e-6 < found.finding.baseline


@pytest.mark.attack
def test_a_search_that_does_not_reach_the_sums_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from secagg.audits.attacks.statistics import admm_solved_sums

    monkeypatch.setattr(admm_solved_sums, "_STEPS", 2)
    found = attacked(tables(3, 3), "admm_sums", {"name": "notears_admm"})
    assert found.verdict is Verdict.INCONCLUSIVE and "search" in found.why


def test_attacks_on_other_methods_say_why_they_do_not_apply() -> None:
    audit = audit_job(job({"name": "moments"}, 2), tables(3, 2), views=[Who.COORDINATOR])
    others = {a.attack.name for a in audit.attacked if a.verdict is Verdict.NOT_APPLICABLE}
    assert {"admm_messages", "hm1_sums", "gibbs_messages", "gradient_inversion"} <= others
    assert not others & {"clear_contributions", "identified_share", "keys_and_masks"}
    assert all(a.why for a in audit.attacked if a.verdict is Verdict.NOT_APPLICABLE)


# --- the audit ------------------------------------------------------------------------------------


@pytest.mark.attack
def test_an_audit_is_repeatable_and_depends_on_its_seed() -> None:
    one, same, other = (
        audit_job(job({"name": "moments"}, 3), tables(3, 3, 250), attacks=["tracing"], seed=seed)
        for seed in (1, 1, 2)
    )
    values = [each.attacked[0].finding for each in (one, same, other)]
    assert values[0] == values[1] != values[2]


def test_a_limit_of_the_user_decides() -> None:
    limits = {"excess_share": Limit(2.0)}
    method = {"name": "moments"}
    (found, _) = audit_job(
        job(method, 2, "plain"), tables(3, 2), attacks=["identified_share"], limits=limits
    ).attacked
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.limit == limits["excess_share"]


def test_without_the_planted_leak_the_verdict_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from secagg.audits.attacks.statistics.identified_share import IdentifiedShare

    monkeypatch.setattr(IdentifiedShare, "limit", lambda *_: Limit(1.5))
    found = attacked(tables(3, 2), "identified_share", {"name": "moments"})
    assert found.verdict is Verdict.INCONCLUSIVE


def test_a_refused_job_has_nothing_to_attack() -> None:
    refused = job({"name": "moments"}, 2, release={"min_sites": 5, "min_records": 5})
    with pytest.raises(PolicyRefusal):
        audit_job(refused, tables(3, 2))


def test_an_unknown_attack_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        audit_job(job({"name": "moments"}, 2), tables(3, 2), attacks=["tracking"])
    assert "tracing" in caught.value.advice


def test_a_changed_message_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    from secagg.audits import audited_run as audit
    from secagg.core.item_file import ItemFile, read_items

    real = audit.run

    def tampered(*args: Any, out: Path, **more: Any) -> None:
        real(*args, out=out, **more)
        path = out / MESSAGES_FILE
        items = list(read_items(path.name, path.read_bytes()))
        items[-1][4] = items[-1][4][:-1] + bytes([items[-1][4][-1] ^ 1])
        path.write_bytes(b"")
        ItemFile(path, sync=False).append(items)

    monkeypatch.setattr(audit, "run", tampered)
    with pytest.raises(EvidenceError) as caught:
        audit_job(job({"name": "moments"}, 2, "plain"), tables(3, 2))
    assert caught.value.where == MESSAGES_FILE and caught.value.exit_code == 6


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def leaking(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for name, table in tables(3, 2).items():
        table.to_csv(tmp_path / "data" / f"{name}.csv", index=False)
    columns = "\n".join(f'x{j} = {{ type = "continuous", low = -4, high = 4 }}' for j in range(2))
    path = tmp_path / "job.toml"
    path.write_text(
        f'title = "t"\n[sites]\nfolder = "data"\nmax_rows = 100\n[columns]\n{columns}\n'
        '[method]\nname = "moments"\n[protocol]\nname = "plain"\n'
        "[release]\nmin_sites = 2\nmin_records = 5\n"
    )
    return path


def call(*args: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["audit", *map(str, args), "--jobs", "1"])
    return done.exit_code, done.stdout, done.stderr


def test_a_leak_ends_with_5_and_a_line(leaking: Path) -> None:
    code, out, err = call(leaking)
    assert code == 5 and "leak" in out
    (line,) = [line for line in err.splitlines() if line.startswith("secagg: leak: ")]
    assert "identified_share (coordinator" in line
    honest = ["--view", "coordinator", "--protocol", "masked"]
    code, out, err = call(leaking, *honest)
    assert code == 0 and "no leak found" in out and "leak:" not in err
    assert not list(leaking.parent.glob("**/*.ledger*")) and not (leaking.parent / "runs").exists()


def test_json_and_limits(leaking: Path, tmp_path: Path) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text('excess_share = "<= 1.5"\n')
    code, out, _ = call(
        leaking,
        "--limits",
        limits,
        "--json",
        "--attack",
        "identified_share",
        "--view",
        "coordinator",
    )
    (found,) = json.loads(out)["attacks"]
    assert code == 0 and found["verdict"] == "no leak found" and found["limit"] == "<= 1.5"
    assert found["control"]["value"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "text", ["exces_share = '<= 1'", "excess_share = 1", "excess_share = '< 1'", "x", None]
)
def test_bad_limits_are_named(leaking: Path, tmp_path: Path, text: str | None) -> None:
    limits = tmp_path / "limits.toml"
    if text is not None:
        limits.write_text(text)
    code = CliRunner().invoke(app, ["audit", str(leaking), "--limits", str(limits)])
    assert isinstance(code.exception, UsageError) and str(limits) in code.exception.where


def test_attacks_are_listed() -> None:
    done = CliRunner().invoke(app, ["list", "attacks"])
    assert done.exit_code == 0 and "tracing" in done.stdout
