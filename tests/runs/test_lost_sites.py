"""Sites that are lost for good: the run begins again without them where the rules allow it."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest
from support.crashes.consortium import Consortium, remote_job
from support.runs.jobs import COLUMNS, table

import secagg
from secagg.core import canonical_encoding
from secagg.core.frames import peek_header
from secagg.core.private_files import exclusive_lock
from secagg.errors import EvidenceError, PolicyRefusal, ProtocolAbort, SitesLost, UsageError
from secagg.evidence.integrity import verify_folder
from secagg.jobs.job import Job
from secagg.jobs.registry import make_protocol
from secagg.runs import ledger_history, lost_sites
from secagg.runs.session_loop import Run

NAMES = ("ada", "bea", "cleo", "dora", "eva")
GROUPS = ("bea", "dora", "ada", "cleo", "eva")
"""The names in the job's order: with min_sites = 2, the first two can be left out together."""
FILES = ("result.json", "arrays.npz")


def five(
    lost: str = "leave_out", min_sites: int = 2, protocol: str = "masked", colluding: float = 0.0
) -> Job:
    of_each = {"masked": {"colluding": colluding}, "threshold_paillier": {"key_bits": 2048}}
    settings = of_each.get(protocol, {})
    return remote_job(
        sites={"max_rows": 100, "names": list(GROUPS), "lost": lost},
        columns={"age": COLUMNS["age"]},
        release={"min_sites": min_sites, "min_records": 2},
        protocol={"name": protocol, **settings},
    )


def lose(made: Consortium, parties: Collection[str], *, at_once: bool = False) -> None:
    """Let these parties give no answer from the first release on, or from the beginning."""
    log = runs(made) / "run.partial" / "log.jsonl"

    def before(consortium: Consortium, party: str, message: bytes) -> bytes:
        gone = at_once or (log.exists() and b'"event":"release"' in log.read_bytes())
        if party in parties and (gone or (made.folder / "gone").exists()):
            (made.folder / "gone").touch()  # and for good
            consortium.let_the_deadline_pass()
        return message

    made.before = before


def give_back(made: Consortium) -> None:
    made.before = lambda consortium, party, message: message


def runs(made: Consortium) -> Path:
    return made.homes["coordinator"].folder / "runs"


def check_result_of(made: Consortium, sites: Collection[str], folder: Path) -> None:
    """Compare the run with one over these sites only, in one process."""
    data = {site: table(GROUPS.index(site)) for site in sites}
    of_them = made.job.sites.model_copy(update={"names": tuple(sites)})
    secagg.run(made.job.model_copy(update={"sites": of_them}), data=data, out=folder)
    for name in FILES:
        assert (runs(made) / "run" / name).read_bytes() == (folder / name).read_bytes(), name


@pytest.mark.parametrize("protocol", ["masked", "additive", "plain"])
def test_the_run_begins_again_without_sites_that_are_lost(tmp_path: Path, protocol: str) -> None:
    made = Consortium.of(tmp_path, five(protocol=protocol))
    lose(made, ("bea", "dora"))
    run = made.lead()
    left = ["ada", "cleo", "eva"]
    assert run.facts["cohort"] == left
    check_result_of(made, left, tmp_path / "memory")
    verify_folder(runs(made) / "run")

    (about,) = [event for event in run.events if event["event"] == "began_again"]
    assert about["lost"] == ["bea", "dora"] and about["releases"] == 1
    (kept,) = [path for path in runs(made).iterdir() if path.name != "run"]
    assert kept.name == f"run.failed-{about['session'][:8]}"
    first = [json.loads(line) for line in (kept / "log.jsonl").read_text().splitlines()]
    assert about["head"] in {event["hash"] for event in first}
    assert "began again" in (runs(made) / "run" / "report.html").read_text()


def test_one_lost_site_is_left_out_with_its_group(tmp_path: Path) -> None:
    """Alone, its contribution would be the difference of two sums."""
    made = Consortium.of(tmp_path, five())
    lose(made, ("bea",))
    run = made.lead()
    assert run.facts["cohort"] == ["ada", "cleo", "eva"]
    check_result_of(made, run.facts["cohort"], tmp_path / "memory")
    (about,) = [event for event in run.events if event["event"] == "began_again"]
    assert about["lost"] == ["bea"]


def test_sites_of_all_groups_stop_the_run_which_goes_on_when_they_return(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, five(min_sites=3))
    lose(made, ("bea",))
    with pytest.raises(SitesLost) as caught:
        made.lead()
    assert caught.value.sites == ("bea",)
    assert "bea" in caught.value.forbidden and caught.value.forbidden in caught.value.advice
    assert [path.name for path in runs(made).iterdir()] == ["run.partial"]
    give_back(made)
    assert made.lead().facts["cohort"] == list(NAMES)
    check_result_of(made, NAMES, tmp_path / "memory")


def test_too_few_sites_that_are_left_stop_the_run(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, five(min_sites=3))
    lose(made, ("bea", "cleo", "dora"))
    with pytest.raises(SitesLost) as caught:
        made.lead()
    assert caught.value.forbidden


def test_without_the_rule_the_run_stops(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, five("stop"))
    lose(made, ("bea", "dora"))
    with pytest.raises(SitesLost) as caught:
        made.lead()
    assert caught.value.sites == ("bea", "dora")


def test_a_new_session_needs_as_many_sites_as_a_masked_sum(tmp_path: Path) -> None:
    """If one of five sites may collude, two sets of three may have no honest site in common."""
    made = Consortium.of(tmp_path, five(colluding=0.2))
    lose(made, ("bea", "dora"))
    with pytest.raises(SitesLost) as caught:
        made.lead()
    assert "4" in caught.value.forbidden
    assert [path.name for path in runs(made).iterdir()] == ["run.partial"]


def test_a_site_with_a_stricter_rule_than_its_group_refuses_the_job(tmp_path: Path) -> None:
    """bea can be left out with dora, so sums of two sessions may differ by two sites."""
    made = Consortium.of(tmp_path, five())
    policy = "min_sites = 3\nmin_records = 2\nmin_level_sites = 2\n"
    (made.homes["bea"].folder / "policy.toml").write_text(policy)
    with pytest.raises(PolicyRefusal) as caught:
        made.lead()
    assert caught.value.where == "bea"


def test_a_run_that_another_process_holds_is_not_set_aside(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, five())
    lose(made, ("bea", "cleo"))
    with pytest.raises(SitesLost):
        made.lead()

    def run() -> Run:
        raise SitesLost("round 1", ("bea", "dora"), "")

    place = runs(made) / "run.partial"
    with exclusive_lock(place / "lock"), pytest.raises(UsageError):
        lost_sites.without_lost_sites(runs(made) / "run", run, run)
    assert [path.name for path in runs(made).iterdir()] == ["run.partial"]


def test_a_refusal_of_the_new_session_puts_the_first_one_back(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, five())
    lose(made, ("bea", "dora"))
    gone, policy = made.before, "min_sites = 4\nmin_records = 2\nmin_level_sites = 2\n"

    def stricter(consortium: Consortium, party: str, message: bytes) -> bytes:
        if (made.folder / "gone").exists():
            (made.homes["eva"].folder / "policy.toml").write_text(policy)
        return gone(consortium, party, message)

    made.before = stricter
    with pytest.raises(PolicyRefusal) as caught:
        made.lead()
    assert caught.value.where == "eva"
    assert [path.name for path in runs(made).iterdir()] == ["run.partial"]
    give_back(made)
    run = made.lead()
    assert run.facts["cohort"] == list(NAMES)
    assert not [event for event in run.events if event["event"] == "began_again"]
    check_result_of(made, NAMES, tmp_path / "memory")


def test_sites_that_never_answer_are_left_out_by_the_rule_only(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path / "rule", five())
    lose(made, ("bea",), at_once=True)
    assert made.lead().facts["cohort"] == ["ada", "cleo", "eva"]
    made = Consortium.of(tmp_path / "stop", five("stop"))
    lose(made, ("cleo",), at_once=True)
    with pytest.raises(ProtocolAbort) as caught:
        made.lead()
    assert caught.value.where == "cleo"


@pytest.mark.parametrize("protocol", ["masked", "additive", "threshold_paillier"])
@pytest.mark.parametrize("rule", ["leave_out", "stop"])
def test_a_site_that_is_lost_in_the_first_sum_is_no_reason_for_another_sum(
    tmp_path: Path, protocol: str, rule: str
) -> None:
    """The protocol could open the sum without it, and then no ledger knows all sums of a job."""
    made = Consortium.of(tmp_path, five(rule, protocol=protocol))
    contributing = {p.name for p in make_protocol(made.job.protocol).phases if p.contributes}

    def before(consortium: Consortium, party: str, message: bytes) -> bytes:
        body = canonical_encoding.loads(message)
        asked = body[0] == "handle" and peek_header(body[2])[1] in contributing
        if party == "bea" and (asked or (made.folder / "gone").exists()):
            (made.folder / "gone").touch()
            consortium.let_the_deadline_pass()
        return message

    made.before = before
    if rule == "leave_out" and protocol != "threshold_paillier":  # which needs 4 + 1 of 5 sites
        assert made.lead().facts["cohort"] == ["ada", "cleo", "eva"]
        return
    with pytest.raises(SitesLost) as caught:
        made.lead()
    assert caught.value.sites == ("bea",) and "before the first release" in caught.value.what
    give_back(made)
    assert made.lead().facts["cohort"] == list(NAMES)


def test_a_site_that_is_ready_each_time_and_then_lost_stops_the_run(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, five())
    lost = []

    def before(consortium: Consortium, party: str, message: bytes) -> bytes:
        body = canonical_encoding.loads(message)
        if party == "bea" and body[0] == "handle" and peek_header(body[2])[1] == "mask":
            lost.append(body[1])
            consortium.let_the_deadline_pass()
        return message

    made.before = before
    with pytest.raises(SitesLost) as caught:
        made.lead()
    assert caught.value.sites == ("bea",) and len(set(lost)) == 2
    give_back(made)
    assert made.lead().facts["cohort"] == list(NAMES)


def test_too_few_sites_at_the_start_are_named_as_without_the_rule(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, five(min_sites=3))
    lose(made, ("ada", "bea", "cleo"), at_once=True)
    with pytest.raises(ProtocolAbort) as caught:
        made.lead()
    assert caught.value.where == "ada, bea, cleo"


def test_a_coordinator_that_is_killed_before_the_new_session_remembers_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Consortium.of(tmp_path, five())
    lose(made, ("bea", "dora"))
    gone = made.before

    def die(consortium: Consortium, party: str, message: bytes) -> bytes:
        if any(".lost-" in path.name for path in runs(made).iterdir()):
            raise KeyboardInterrupt
        return gone(consortium, party, message)

    made.before = die
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(lost_sites, "_put_back", lambda target: False)  # SIGKILL leaves no time
        made.lead()
    assert not (runs(made) / "run.partial" / "journal").exists()
    made.before = gone
    run = made.lead()
    assert run.facts["cohort"] == ["ada", "cleo", "eva"]
    (about,) = [event for event in run.events if event["event"] == "began_again"]
    assert about["lost"] == ["bea", "dora"]


def test_an_interrupt_wastes_no_charge_of_the_new_session(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, five(protocol="plain"))
    lose(made, ("bea", "dora"))
    gone, ledgers = made.before, made.homes["ada"].folder / "ledgers"

    def sessions() -> set[str]:
        rows = ledger_history.history(ledgers)
        return {row["session"] for row in rows if row["kind"] == "entry"}

    def die(consortium: Consortium, party: str, message: bytes) -> bytes:
        again = [path for path in runs(made).iterdir() if ".lost-" in path.name]
        if again and len(sessions()) == 2:  # charged, and nothing is released yet
            raise KeyboardInterrupt
        return gone(consortium, party, message)

    made.before = die
    with pytest.raises(KeyboardInterrupt):
        made.lead()
    made.before = gone
    assert made.lead().facts["cohort"] == ["ada", "cleo", "eva"]
    assert len(sessions()) == 2


def test_a_coordinator_that_dies_in_the_new_session_goes_on_with_it(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, five())
    lose(made, ("bea", "dora"))
    gone = made.before

    def die(consortium: Consortium, party: str, message: bytes) -> bytes:
        again = [path for path in runs(made).iterdir() if ".lost-" in path.name]
        log = runs(made) / "run.partial" / "log.jsonl"
        if again and log.exists() and b'"event":"release"' in log.read_bytes():
            raise KeyboardInterrupt
        return gone(consortium, party, message)

    made.before = die
    with pytest.raises(KeyboardInterrupt):
        made.lead()
    assert any(".lost-" in path.name for path in runs(made).iterdir())  # it is not put back
    made.before = gone
    run = made.lead()
    assert run.facts["cohort"] == ["ada", "cleo", "eva"]
    assert sorted(path.name.partition("-")[0] for path in runs(made).iterdir()) == [
        "run", "run.failed",
    ]  # fmt: skip
    check_result_of(made, run.facts["cohort"], tmp_path / "memory")


def test_a_session_set_aside_without_its_log_is_an_error_that_names_the_file(
    tmp_path: Path,
) -> None:
    aside = tmp_path / "run.lost-01234567"
    aside.mkdir()
    (aside / "journal").touch()
    with pytest.raises(EvidenceError) as caught:
        lost_sites.earlier_sessions(tmp_path / "run")
    (aside / "log.jsonl").write_bytes(b"")
    assert caught.value.where == str(aside / "log.jsonl") and caught.value.advice
