"""Killed, racing and confined processes: never overspent, nothing sent without its entry.

Killed means SIGKILL: what the process had written to the system's cache survives it. Loss of power
is not simulated; there `synchronous = EXTRA` and the disk are trusted.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.crashes.ledger_killed import POINTS, told

KILLS, KEYS, PARTS = 200, 40, 36


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("kills") / "ledger"
    return told(what="kills", path=path, parts=PARTS, keys=KEYS, deaths=KILLS, seed=20261121)


def test_processes_were_killed_at_each_point_and_within_a_commit(killed: Any) -> None:
    hit = Counter(one["point"] for one in killed["seen"] if one["killed"])
    assert hit.total() == KILLS
    assert all(hit[point] for point in POINTS), hit  # how often depends on the load of the machine
    # SQLite's journal lies there from its first write until the commit is done.
    assert sum(one["journal"] for one in killed["seen"] if not one["point"]) > 5


def test_after_each_kill_the_ledger_file_is_intact(killed: Any) -> None:
    assert {one["integrity"] for one in killed["seen"]} == {"ok"}


def test_the_budget_is_never_overspent(killed: Any) -> None:
    assert max(len(one["entries"]) for one in killed["seen"]) <= PARTS
    assert len(killed["entries"]) == PARTS  # and by the end it is all used
    assert Counter(killed["last"].values())["refused"] == KEYS - PARTS


def test_nothing_is_sent_without_its_entry(killed: Any) -> None:
    sent = [one for one in killed["seen"] if one["sent"] not in ("", "refused")]
    assert len(sent) > 5
    for one in sent:
        assert one["entries"][str(one["number"])] == one["sent"]


@pytest.mark.parametrize(("points", "entered"), [(POINTS[:5], False), (POINTS[5:], True)])
def test_an_entry_counts_exactly_from_its_commit(
    killed: Any, points: tuple[str, ...], entered: bool
) -> None:
    known: set[str] = set()
    for one in killed["seen"]:
        number = str(one["number"])
        if one["killed"] and one["point"] in points and number not in known:
            assert (number in one["entries"]) == entered
        known = set(one["entries"])


def test_a_retry_has_the_same_noise(killed: Any) -> None:
    entries: dict[str, str] = {}
    for one in (*killed["seen"], killed):
        assert entries.items() <= one["entries"].items()  # none lost, none drawn again
        entries = one["entries"]
    assert len(set(entries.values())) == PARTS  # each its own
    assert {n: s for n, s in killed["last"].items() if s != "refused"} == entries


def test_a_process_killed_while_creating_a_ledger_leaves_all_or_none(tmp_path: Path) -> None:
    left = told(what="births", path=tmp_path / "ledger", deaths=40, seed=1)  # opens each
    assert len(left) == 40 and False in left


# --- races ---------------------------------------------------------------------------------------


def test_eight_processes_together_enter_exactly_what_is_affordable(tmp_path: Path) -> None:
    parts = 100
    saw = told(
        what="race", path=tmp_path / "ledger", processes=8, each=40, parts=parts, same=False,
        create=False,
    )  # fmt: skip
    assert saw["codes"] == [0] * 8 and saw["integrity"] == "ok"
    said = [line.split() for lines in saw["said"] for line in lines]
    got_in = {number: seed for number, seed in said if seed != "refused"}
    assert len(said) == 320 and len(got_in) == parts
    assert got_in == saw["entries"] and len(set(got_in.values())) == parts
    winners = sum(any("refused" not in line for line in lines) for lines in saw["said"])
    assert winners > 1  # they did race


@pytest.mark.parametrize("create", [False, True])
def test_processes_with_the_same_key_get_the_same_seed_and_pay_once(
    tmp_path: Path, create: bool
) -> None:
    saw = told(
        what="race", path=tmp_path / "ledger", processes=8, each=5, parts=5, same=True,
        create=create,
    )  # fmt: skip
    assert saw["codes"] == [0] * 8
    said = [line.split() for lines in saw["said"] for line in lines]
    assert len(said) == 8 * 5 and saw["paid"] == 5
    assert {(number, seed) for number, seed in said} == set(saw["entries"].items())
    assert [p.name for p in tmp_path.iterdir()] == ["ledger"]  # who came second took his away


# --- where nothing can be written -----------------------------------------------------------------


@pytest.mark.parametrize("how", ["folder", "file", "disk"])
def test_without_write_permission_nothing_is_entered(how: str) -> None:
    saw = told(what="confined", how=how)
    assert len(saw["said"]) == (7 if how == "disk" else 1)
    for kind, line in saw["said"]:
        assert kind == "UsageError" and "cannot be read or written" in line
    assert saw["integrity"] == "ok" and list(saw["entries"]) == ["0"]
