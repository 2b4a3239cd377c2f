"""`secagg audit JOB` says first which sites' policies would refuse the job."""

import json
from pathlib import Path

import pytest
from support.runs.jobs import SITES, TOML, as_csv, tables
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.cli.output.audit import working
from secagg.errors import UsageError

ATTACK = ("--attack", "clear_contributions", "--jobs", "1")


@pytest.mark.attack
@pytest.mark.parametrize("profile", [None, 10])
def test_an_audit_names_the_sites_that_would_refuse(tmp_path: Path, profile: int | None) -> None:
    (tmp_path / "data").mkdir()
    for site, columns in tables(20).items():
        (tmp_path / "data" / f"{site}.csv").write_text(as_csv(columns), encoding="utf-8")
    if profile:
        for site in SITES[1:]:
            (tmp_path / "data" / f"{site}.policy.toml").write_text(f"profile = {profile}\n")
    job = tmp_path / "job.toml"
    job.write_text(TOML, encoding="utf-8")  # under plain, which a policy does not allow
    done = CliRunner().invoke(app, ["audit", str(job), *ATTACK])
    answer = done.stdout.split("\n\n")[0].splitlines()
    content = json.loads(CliRunner().invoke(app, ["audit", str(job), *ATTACK, "--json"]).stdout)
    if profile:
        assert any(line.startswith("a run would be refused: south, by its") for line in answer)
        assert any("west" in why for why in content["refusals"])
        assert not any("north" in why for why in content["refusals"])
    else:
        assert "refused" not in done.output and content["refusals"] == []


@pytest.mark.attack
def test_why_no_attack_applies_is_said_by_attack(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for site, columns in tables(20).items():
        (tmp_path / "data" / f"{site}.csv").write_text(as_csv(columns), encoding="utf-8")
    job = tmp_path / "job.toml"
    job.write_text(TOML, encoding="utf-8")
    names = ("noise_self_test", "gradient_inversion")  # there is no noise, and no round
    alone = ["audit", str(job), *(t for name in names for t in ("--attack", name)), "--jobs", "1"]
    with pytest.raises(UsageError) as caught:
        CliRunner().invoke(app, alone, catch_exceptions=False)
    reasons = caught.value.what.partition(". ")[2].split("; ")
    assert sorted(reason.partition(":")[0] for reason in reasons) == sorted(names)


def test_an_interrupted_audit_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught, working(quiet=True, folder=tmp_path):
        raise SystemExit(130)
    assert str(tmp_path) in caught.value.__notes__[0]
    with pytest.raises(SystemExit) as caught, working(quiet=True):
        raise SystemExit(130)
    assert not hasattr(caught.value, "__notes__")
