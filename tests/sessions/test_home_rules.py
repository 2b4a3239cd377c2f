"""A site's home without rules of its own takes part in nothing.

====================================================  =====================
policy.toml                                           every job
====================================================  =====================
missing                                               refused, with advice
the draft of `secagg site init`                       refused, with advice
empty, or only one of min_sites and min_records       refused
the draft with one profile chosen                     by the profile's rules
====================================================  =====================
"""

import re
import tomllib
from pathlib import Path

import pytest
from support.crashes.consortium import Consortium, remote_job

from secagg.errors import PolicyRefusal, ProtocolAbort, SecaggError
from secagg.privacy.policy.draft import DRAFT
from secagg.privacy.policy.site_policy import PROFILES, parse_policy
from secagg.runs.checks.home_check import check_home
from secagg.sessions.homes.home import Home
from secagg.sessions.homes.own_source import own_source

REFUSING = {
    "missing": None,
    "draft": DRAFT,
    "empty": "",
    "sites only": "min_sites = 3\n",
    "records only": "min_records = 5\n",
    "another rule": 'methods = ["moments"]\n',
}


@pytest.mark.attack
@pytest.mark.parametrize("case", REFUSING)
def test_a_home_without_rules_takes_part_in_nothing(tmp_path: Path, case: str) -> None:
    made = Consortium.of(tmp_path / "homes")
    policy = made.homes["south"].folder / "policy.toml"
    policy.unlink() if REFUSING[case] is None else policy.write_text(str(REFUSING[case]))
    with pytest.raises(SecaggError) as caught:
        made.lead()
    assert isinstance(caught.value, PolicyRefusal | ProtocolAbort)
    assert "south" in caught.value.line()
    found = check_home(made.homes["south"], made.job)
    assert "refuses every job" in found.refusals[0]
    with pytest.raises(PolicyRefusal) as own:
        own_source(made.homes["south"], remote_job())
    assert own.value.advice and "policy" in own.value.line()
    assert not list((made.homes["south"].folder / "ledgers").glob("**/*.ledger"))


def test_a_home_brings_its_experts_edges(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path / "homes")
    south = made.homes["south"]
    assert own_source(south, remote_job()).edges is None
    (south.folder / "edges.csv").write_text("column,neighbour\n")
    assert own_source(south, remote_job()).edges == south.folder / "edges.csv"


def test_a_new_home_has_the_draft(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path / "homes")
    new = Home.create(
        tmp_path / "new", "east", made.homes["south"].settings.role,
        bytes, made.homes["south"].records,
    )  # fmt: skip
    assert (new.folder / "policy.toml").read_text() == DRAFT
    assert tomllib.loads(DRAFT) == {}


@pytest.mark.parametrize("profile", PROFILES)
def test_the_draft_names_every_profile(profile: int) -> None:
    line = f"\nprofile = {profile}\n"
    chosen = DRAFT.replace(f"\n# profile = {profile}\n", line)
    assert line in chosen
    assert (
        parse_policy(tomllib.loads(chosen), "draft").min_records == PROFILES[profile]["min_records"]
    )
    whole = re.sub(r"^# (?=[a-z_]+ = |\[)", "", chosen, flags=re.M)
    others = re.sub(rf"\nprofile = (?!{profile}\n)\d+", "", whole)
    policy = parse_policy(tomllib.loads(others), "draft")
    assert policy.budget is not None and policy.methods == ("moments", "logistic")
