"""`secagg site`, `secagg roster` and `secagg deploy`, from empty folders to a job folder."""

import json
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.runs.jobs import RULES, SITES, TOML, as_csv, small_job, tables
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.deploy.nvflare_job import CLASSES
from secagg.errors import DataError, PolicyRefusal, SecaggError, UsageError
from secagg.jobs.job import parse_job
from secagg.runs.checks.lost_rule import lost_rule_remarks
from secagg.sessions.homes.approvals import approval_digest
from secagg.sessions.homes.home import Home

PARTIES = ("coordinator", *SITES)


def secagg(*arguments: Any) -> str:
    """Run a command and return what it printed. Raises its error."""
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def homes(folder: Path) -> dict[str, Path]:
    """Make the home of every party."""
    for site, columns in tables().items():
        (folder / f"{site}.csv").write_text(as_csv(columns), encoding="utf-8")
        records = ("--records", folder / f"{site}.csv")
        secagg("site", "init", "--home", folder / site, "--name", site, *records)
    role = ("--role", "coordinator")
    secagg("site", "init", "--home", folder / "coordinator", "--name", "coordinator", *role)
    return {name: folder / name for name in PARTIES}


def pinned(folder: Path) -> dict[str, Path]:
    """Make the homes, a roster, and pin it everywhere."""
    made = homes(folder)
    cards = [home / "card.json" for home in made.values()]
    printed = secagg("roster", "make", *cards, "--out", folder / "roster.json")
    digits = printed.partition("fingerprint")[2].strip()
    for home in made.values():
        if home.name in SITES:
            (home / "policy.toml").write_text(RULES)
        secagg("site", "pin", folder / "roster.json", "--home", home, "--fingerprint", digits)
    return made


@pytest.fixture
def job(tmp_path: Path) -> Path:
    names = json.dumps(list(SITES))
    path = tmp_path / "job.toml"
    path.write_text(TOML.replace('folder = "data"', f"names = {names}"), encoding="utf-8")
    return path


def test_a_home_is_private(tmp_path: Path) -> None:
    for home in homes(tmp_path).values():
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert stat.S_IMODE((home / "keys").stat().st_mode) == 0o600
        home.chmod(0o750)
        with pytest.raises(UsageError):
            Home.open(home)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("north east", ()), ("../north", ()), ("", ()), ("n" * 64, ()), ("coordinator", ()),
        ("north", ("--role", "coordinator")), ("aggregator_1", ("--role", "aggregator")),
        ("north", ("--records", "missing.csv")), ("north", ("--records", "x.txt")),
    ],
)  # fmt: skip
def test_a_home_that_cannot_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, more: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("x.csv", "x.txt"):
        Path(file).touch()
    records = () if "--records" in more else ("--records", "x.csv")
    with pytest.raises(UsageError):
        secagg("site", "init", "--home", tmp_path / "home", "--name", name, *records, *more)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "x.txt"]


def test_a_site_without_records_gets_no_home(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        secagg("site", "init", "--home", tmp_path / "home", "--name", "north")
    assert caught.value.where == "--records" and list(tmp_path.iterdir()) == []


def test_only_the_coordinators_home_lets_runs_be_downloaded(tmp_path: Path) -> None:
    for name, home in homes(tmp_path).items():
        with (home / "site.toml").open("a") as settings:
            settings.write("download = true\n")
        if name == "coordinator":
            assert Home.open(home).settings.download
            continue
        with pytest.raises(UsageError) as caught:
            Home.open(home)
        assert "site.toml" in caught.value.where


def test_another_fingerprint_pins_nothing(tmp_path: Path) -> None:
    made = homes(tmp_path)
    cards = [home / "card.json" for home in made.values()]
    printed = secagg("roster", "make", *cards, "--out", tmp_path / "roster.json")
    digits = printed.partition("fingerprint")[2].strip()
    assert re.fullmatch(r"([0-9a-f]{4} ){9}[0-9a-f]{4}", digits)
    assert digits in secagg("roster", "show", tmp_path / "roster.json")
    wrong = ("0" if digits[0] != "0" else "1") + digits[1:]
    pin = ("site", "pin", tmp_path / "roster.json", "--home", made["north"], "--fingerprint")
    with pytest.raises(UsageError):
        secagg(*pin, wrong)
    assert not (made["north"] / "roster.json").exists()
    assert "pinned 4 parties" in secagg(*pin, digits.upper().replace(" ", ""))


def test_a_roster_without_the_own_card_is_not_pinned(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    made, others = homes(tmp_path / "a"), homes(tmp_path / "b")
    cards = [home / "card.json" for home in others.values()]
    printed = secagg("roster", "make", *cards, "--out", tmp_path / "roster.json")
    digits = printed.partition("fingerprint")[2].strip()
    with pytest.raises(UsageError) as caught:
        secagg("site", "pin", tmp_path / "roster.json", "--home", made["north"],
               "--fingerprint", digits)  # fmt: skip
    assert caught.value.where == "roster"


@pytest.mark.parametrize("change", ["twice", "no coordinator", "one site", "damaged", "long key"])
def test_cards_that_make_no_roster_are_refused(tmp_path: Path, change: str) -> None:
    cards = {name: home / "card.json" for name, home in homes(tmp_path).items()}
    given = list(cards.values())
    if change == "twice":
        given.append(cards["north"])
    elif change == "no coordinator":
        given.remove(cards["coordinator"])
    elif change == "one site":
        given = [cards["coordinator"], cards["north"]]
    else:
        content = json.loads(cards["north"].read_bytes())
        key = content["seal_key"]
        content["seal_key"] = key[:-1] + "g" if change == "damaged" else f"{key}00"
        cards["north"].write_text(json.dumps(content))
    with pytest.raises(UsageError):
        secagg("roster", "make", *given, "--out", tmp_path / "roster.json")
    assert not (tmp_path / "roster.json").exists()


def test_a_job_is_approved_shown_and_revoked(tmp_path: Path, job: Path) -> None:
    north = ("--home", pinned(tmp_path)["north"])
    assert secagg("site", "jobs", *north) == "no jobs\n"
    digest = secagg("site", "approve", *north, "--job", job).split()[1]
    (listed,) = json.loads(secagg("site", "jobs", *north, "--json"))
    assert listed == {"digest": digest, "title": "A small job", "approved": True}
    shown = json.loads(secagg("site", "show", digest[:8], *north, "--json"))
    assert shown["sites"] == list(SITES) and shown["refusals"] == []
    home = {"digest": digest, "approval": "approved", "own_rules": True, "refusals": []}
    assert shown["home"] == home
    with pytest.raises(UsageError) as caught:
        secagg("site", "refuse", digest, *north)
    assert "revoke" in caught.value.advice
    assert "approved" in secagg("site", "jobs", *north)
    secagg("site", "revoke", digest, *north)
    assert secagg("site", "jobs", *north) == "no jobs\n"
    with pytest.raises(UsageError):
        secagg("site", "show", digest, *north)


def test_the_officer_sees_all_that_a_job_asks_and_the_homes_word_last(
    tmp_path: Path, job: Path
) -> None:
    home = pinned(tmp_path)["north"]
    ols = 'name = "moments"\nanalyses = [{ kind = "ols", outcome = "age", predictors = ["sex"] }]'
    text = job.read_text().replace('name = "moments"', ols)
    job.write_text(text.replace("A small job", "[bold]rules policy.toml allows it"))
    digest = secagg("site", "approve", "--home", home, "--job", job).split()[1]
    whole = ("site", "show", digest, "--home", home)
    agreed = json.loads(secagg(*whole, "--json"))["job"]
    assert approval_digest(parse_job(agreed)) == digest
    shown = secagg(*whole)
    analysis = 'kind = "ols", outcome = "age", predictors = ["sex"]'
    for said in (*SITES, analysis, "0 to 100", "years", '"low", "mid", "high"'):
        assert said in shown
    job_says, _, home_says = shown.rpartition("\nrules ")
    assert "[bold]rules" in job_says and "[bold]" not in home_says
    assert digest in home_says and "secagg site revoke" in home_says


def test_a_job_with_texts_that_a_terminal_obeys_is_not_approved(tmp_path: Path, job: Path) -> None:
    home = pinned(tmp_path)["north"]
    job.write_text(job.read_text().replace("years", "\\u001b[2J"))
    with pytest.raises(UsageError):
        secagg("site", "approve", "--home", home, "--job", job)
    assert secagg("site", "jobs", "--home", home) == "no jobs\n"


@pytest.mark.parametrize("cause", ["rules", "records", "another site"])
def test_approving_what_would_be_refused_says_so(tmp_path: Path, job: Path, cause: str) -> None:
    home = pinned(tmp_path)["north"]
    if cause == "rules":
        (home / "policy.toml").write_text("min_sites = 4\nmin_records = 2\n")
    elif cause == "records":
        (tmp_path / "north.csv").rename(tmp_path / "moved.csv")
    else:
        job.write_text(job.read_text().replace('"north"', '"east"'))
    approve = ("site", "approve", "--home", home, "--job", job)
    with pytest.raises(PolicyRefusal) as caught:
        secagg(*approve)
    assert "--anyway" in caught.value.advice
    assert secagg("site", "jobs", "--home", home) == "no jobs\n"
    said = secagg(*approve, "--anyway").splitlines()
    digest = said[0].split()[1]
    assert len(said) > 1 and "approved" in secagg("site", "jobs", "--home", home)
    shown = json.loads(secagg("site", "show", digest, "--home", home, "--json"))
    assert shown["job"]["columns"]["age"]["high"] == 100 and shown["home"]["refusals"]
    assert "age" in secagg("site", "show", digest, "--home", home)
    if cause == "records":
        assert str(home / "site.toml") in shown["home"]["refusals"][0]


def test_the_officer_sees_that_a_job_goes_on_without_lost_sites(tmp_path: Path, job: Path) -> None:
    north = ("--home", pinned(tmp_path)["north"])
    job.write_text(job.read_text().replace("[sites]", '[sites]\nlost = "leave_out"'))
    digest = secagg("site", "approve", *north, "--job", job).split()[1]
    assert "lost" in secagg("site", "show", digest, *north)


def test_a_site_checks_its_own_records_against_a_job(tmp_path: Path, job: Path) -> None:
    north = pinned(tmp_path)["north"]
    found = json.loads(secagg("site", "check", job, "--home", north, "--json"))
    (check,) = found["sites"]
    assert found["together"] is None and check["passes"]
    assert (check["site"], check["rows"]) == ("north", 12)
    assert (found["home"]["approval"], found["home"]["own_rules"]) == ("new", True)
    secagg("site", "approve", "--home", north, "--job", job)
    found = json.loads(secagg("site", "check", job, "--home", north, "--json"))
    assert found["home"]["approval"] == "approved"
    (north / "policy.toml").write_text("min_sites = 4\nmin_records = 2\n")
    done = CliRunner().invoke(app, ["site", "check", str(job), "--home", str(north), "--json"])
    assert done.exit_code == 3 and json.loads(done.output)["sites"][0]["refusals"]
    (tmp_path / "north.csv").unlink()
    with pytest.raises(DataError):
        secagg("site", "check", job, "--home", north)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ('"north"', '"east"', UsageError),
        ('"south"', '"east"', PolicyRefusal),
        ('name = "plain"', 'name = "additive"', PolicyRefusal),
    ],
    ids=["without this site", "a site that is not pinned", "an aggregator that is not pinned"],
)
def test_a_site_refuses_to_check_a_job_that_it_could_not_run(
    tmp_path: Path, job: Path, old: str, new: str, kind: type[SecaggError]
) -> None:
    north = pinned(tmp_path)["north"]
    job.write_text(job.read_text().replace(old, new))
    with pytest.raises(kind) as caught:
        secagg("site", "check", job, "--home", north)
    assert type(caught.value) is kind and caught.value.where == "north"


def test_a_home_that_approves_by_a_policy_it_lacks_refuses_the_check(
    tmp_path: Path, job: Path
) -> None:
    home = pinned(tmp_path)["north"]
    settings = home / "site.toml"
    settings.write_text(settings.read_text().replace('"each"', '"policy"'))
    (home / "policy.toml").unlink()
    with pytest.raises(PolicyRefusal):
        secagg("site", "check", job, "--home", home)


def test_a_site_checks_by_whom_it_lets_itself_be_asked(tmp_path: Path, job: Path) -> None:
    made = pinned(tmp_path)
    key = Home.open(made["coordinator"]).identity.public.verify_key.hex()
    other = Home.open(made["north"]).identity.public.verify_key.hex()
    for listed, refuses in ((key, False), (other, True)):
        rules = 'min_sites = 3\nmin_records = 2\nprotocols = ["plain"]\n'
        keys = f'[keys]\ncoordinators = ["{listed}"]\n'
        (made["north"] / "policy.toml").write_text(rules + keys)
        arguments = ["site", "check", str(job), "--home", str(made["north"]), "--json"]
        found = json.loads(CliRunner().invoke(app, arguments).output)
        assert found["home"]["own_rules"]
        for refusals in (found["home"]["refusals"], found["sites"][0]["refusals"]):
            assert any("keys" in why for why in refusals) is refuses


def test_a_rule_on_lost_sites_that_cannot_help_is_remarked_on(tmp_path: Path, job: Path) -> None:
    """With three sites of which each sum needs three."""
    home = ("--home", pinned(tmp_path)["north"], "--json")
    text = job.read_text()
    counts = []
    for lost in ("stop", "leave_out"):
        job.write_text(text.replace("[sites]", f'[sites]\nlost = "{lost}"'))
        (check,) = json.loads(secagg("site", "check", job, *home))["sites"]
        digest = secagg("site", "approve", *home[:2], "--job", job).split()[1]
        shown = json.loads(secagg("site", "show", digest, *home))
        counts.append((len(check["remarks"]), len(shown["warnings"])))
    assert counts[1] == (counts[0][0] + 1, counts[0][1] + 1)


@pytest.mark.parametrize(
    ("lost", "sites", "min_sites", "protocol", "remark"),
    [
        ("stop", 3, 3, "plain", ""), ("leave_out", 3, None, "plain", ""),
        ("leave_out", 3, 3, "plain", "can never"), ("leave_out", 5, 3, "plain", "can never"),
        ("leave_out", 6, 3, "plain", "s0, s1, s2 | s3, s4, s5"),
        ("leave_out", 6, 3, "masked", "can never"),  # a masked sum of 6 needs 5
        ("leave_out", 10, 3, "masked", "s0, s1, s2 | s3, s4, s5 | s6, s7, s8, s9"),  # of 10, 7
        ("leave_out", 10, 3, "threshold_paillier", "can never"),  # 8: 6 may collude
    ],
)  # fmt: skip
def test_the_groups_in_which_lost_sites_can_be_left_out_are_remarked_on(
    lost: str, sites: int, min_sites: int | None, protocol: str, remark: str
) -> None:
    names = [f"s{i}" for i in range(sites)]
    job = small_job(
        sites={"max_rows": 9, "lost": lost, "names": names}, release={"min_sites": min_sites},
        protocol={"name": protocol},
    )  # fmt: skip
    found = lost_rule_remarks(job)
    assert len(found) == (remark != "")
    assert all(remark in text for text in found)


@pytest.mark.parametrize("name", ["north.policy.toml", "Policy.toml", "policy.toml.bak"])
def test_a_policy_that_would_not_be_read_is_refused(tmp_path: Path, job: Path, name: str) -> None:
    north = pinned(tmp_path)["north"]
    (north / name).write_text("min_sites = 9\n")
    with pytest.raises(PolicyRefusal) as caught:
        secagg("site", "check", job, "--home", north)
    assert name in caught.value.where


def test_a_mistake_in_a_sites_policy_is_not_one_of_the_job(tmp_path: Path, job: Path) -> None:
    north = pinned(tmp_path)["north"]
    (north / "policy.toml").write_text("min_site = 3\n")
    with pytest.raises(PolicyRefusal):
        secagg("site", "check", job, "--home", north)


def test_an_approved_job_that_was_changed_on_disk_is_refused(tmp_path: Path, job: Path) -> None:
    home = pinned(tmp_path)["north"]
    digest = secagg("site", "approve", "--home", home, "--job", job).split()[1]
    path = home / "approved" / f"{digest}.json"
    path.write_text(path.read_text().replace("A small job", "Another job"))
    with pytest.raises(UsageError):
        secagg("site", "show", digest, "--home", home)


def test_a_job_folder_names_four_classes_and_has_no_code(tmp_path: Path, job: Path) -> None:
    home, out = pinned(tmp_path)["coordinator"], tmp_path / "out"
    printed = secagg("deploy", "nvflare", job, "--home", home, "--out", out)
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    config = "app/config/config_fed_"
    assert files == {"meta.json", f"{config}server.json", f"{config}client.json"}
    text = "".join((out / name).read_text() for name in files)
    assert set(re.findall(r'"path": "([^"]+)"', text)) == set(CLASSES)
    assert json.loads((out / "meta.json").read_bytes())["mandatory_clients"] == list(SITES)
    digest = secagg("site", "approve", "--home", tmp_path / "north", "--job", job).split()[1]
    assert digest in printed


def test_an_app_folder_for_flower_has_one_file_with_the_job(tmp_path: Path, job: Path) -> None:
    home, out = pinned(tmp_path)["coordinator"], tmp_path / "out"
    printed = secagg("deploy", "flower", job, "--home", home, "--out", out, "--name", "first")
    assert [path.name for path in out.rglob("*")] == ["pyproject.toml"]
    config = tomllib.loads((out / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert config["name"] == "first" and json.loads(config["job"])["sites"]["names"] == list(SITES)
    digest = secagg("site", "approve", "--home", tmp_path / "north", "--job", job).split()[1]
    assert digest in printed


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"names = ": "# names = "}, UsageError),
        ({'"north"': '"east"'}, PolicyRefusal),
        ({'name = "plain"': 'name = "additive"'}, PolicyRefusal),
    ],
    ids=["no names", "a site that is not pinned", "an aggregator that is not pinned"],
)
def test_a_job_that_cannot_run_has_no_folder(
    tmp_path: Path, job: Path, change: dict[str, str], kind: type[SecaggError]
) -> None:
    home, out = pinned(tmp_path)["coordinator"], tmp_path / "out"
    for old, new in change.items():
        job.write_text(job.read_text().replace(old, new))
    with pytest.raises(kind):
        secagg("deploy", "nvflare", job, "--home", home, "--out", out)
    assert not out.exists()


def test_a_job_folder_needs_the_coordinators_home(tmp_path: Path, job: Path) -> None:
    home, out = pinned(tmp_path)["north"], tmp_path / "out"
    with pytest.raises(UsageError) as caught:
        secagg("deploy", "nvflare", job, "--home", home, "--out", out)
    assert caught.value.where == str(home) and not out.exists()
