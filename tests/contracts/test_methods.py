"""What every method must do, whichever it is: the contract of `secagg.contracts.Method`.

A new method gets all of this by one entry in `CASES`; without it the first test fails.
"""

import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.methods.all_methods import (
    CASES,
    SITES,
    Asked,
    Played,
    job,
    planned_of,
    played,
    records,
)

from secagg.contracts import SiteRecords, Stage, State, Update
from secagg.contracts.noise import SITE_MOMENTS, Placement
from secagg.core import canonical_encoding, ring
from secagg.core.randomness import replayable_random, seeded_random
from secagg.errors import CapabilityError, JobError, PeerError, UsageError
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.jobs.job import parse_job
from secagg.jobs.registry import METHODS, make_method
from secagg.reports.results import blocks
from secagg.reports.summary import ending
from secagg.runs.run import run
from secagg.sessions.engines.site_results import TOO_NARROW
from secagg.sessions.fixed_point import decode, encode
from secagg.sessions.planned_job import plan_job


def kinds_of_rounds(play: Played) -> Iterator[Asked]:
    """Yield the last round of each stage: by then messages are not the first round's zeros."""
    yield from {asked.stage.name: asked for asked in play.rounds}.values()


def check_update(stage: Stage, update: Update) -> None:
    assert list(update) == [field.name for field in stage.spec]
    for field in stage.spec:
        value = update[field.name]
        assert (value.shape, value.dtype) == (field.shape, np.float64), field.name
        assert np.isfinite(value).all(), field.name


def test_every_method_has_a_case_and_every_case_a_method() -> None:
    assert CASES.keys() == METHODS.keys()


def test_each_method_has_name_title_and_disclosure(name: str) -> None:
    method = make_method(planned_of(name).job.method)
    assert method.name == name and method.title and method.disclosure.text


def test_contributions_have_the_declared_fields_and_rounds(name: str) -> None:
    play, used = played(name), dict[str, int]()
    for asked in play.rounds:
        used[asked.stage.name] = used.get(asked.stage.name, 0) + 1
        for update in asked.updates:
            check_update(asked.stage, update)
            for field in asked.stage.spec:
                assert np.abs(update[field.name]).max(initial=0.0) <= field.bound, field.name
    for stage in play.method.stages(play.public):
        assert used.get(stage.name, 0) <= stage.max_rounds


def test_contributing_does_not_change_its_arguments(name: str) -> None:
    play = played(name)
    for asked in kinds_of_rounds(play):
        rows = play.rows[0]
        before = copy.deepcopy((rows, asked.message, asked.memories[0]))
        play.method.contribute(
            asked.stage.name,
            rows,
            asked.message,
            asked.memories[0],
            play.public,
            seeded_random(bytes(31) + b"1"),
        )
        after = (rows, asked.message, asked.memories[0])
        assert canonical_encoding.digest(_plain(before)) == canonical_encoding.digest(_plain(after))


def _plain(things: tuple[SiteRecords, State, State]) -> list[Any]:
    rows, *states = things
    return [rows.values, rows.outside, rows.incomplete, *states]


def test_a_decoded_copy_of_the_state_continues_identically(name: str) -> None:
    play = played(name)
    for state in (play.states[0], play.states[len(play.states) // 2], play.states[-1]):
        again = canonical_encoding.loads(canonical_encoding.dumps(state))
        assert canonical_encoding.dumps(again) == canonical_encoding.dumps(state)
        one, two = play.method.next_request(again), play.method.next_request(state)
        assert canonical_encoding.dumps([one and list(one)]) == canonical_encoding.dumps(
            [two and list(two)]
        )


@pytest.mark.parametrize("count", [0, 1])
def test_a_site_with_no_or_one_record_contributes_or_refuses(name: str, count: int) -> None:
    """In every kind of round; numbers that are none would spoil everybody's sum."""
    play = played(name)
    whole = play.rows[0]
    rows = SiteRecords(whole.values[:count], 0, np.zeros_like(whole.outside))
    memory: State = {}
    for asked in play.rounds:
        try:
            update, memory = play.method.contribute(
                asked.stage.name,
                rows,
                asked.message,
                memory,
                play.public,
                seeded_random(bytes(31) + b"2"),
            )
        except UsageError:
            return
        check_update(asked.stage, update)


def spoilt(message: State) -> Iterator[State]:
    """Yield messages with one thing wrong: a key less, and values of other types, shapes, sizes."""
    for key, value in message.items():
        yield {k: v for k, v in message.items() if k != key}
        for wrong in (None, "x", [], {}, -1, 2**70, float("nan"), float("inf"), True):
            if type(wrong) is not type(value) or wrong != value:
                yield {**message, key: wrong}
        if isinstance(value, np.ndarray):
            yield {**message, key: value.astype(np.uint64)}
            yield {**message, key: value[..., None]}
            yield {**message, key: np.zeros((0, *value.shape))}
            whole = value.dtype.kind == "u"
            for number in (255,) if whole else (np.nan, np.inf, -1e300, 1e300):
                yield {**message, key: np.full_like(value, number)}


def test_a_malformed_message_is_a_peer_error(name: str) -> None:
    """Where a spoilt message still makes sense, the answer has the declared fields."""
    play = played(name)
    for asked in kinds_of_rounds(play):
        for message in spoilt(asked.message):
            try:
                update, _ = play.method.contribute(
                    asked.stage.name, play.rows[0], message, asked.memories[0], play.public,
                    seeded_random(bytes(31) + b"3"),
                )  # fmt: skip
            except PeerError:
                continue
            check_update(asked.stage, update)


def test_a_message_without_its_keys_is_refused(name: str) -> None:
    """Whatever a method needs of a message it misses."""
    play = played(name)
    for asked in kinds_of_rounds(play):
        for key in asked.message:
            message = {k: v for k, v in asked.message.items() if k != key}
            with pytest.raises(PeerError):
                play.method.contribute(
                    asked.stage.name, play.rows[0], message, asked.memories[0], play.public,
                    seeded_random(bytes(31) + b"4"),
                )  # fmt: skip


def test_batched_contributions_equal_single_ones(name: str) -> None:
    play = played(name)
    batched = play.method.facts.contribute_batched
    if batched is None:
        return
    for asked in play.rounds:
        randoms = [seeded_random(bytes(31) + bytes([i])) for i in range(3)]
        together = batched(
            asked.stage.name, play.rows, asked.message, asked.memories, play.public, randoms
        )
        for i, (update, memory) in enumerate(together):
            alone = play.method.contribute(
                asked.stage.name, play.rows[i], asked.message, asked.memories[i], play.public,
                seeded_random(bytes(31) + bytes([i])),
            )  # fmt: skip
            assert canonical_encoding.dumps([update, memory]) == canonical_encoding.dumps(
                list(alone)
            )


def test_encoding_changes_sums_by_rounding_only(name: str) -> None:
    """A decoded sum is off by at most half a step of the grid for each site."""
    play, plans = played(name), planned_of(name).plans
    for asked in kinds_of_rounds(play):
        plan = plans.of(asked.stage.name)
        vectors = [encode(plan, update) for update in asked.updates]
        total, clipped = decode(plan, ring.total(vectors, plan.length, plan.ring_bits))
        assert not clipped.any()
        for field in asked.stage.spec:
            terms = [np.asarray(update[field.name]) for update in asked.updates]
            exact, size = sum(terms), sum(map(np.abs, terms))
            # Half a step a site, and float64's own rounding: of two additions, whose terms may
            # cancel, and of the decoded sum.
            allowed = 3 * 0.5 * 2.0**-field.fraction_bits + 3 * np.spacing(size)
            assert (np.abs(total[field.name] - exact) <= allowed).all(), field.name


def test_results_are_json_and_arrays_without_pickles(name: str) -> None:
    result = played(name).result
    text = json.dumps(result.summary, allow_nan=False)
    assert json.loads(text) == json.loads(json.dumps(result.summary))
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **result.arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as read:
        for key, value in result.arrays.items():
            assert read[key].tobytes() == value.tobytes()


def test_a_site_result_is_json(name: str) -> None:
    play = played(name)
    site_result = play.method.facts.site_result
    if site_result is None:
        return
    for memory in play.memories:
        left = site_result(memory, play.public)
        if left is not None:
            json.dumps(left.summary, allow_nan=False)


VARIANTS: dict[str, list[dict[str, Any]]] = {"sparse_directed": [{"cycles": False}]}
"""Settings with which a method has other sums."""


def test_the_result_has_the_same_bits_under_every_protocol(name: str) -> None:
    data = {site: records(i, 40 + i) for i, site in enumerate(SITES)}
    for more in ({}, *VARIANTS.get(name, [])):
        plain, *others = (
            run(job(name, protocol, **more), data, random=replayable_random(9)).result.arrays
            for protocol in ("plain", "additive", "masked")
        )
        for other in others:
            assert other.keys() == plain.keys()
            for key, value in plain.items():
                assert other[key].tobytes() == value.tobytes(), key


PRIVATE = {"placement": "site", "epsilon": 4.0, "delta": 1e-6}


def settings_under_noise(name: str, placement: str) -> dict[str, Any]:
    if name == "sparse_directed" and placement == "site":
        return {"errors": "gaussian", "temperatures": 1}
    if name == "local_graphs":
        return {"redraws": 2}
    if name == "fedngm":
        at_sites = {"learn_from": "samples", "local_steps": 2} if placement == "site" else {}
        return {"standardise": False, "edges": "all", **at_sites}
    if name == "moments" and placement == "round":
        return {"centre": "site"}
    return {}


def with_typical(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns with typical ranges: a half of the bounds, a third of the records."""
    found = {}
    for name, column in columns.items():
        typical = {"binary": 0.3}.get(column["type"])
        if "low" in column:
            width = column["high"] - column["low"]
            typical = [column["low"] + width / 4, column["high"] - width / 4]
        found[name] = column | ({} if typical is None else {"typical": typical})
    return found


@pytest.mark.system
@pytest.mark.parametrize("placement", ["sum", "site", "round"])
def test_noise_is_possible_where_the_method_says(name: str, placement: str) -> None:
    more = settings_under_noise(name, placement)
    tables = {site: records(i, 40 + i) for i, site in enumerate(SITES)}
    private = {**job(name, "masked", **more), "privacy": PRIVATE | {"placement": placement}}
    if more.get("centre") == "site":
        private["columns"] = with_typical(private["columns"])
    if placement in make_method(planned_of(name).job.method).placements.where:
        assert plan_job(parse_job(private), tables).private is not None
    else:
        with pytest.raises((CapabilityError, JobError)):
            plan_job(parse_job(private), tables)


@pytest.mark.system
def test_intervals_that_ignore_noise_at_the_sites_are_a_caution_to_the_last_line(
    name: str, tmp_path: Path
) -> None:
    raw = job(name, "masked", **settings_under_noise(name, "site"))
    method = make_method(parse_job(raw).method)
    if Placement.SITE not in method.placements.where:
        return
    raw |= {"sites": {"max_rows": 500}}
    raw |= {"privacy": PRIVATE | {"epsilon": 15.0, "expected_records": 1200}}
    tables = {site: records(i, 400 + i) for i, site in enumerate(SITES)}
    done = run(raw, tables, out=tmp_path / "run")
    facts, summary = done.facts, done.result.summary
    last = ending(facts, summary, PrivacyClaims.of(facts))
    read = facts["privacy"]["mechanisms"][-1]["stage"] == SITE_MOMENTS
    ignored = read and "level" in summary and not method.facts.knows_noise
    assert (TOO_NARROW in last) is ignored
    assert (last == "complete: every result can be used") is (
        not any(block.caution for block in blocks(facts, summary))
        and facts["feasibility"]["verdict"] != "red"
    )


LEVELS = {"type": "categorical", "levels": ["a", "b", "c", "nobody"]}
UNINFORMATIVE: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "a level that no record has": (LEVELS, ["nobody", "w"], ["w=b", "w=c"]),
    "a constant column": ({"type": "continuous", "low": -6, "high": 6}, ["w"], []),
}
"""How column w is declared, what the error names, and what a corrected job uses in its place."""
WITHOUT_ERROR = {"gradient", "local_graphs", "torch_module", "fedngm", "fedngr", "tables"}
"""Methods whose results exist without information on a column."""


def job_with(name: str, declared: dict[str, Any], used: list[str], ledgers: Path) -> dict[str, Any]:
    made = copy.deepcopy(job(name))
    made["columns"]["w"] = declared
    made["sites"]["ledgers"] = str(ledgers)
    for settings in (made["method"], *made["method"].get("analyses", [])):
        for key in {"variables", "predictors"} & settings.keys():
            settings[key] = [*settings[key], *used]
    return made


@pytest.mark.parametrize("case", UNINFORMATIVE)
def test_an_uninformative_column_is_named_and_a_corrected_job_runs(
    name: str, case: str, tmp_path: Path
) -> None:
    """Sites keep their ledgers: a correction that they refuse would be none."""
    declared, named, others = UNINFORMATIVE[case]
    tables = {site: records(i, 90 + i) for i, site in enumerate(SITES)}
    for i, table in enumerate(tables.values()):
        levels = np.random.default_rng([9, i]).choice(LEVELS["levels"][:3], len(table))
        table["w"] = levels if declared is LEVELS else 1.5

    def told(used: list[str]) -> list[str]:
        try:
            summary = run(job_with(name, declared, used, tmp_path), tables).result.summary
        except UsageError as error:
            assert error.where == "analysis" and error.advice
            return [error.what]
        return [each["failed"] for each in summary.get("analyses", ()) if "failed" in each]

    errors = told(["w"])
    assert bool(errors) != (name in WITHOUT_ERROR)
    assert all(repr(each) in error for error in errors for each in named)
    assert not errors or not told(others)
