"""The coordinator writes the job. What it learns about the hospitals' records by asking cleverly.

Each attack has a positive control: what the attacker would compute from sums that no rule holds
back is compared with the records. The control runs the two jobs over two copies of the records, so
that no ledger knows of the other job.
"""

import copy
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.hospitals import (
    HOSPITALS,
    LINEAR,
    LOGISTIC,
    Seen,
    ask,
    folder,
    moments_job,
    records,
)

from secagg.privacy.policy.site_policy import PROFILES

PRIVATE = {
    "privacy": {"placement": "sum", "epsilon": 2.0, "delta": 1e-5},
    "protocol": {"name": "additive"},
}
RARE = "typical angina"
AGE = {"age": {"type": "categorical", "levels": [str(age) for age in range(28, 78)]}}
HEART_RATE = "max_heart_rate"
KNOWN = LOGISTIC["columns"] | {
    "cholesterol": {"type": "continuous", "low": 0, "high": 700},
    "fasting_sugar_high": {"type": "binary"},
}


# --- 1. refusals ---------------------------------------------------------------------------------


def without_level(data: Path, name: str, level: str, **more: Any) -> dict[str, Any]:
    """Return a job that declares a column without one of its levels."""
    column = (KNOWN | AGE)[name]
    levels = [each for each in column["levels"] if each != level]
    return moments_job(data, {name: column | {"levels": levels}}, **more)


def with_max_rows(data: Path, max_rows: int, **more: Any) -> dict[str, Any]:
    job = moments_job(data, {"sex": LINEAR["columns"]["sex"]}, **more)
    return job | {"sites": job["sites"] | {"max_rows": max_rows}}


def with_min_records(data: Path, minimum: int, **more: Any) -> dict[str, Any]:
    job = moments_job(data, {"sex": LINEAR["columns"]["sex"]}, **more)
    return job | {"release": {"min_sites": 3, "min_records": minimum}}


def change(data: Path, edit: Callable[[pd.DataFrame], pd.DataFrame]) -> Path:
    """Edit the records of every hospital."""
    for name in HOSPITALS:
        table = pd.read_csv(data / f"{name}.csv", dtype=str, keep_default_na=False)
        edit(table).to_csv(data / f"{name}.csv", index=False)
    return data


VARIANTS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "as they are": lambda table: table,
    "the first 20 only": lambda table: table.head(20),
    "nobody": lambda table: table.head(0),
    "nobody with the rare level": lambda table: table[table["chest_pain"] != RARE],
    "a level that is no level": lambda table: table.assign(chest_pain="unknown"),
}


def mutual_information(pairs: Sequence[tuple[str, str]]) -> float:
    """Return the mutual information of two variables in bits, from equally likely pairs."""
    both, total = Counter(pairs), len(pairs)
    left, right = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return sum(
        n / total * math.log2(n * total / (left[a] * right[b])) for (a, b), n in both.items()
    )


QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "level": lambda data, **more: without_level(data, "chest_pain", RARE, **more),
    "max_rows": lambda data, **more: with_max_rows(data, 150, **more),
    "min_records": lambda data, **more: with_min_records(data, 150, **more),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_refusal_codes_under_privacy_have_no_information_about_records(
    tmp_path: Path, question: str
) -> None:
    """0 bits with noise; without noise the codes do depend on the records (the control)."""
    bits = {}
    for name, more in {"noise": PRIVATE, "exact": {}}.items():
        pairs = []
        for variant, edit in VARIANTS.items():
            data = change(folder(tmp_path / f"{name} {variant}"), edit)
            seen = ask(QUESTIONS[question](data, **more))
            pairs.append((variant, str(sorted(seen.codes.items()))))
        bits[name] = mutual_information(pairs)
    assert bits["noise"] == 0
    assert bits["exact"] > 0.7


def test_a_search_by_max_rows_does_not_count_the_rows_of_a_hospital(tmp_path: Path) -> None:
    """Bisection, and then going down by one row at a time."""
    data = folder(tmp_path)
    low, high, refused = 1, 1000, 0
    while low < high:
        middle = (low + high) // 2
        codes = ask(with_max_rows(data, middle)).codes
        refused += codes.get("cleveland") == "records"
        low, high = (middle + 1, high) if "cleveland" in codes else (low, middle)
    assert low != len(records(data)["cleveland"]) and refused <= 5
    for rows in range(999, 960, -1):
        assert "records" not in ask(with_max_rows(data, rows)).codes.values()


def fewest_rows(data: Path, most: int) -> int:
    """Ask for consent with ever fewer rows and leave; return the fewest that a hospital allowed."""
    name, allowed = "cleveland", most + 1
    for rows in range(most, most - 20, -1):
        code = ask(with_max_rows(data, rows), consent_only=True).codes.get(name)
        if code is not None:
            assert code in ("records", "policy")
            return allowed if code == "records" else 0
        allowed = rows
    return 0


def test_leaving_after_consent_does_not_count_the_rows_of_a_hospital(tmp_path: Path) -> None:
    """Only the last of these jobs is refused because of the records, and none releases anything."""
    data = folder(tmp_path / "control")
    for name in HOSPITALS:
        (data / f"{name}.policy.toml").write_text(
            'min_sites = 3\nmin_records = 10\nmax_unreleased = 1000\nprotocols = ["any"]\n'
        )
    truth = len(records(data)["cleveland"])
    assert fewest_rows(data, truth + 15) == truth
    assert fewest_rows(folder(tmp_path / "attack"), truth + 15) == 0


# --- 2. two exact jobs ---------------------------------------------------------------------------


def heart_rate_below(data: Path, high: float) -> dict[str, Any]:
    columns = copy.deepcopy(LINEAR["columns"])
    columns[HEART_RATE]["high"] = high
    return moments_job(data, columns)


def in_units(sums: dict[str, np.ndarray], columns: dict[str, Any]) -> np.ndarray:
    """Return the matrix of sums of (1, x)(1, x)' in the columns' own units."""
    names = list(columns)
    upper = sums["moments"]
    p = len(names) + 1
    scaled = np.zeros((p, p))
    scaled[np.triu_indices(p)] = upper
    scaled = scaled + np.triu(scaled, 1).T
    back = np.eye(p)
    for i, column in enumerate(columns.values(), start=1):
        low, high = column.get("low", 0.0), column.get("high", 1.0)
        back[i, 0], back[i, i] = (low + high) / 2, (high - low) / 2
    unscaled: np.ndarray = back @ scaled @ back.T
    return unscaled


def test_a_second_job_with_another_bound_does_not_show_one_patient(tmp_path: Path) -> None:
    """One patient's heart rate is above 200. The difference of two moments is this patient."""
    columns = LINEAR["columns"]
    sums = []
    for high in (230, 200):  # the control: over two copies of the records
        job = heart_rate_below(folder(tmp_path / str(high)), high)
        sums.append(in_units(ask(job).sums["moments"], job["columns"]))
    difference = (sums[0] - sums[1])[1 + list(columns).index(HEART_RATE)]
    data = folder(tmp_path)
    everybody = pd.concat(records(data).values())
    (patient,) = everybody[everybody[HEART_RATE] > 200].to_dict("records")
    recovered = difference[1:] / difference[0]
    for value, (name, column) in zip(recovered, columns.items(), strict=True):
        if name != HEART_RATE:
            truth = patient[name]
            truth = column["levels"].index(truth) if "levels" in column else float(truth)
            assert value == pytest.approx(truth, abs=1e-6), name

    assert "moments" in ask(heart_rate_below(data, 230)).sums
    seen = ask(heart_rate_below(data, 200))
    assert seen.sums == {} and set(seen.codes.values()) == {"policy"}
    assert "moments" in ask(heart_rate_below(data, 230)).sums  # the same question again
    private = heart_rate_below(data, 200) | PRIVATE
    assert "moments" in ask(private).sums


def test_small_counts_of_clipped_values_are_not_sent(tmp_path: Path) -> None:
    """`values_outside_bounds` would say that there is exactly one such patient."""
    seen = ask(heart_rate_below(folder(tmp_path), 200))
    assert not seen.sums["cohort"]["outside"].any()


def test_a_column_less_does_not_show_the_few_patients_in_whom_it_is_missing(tmp_path: Path) -> None:
    """At one hospital, 8 patients have no value of fasting sugar."""
    data = folder(tmp_path)
    sugar = {"fasting_sugar_high": {"type": "binary"}}
    assert "moments" in ask(moments_job(data, LINEAR["columns"])).sums
    seen = ask(moments_job(data, LINEAR["columns"] | sugar))
    assert seen.codes["hungary"] == "records" and "moments" not in seen.sums


def test_a_patient_added_between_two_jobs_does_not_show(tmp_path: Path) -> None:
    data = folder(tmp_path)
    job = moments_job(data, LINEAR["columns"])
    assert "moments" in ask(job).sums
    path = data / "hungary.csv"
    lines = path.read_text().splitlines()
    for added, released in (
        (lines[1:2], False),
        (lines[1:10], False),
        (lines[1:11], False),  # of these ten, fewer than ten are women: their sums would show
        (lines[1:2] * 10, True),
    ):
        path.write_text("\n".join([*lines, *added]) + "\n")
        assert ("moments" in ask(job).sums) is released


# --- 3. one exact job ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [
        AGE,  # two patients have an age that nobody else has
        {"age": {"type": "continuous", "low": 76.5, "high": 77}, "sex": LINEAR["columns"]["sex"]},
        {n: LOGISTIC["columns"][n] for n in ("chest_pain", "exercise_angina")},  # a pair of levels
    ],
    ids=["levels", "bounds", "pairs"],
)
def test_one_job_does_not_isolate_rare_patients(tmp_path: Path, columns: dict[str, Any]) -> None:
    """The moments hold, for each level, the sums of all columns over the patients that have it."""
    seen = ask(moments_job(folder(tmp_path), columns))
    assert "moments" not in seen.sums


def test_a_column_that_names_the_site_does_not_show_a_hospital(tmp_path: Path) -> None:
    """As statisticians adjust for the hospital. The control sets the rule aside."""
    heart_rate = {HEART_RATE: LINEAR["columns"][HEART_RATE]}
    coded = {"site": {"type": "categorical", "levels": list(HOSPITALS)}}
    apart = {f"at_{name}": {"type": "binary"} for name in HOSPITALS[1:]}
    truth = {}

    def asked(place: str, columns: dict[str, Any], **rules: int) -> Seen:
        data = folder(tmp_path / place)
        for name in HOSPITALS:
            table = pd.read_csv(data / f"{name}.csv").assign(site=name)
            truth[name] = table[HEART_RATE].dropna()
            table = table.assign(**{f"at_{other}": int(other == name) for other in HOSPITALS})
            table.to_csv(data / f"{name}.csv", index=False)
        job = moments_job(data, heart_rate | columns)
        return ask(job | {"release": job["release"] | rules})

    control = asked("control", apart, min_level_sites=1)
    sums = in_units(control.sums["moments"], heart_rate | apart)
    for position, name in enumerate(HOSPITALS[1:], start=2):  # after the 1 and the heart rate
        assert round(sums[0, position]) == len(truth[name])
        assert sums[1, position] == pytest.approx(truth[name].sum(), rel=1e-9)
    assert set(asked("apart", apart).sums) == {"cohort"}
    assert set(asked("one column", coded).sums) == {"cohort"}


def test_a_rare_binary_column_declared_continuous_is_refused(tmp_path: Path) -> None:
    def mark(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(rare=["1", "1", *["0"] * (len(table) - 2)])

    data = change(folder(tmp_path), mark)
    columns = {
        "rare": {"type": "continuous", "low": -1, "high": 5},
        "age": LINEAR["columns"]["age"],
    }
    seen = ask(moments_job(data, columns))
    assert seen.sums == {} and set(seen.codes.values()) == {"records"}


# --- random pairs of exact jobs ------------------------------------------------------------------

PAIRS = int(os.environ.get("SECAGG_JOB_PAIRS", "30"))
"""Pairs of jobs for each profile. 200 take three minutes for all profiles."""


def varied(column: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Return the declaration with another bound, or with the levels in another order."""
    if column["type"] == "categorical":
        return column | {"levels": [str(level) for level in rng.permutation(column["levels"])]}
    if column["type"] == "binary":
        return column
    end = str(rng.choice(["low", "high"]))
    moved = column | {end: float(column[end] + rng.integers(-30, 31))}
    return moved if moved["low"] < moved["high"] else column


def random_pair(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return the columns of two jobs, which are the same but for a column or a declaration."""
    first = {
        name: column for name, column in KNOWN.items()
        if rng.random() < (0.6 if column["type"] == "continuous" else 0.1)
    } or {"age": KNOWN["age"]}  # fmt: skip
    second = dict(first)
    if rng.random() < 0.6:
        name = str(rng.choice(list(KNOWN)))
        if name not in second:
            second[name] = KNOWN[name]
        elif len(second) > 1:
            del second[name]
    if rng.random() < 0.4:
        name = str(rng.choice(list(second)))
        second[name] = varied(second[name], rng)
    pair = [first, second]
    return pair if rng.random() < 0.5 else pair[::-1]


def contributed(table: pd.DataFrame, columns: dict[str, Any]) -> pd.DataFrame:
    """Return the complete records, as they are after clipping, by their row in the file."""
    read = table[list(columns)].copy()
    for name, column in columns.items():
        if column["type"] == "continuous":
            read[name] = read[name].clip(column["low"], column["high"])
    return read.dropna()


@pytest.mark.parametrize("profile", PROFILES)
def test_no_pair_of_released_jobs_differs_by_few_records(tmp_path: Path, profile: int) -> None:
    """Compared with the truth: the records that only one job uses, or that the jobs clip apart."""
    rng = np.random.default_rng(profile)
    minimum = PROFILES[profile]["min_records"]
    outcomes: Counter[str] = Counter()
    for pair in range(PAIRS):
        data = folder(tmp_path / str(pair))
        for name in HOSPITALS:
            (data / f"{name}.policy.toml").write_text(f'profile = {profile}\nprotocols = ["any"]\n')
        jobs = [moments_job(data, columns) for columns in random_pair(rng)]
        for job in jobs:
            job["release"] = {"min_sites": 3, "min_records": minimum}
        released = ["moments" in ask(job).sums for job in jobs]
        outcomes[f"{sum(released)} released"] += 1
        if not all(released):
            continue
        for table in records(data).values():
            one, two = (contributed(table, job["columns"]) for job in jobs)
            alone = one.index.symmetric_difference(two.index)
            shared = [name for name in one.columns if name in two.columns]
            both = one.index.intersection(two.index)
            apart = (one.loc[both, shared] != two.loc[both, shared]).any(axis=1).sum()
            assert len(alone) == 0 or len(alone) >= minimum, jobs
            assert apart == 0 or apart >= minimum, jobs
            coded = [n for n in shared if jobs[0]["columns"][n]["type"] != "continuous"]
            of_levels = [n for name in coded for n in table.loc[alone, name].value_counts()]
            assert not any(0 < n < minimum for n in of_levels), jobs
    print(profile, dict(outcomes))
    assert outcomes["2 released"] and outcomes["1 released"]
