"""Every known-answer vector has its outcome, and each phase has vectors that are refused."""

import json
from pathlib import Path

import pytest
from support.protocols.vectors import PROTOCOLS, outcome, play

FOLDER = Path(__file__).parents[1] / "vectors"
FILES = sorted(FOLDER.glob("*/*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_steps_give_the_outcomes_of_the_test_vectors(path):
    wrong = []
    for vector in json.loads(path.read_text()):
        found = outcome(play(vector), vector["protocol"], vector["phase"])
        if found != vector["expect"]:
            wrong.append((vector["about"], found, vector["expect"]))
    assert not wrong


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_phase_has_good_and_bad_vectors(name):
    protocol = PROTOCOLS[name]
    for phase in (*protocol.setup, *protocol.phases):
        vectors = json.loads((FOLDER / name / f"{phase.name}.json").read_text())
        kinds = ["refused" in vector["expect"] for vector in vectors]
        assert vectors[0]["about"] == "good"
        assert not kinds[0]
        assert sum(kinds) >= 10
