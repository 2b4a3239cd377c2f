"""Attacks on the records of linear methods: who took part, and what a person's columns are."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from support.runs.audited import HALF, job

from secagg.audits.attacks.records.attribute_inference import Columns, difference, errors, gain
from secagg.audits.attacks.records.coefficient_tracing import gains
from secagg.audits.attacks.records.membership_finding import (
    membership_finding,
    width_by_permutation,
)
from secagg.audits.attacks.records.released_regression import Regression, fitted
from secagg.audits.attacks.records.tracing import Released, traces
from secagg.audits.audit import Attacked, audit_job
from secagg.audits.contract import Verdict
from secagg.audits.membership import Rate, area_under_roc
from secagg.audits.views import Who
from secagg.contracts import PublicFacts, Variable
from secagg.core.arrays import Array
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.glm.logistic import BINOMIAL

Y = Variable("y", "y", 0.0, 1.0)

ONE = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5}
CONTINUOUS = {"type": "continuous", "low": -HALF, "high": HALF}


def of_two_sites(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {"s0": table.iloc[::2], "s1": table.iloc[1::2]}


def audited(
    data: dict[str, pd.DataFrame], name: str, method: dict[str, Any], share: float,
    columns: dict[str, Any] | None = None, **more: Any,
) -> list[Attacked]:  # fmt: skip
    raw = job(method, 0, **more)
    if "release" not in more:  # some have as many columns as records: leverage 1
        raw["release"] = {"min_sites": 2, "min_records": 1, "min_cell_records": 5}
    raw["sites"] = {"max_rows": 30_000}
    raw["columns"] = dict.fromkeys(data["s0"].columns, CONTINUOUS) | (columns or {})
    return list(audit_job(raw, data, attacks=[name], set_aside=share).attacked)


# --- tracing in moments ---------------------------------------------------------------------------


def normal_columns(n: int, share: float) -> dict[str, pd.DataFrame]:
    """Return 50 independent columns, with n records that take part."""
    values = np.random.default_rng(8).normal(0, 0.8, (round(n / (1 - share)), 50))
    names = [f"x{j}" for j in range(50)]
    return of_two_sites(pd.DataFrame(values.clip(-HALF, HALF), columns=names))


@pytest.mark.attack
@pytest.mark.parametrize(
    ("n", "share", "area"), [(100, 0.9, 0.99), (500, 0.9, 0.87), (5000, 0.7, 0.63)]
)
def test_exact_moments_trace_as_well_as_an_independent_program(
    n: int, share: float, area: float
) -> None:
    (found,) = audited(normal_columns(n, share), "tracing", {"name": "moments"}, share)
    assert found.finding is not None and found.verdict is Verdict.LEAK
    assert found.finding.value == pytest.approx(area, abs=0.03)
    assert found.finding.low > 0.5 and len(found.finding.details["roc"]) <= 100
    assert found.finding.details["members"] == pytest.approx(n, abs=2)


@pytest.mark.attack
def test_noised_moments_do_not_trace() -> None:
    data = normal_columns(100, 0.9)
    (found,) = audited(data, "tracing", {"name": "moments"}, 0.9, privacy=ONE)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.value < 0.55 + 0.03 and found.control is not None
    assert found.control.value > 0.9


@pytest.mark.parametrize("reference", [20, 200])
def test_sums_of_other_records_do_not_trace(reference: int) -> None:
    """With few reference records the area is below 1/2, so a leak is never found by chance."""
    rng, areas = np.random.default_rng(0), []
    for _ in range(20):
        own, others, elsewhere = (rng.normal(0, 0.2, (n, 10)) for n in (200, reference, 200))
        z = np.column_stack([np.ones(200), elsewhere])
        areas.append(area_under_roc(*traces(Released(z.T @ z, 200.0), own, others)).value)
    assert 0.4 < np.mean(areas) < 0.52


def test_few_columns_and_records_are_refused() -> None:
    data = of_two_sites(
        pd.DataFrame(np.random.default_rng(0).normal(size=(480, 2)), columns=["a", "b"])
    )
    (found,) = audited(data, "tracing", {"name": "moments"}, 0.2)  # 96 others
    assert found.verdict is Verdict.NOT_APPLICABLE and "100" in found.why


def test_tracing_does_not_apply_to_moments_that_are_centred_within_sites() -> None:
    data = normal_columns(120, 0.5)
    (found,) = audited(data, "tracing", {"name": "moments", "centre": "site"}, 0.5)
    assert found.verdict is Verdict.NOT_APPLICABLE


# --- tracing in coefficients ----------------------------------------------------------------------

PREDICTORS = [f"x{j}" for j in range(20)]
OLS = {"kind": "ols", "outcome": "y", "predictors": PREDICTORS}


def regression(n: int, share: float, *, binary: bool = False) -> dict[str, pd.DataFrame]:
    """Return 20 predictors and an outcome, with n records that take part."""
    rng = np.random.default_rng(8)
    x = rng.normal(0, 0.8, (round(n / (1 - share)), 20)).clip(-HALF, HALF)
    y = (x @ rng.normal(size=20) / 20**0.5 + rng.normal(size=len(x))).clip(-HALF, HALF)
    table = pd.DataFrame(x, columns=PREDICTORS)
    table["y"] = (y > 0).astype(int) if binary else y
    return of_two_sites(table)


METHODS: dict[str, tuple[dict[str, Any], bool]] = {
    "ols": ({"name": "moments", "analyses": [OLS]}, False),
    "fedavg": ({"name": "fedavg", "outcome": "y"}, False),
    "logistic": ({"name": "logistic", "outcome": "y", "predictors": PREDICTORS}, True),
    "gradient": (
        {"name": "gradient", "outcome": "y", "predictors": PREDICTORS, "family": "binomial"},
        True,
    ),
}


@pytest.mark.attack
@pytest.mark.parametrize("name", METHODS)
def test_many_coefficients_of_few_records_trace(name: str) -> None:
    """By theory, without the error of the reference: .66 for 21 coefficients of 60 records."""
    method, binary = METHODS[name]
    columns = {"y": {"type": "binary"}} if binary else {}
    n = 100 if binary else 60
    data = regression(n, 0.9, binary=binary)
    (found,) = audited(data, "coefficient_tracing", method, 0.9, columns)
    assert found.who is Who.OUTSIDER  # the coordinator's sums are not used
    assert found.finding is not None and found.finding.low > 0.5
    assert 0.54 < found.finding.value < 0.75


def test_few_coefficients_of_many_records_do_not_trace() -> None:
    """Of the exact coefficients of other records, neither."""
    rng, own_areas, other_areas = np.random.default_rng(1), [], []
    for _ in range(10):
        x = [rng.normal(0, 0.3, (n, 5)) for n in (2000, 2000, 4000)]
        own, elsewhere, reference = (
            np.column_stack([each, each @ np.ones(5) + rng.normal(0, 0.5, len(each))]) for each in x
        )
        for records, areas in ((own, own_areas), (elsewhere, other_areas)):
            released = Regression("ols", GAUSSIAN, 5, (0, 1, 2, 3, 4), np.zeros(5), 0.0, Y)
            b, _ = fitted(released.design(records), records[:, 5], GAUSSIAN)
            released = Regression("ols", GAUSSIAN, 5, (0, 1, 2, 3, 4), b[1:], float(b[0]), Y)
            areas.append(area_under_roc(*gains(released, own, reference, 2000.0)).value)
    assert np.mean(own_areas) < 0.55 and np.mean(other_areas) == pytest.approx(0.5, abs=0.02)


def of_other_records(
    n: int, m: int, p: int, rng: np.random.Generator, *, logistic: bool
) -> tuple[Regression, Array, Array]:
    """Return a regression of n records, and n and m others: nobody took part."""
    slopes, found = rng.normal(size=p) / p**0.5, []
    family = BINOMIAL if logistic else GAUSSIAN
    for records in (n, n, m):
        x = rng.normal(0, 0.3, (records, p))
        y = x @ slopes + rng.normal(0, 0.5, records)
        if logistic:
            y = np.where(rng.logistic(size=records) < 3 * x @ slopes, 1.0, -1.0)
        found.append(np.column_stack([x, y]))
    model = Regression("", family, p, tuple(range(p)), np.zeros(p), 0.0, Y)
    fit = model.design(found[0]), model.outcomes(found[0])
    b, _ = fitted(*fit, family)
    return replace(model, slopes=b[1:], intercept=float(b[0])), found[1], found[2]


@pytest.mark.parametrize(("n", "m", "logistic"), [(100, 30, False), (200, 50, True)])
def test_the_leverage_of_a_reference_record_is_that_of_a_fit_without_it(
    n: int, m: int, logistic: bool
) -> None:
    """With that of a fit that includes the record, the areas are .38 and .42."""
    rng, areas = np.random.default_rng(1), []
    for _ in range(60):
        model, own, others = of_other_records(n, m, 20, rng, logistic=logistic)
        areas.append(area_under_roc(*gains(model, own, others, float(n))).value)
    assert np.mean(areas) == pytest.approx(0.5, abs=0.03)


@pytest.mark.attack
@pytest.mark.parametrize(("n", "logistic"), [(100, False), (200, True)])
def test_coefficients_of_other_records_are_a_guess(n: int, logistic: bool) -> None:
    rng, areas, covered = np.random.default_rng(1), [], []
    for _ in range(40):
        model, own, others = of_other_records(n, 105, 20, rng, logistic=logistic)

        def area(own: Array, others: Array, model: Regression = model) -> Array:
            return np.array([area_under_roc(*gains(model, own, others, float(n))).value])

        (width,) = width_by_permutation(area, own, others, rng)
        found = membership_finding(*gains(model, own, others, float(n)), float(width))
        areas.append(found.value)
        covered.append(found.low <= 0.5 <= found.high)
    assert np.mean(areas) == pytest.approx(0.5, abs=3 * np.std(areas) / 40**0.5)
    assert np.mean(covered) >= 0.9


@pytest.mark.attack
def test_the_interval_covers_a_guess_where_scores_share_their_reference() -> None:
    """The interval of DeLong covers 86% here."""
    rng, covered, of_delong = np.random.default_rng(0), [], []
    for _ in range(60):
        own, elsewhere = (rng.normal(0, 0.2, (400, 5)) for _ in range(2))
        others = rng.normal(0, 0.2, (100, 5))
        z = np.column_stack([np.ones(400), elsewhere])
        released = Released(z.T @ z, 400.0)

        def area(own: Array, others: Array, released: Released = released) -> Array:
            return np.array([area_under_roc(*traces(released, own, others)).value])

        (width,) = width_by_permutation(area, own, others, rng)
        both = traces(released, own, others)
        found, short = membership_finding(*both, float(width)), membership_finding(*both)
        covered.append(found.low <= 0.5 <= found.high)
        of_delong.append(short.low <= 0.5 <= short.high)
    assert np.mean(of_delong) < 0.9 <= np.mean(covered)


def test_few_records_for_each_coefficient_are_refused() -> None:
    (found,) = audited(regression(60, 0.625), "coefficient_tracing", METHODS["ols"][0], 0.625)
    assert found.verdict is Verdict.NOT_APPLICABLE and "105" in found.why


@pytest.mark.attack
def test_noise_hides_who_is_behind_coefficients() -> None:
    method, columns = METHODS["gradient"][0] | {"rounds": 20}, {"y": {"type": "binary"}}
    data, privacy = regression(60, 0.9, binary=True), ONE | {"placement": "round"}
    (found,) = audited(data, "coefficient_tracing", method, 0.9, columns, privacy=privacy)
    assert found.verdict is not Verdict.LEAK and found.finding is not None
    assert found.finding.low < 0.5 and found.control is not None
    assert found.control.low > 0.5


# --- a column of a person -------------------------------------------------------------------------

LEVELS = {"case": {"type": "binary"}, "kind": {"type": "categorical", "levels": ["a", "b", "c"]}}
EXPLAINED = {
    "name": "moments",
    "analyses": [{"kind": "ols", "outcome": "y", "predictors": ["x", "case", "kind"]}],
}


def explained(effect: float, *, binary: bool = False) -> dict[str, pd.DataFrame]:
    """Return two columns with levels and a continuous one, with this effect on the outcome."""
    rng, n = np.random.default_rng(1), 600
    x, case = rng.normal(0, 0.8, n).clip(-HALF, HALF), rng.integers(0, 2, n)
    kind = rng.choice(list("abc"), n, p=[0.5, 0.3, 0.2])
    shift = (kind == "b").astype(float) - (kind == "c")
    y = effect * (x / 3 + case + shift) + rng.normal(0, 0.5, n)
    outcome = (y > 0).astype(int) if binary else y.clip(-HALF, HALF)
    return of_two_sites(pd.DataFrame({"x": x, "case": case, "kind": kind, "y": outcome}))


def shares(why: str) -> tuple[int, int]:
    """Return the per cent of the error that is avoided for members, and for others."""
    own, other = re.findall(r"(\d+)%", why)
    return int(own), int(other)


@pytest.mark.parametrize("epsilon", [None, pytest.param(0.1, marks=pytest.mark.attack)])
def test_what_a_regression_says_of_everybody_is_no_leak(epsilon: float | None) -> None:
    more = {"privacy": ONE | {"epsilon": epsilon}} if epsilon else {}
    (found,) = audited(explained(1.5), "attribute_inference", EXPLAINED, 0.2, LEVELS, **more)
    assert found.verdict is Verdict.NOT_APPLICABLE and "'case'" in found.why
    own, other = shares(found.why)
    assert own > 70 and abs(own - other) < 10


def test_a_logistic_regression_tells_less() -> None:
    method = {"name": "logistic", "outcome": "y", "predictors": ["x", "case", "kind"]}
    columns = LEVELS | {"y": {"type": "binary"}}
    data = explained(0.4, binary=True)
    (found,) = audited(data, "attribute_inference", method, 0.2, columns)
    assert found.verdict is Verdict.NOT_APPLICABLE and 10 < shares(found.why)[0] < 60


def test_a_model_without_effects_has_nothing_to_find() -> None:
    (found,) = audited(explained(0.0), "attribute_inference", EXPLAINED, 0.2, LEVELS)
    assert found.verdict is Verdict.NOT_APPLICABLE and max(shares(found.why)) < 5


NAMES = [f"b{j}" for j in range(24)]


def as_many_coefficients(*, mixed: bool) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Return 360 records with 24 binary predictors. mixed: with two others as well."""
    rng = np.random.default_rng(9)
    table = pd.DataFrame(rng.integers(0, 2, (360, 24)), columns=NAMES)
    y = table[NAMES] @ rng.normal(size=24) * 0.3 + rng.normal(0, 0.5, 360)
    if mixed:
        table["x"] = rng.normal(0, 0.8, 360).clip(-HALF, HALF)
        table["kind"] = rng.choice(list("abc"), 360)
        y += table["x"] + (table["kind"] == "b") - (table["kind"] == "c")
    predictors = list(table.columns)
    table["y"] = y.clip(-HALF, HALF)
    return of_two_sites(table), predictors


@pytest.mark.parametrize(
    ("mixed", "epsilon"),
    [(True, None), (False, None), pytest.param(False, 1.0, marks=pytest.mark.attack)],
)
def test_about_as_many_coefficients_as_records_say_more_of_these(
    mixed: bool, epsilon: float | None
) -> None:
    data, predictors = as_many_coefficients(mixed=mixed)
    columns = {name: {"type": "binary"} for name in NAMES}
    columns |= {"kind": LEVELS["kind"]} if mixed else {}
    release = {"min_sites": 2, "min_records": 1, "min_cell_records": 1, "min_level_sites": 1}
    more = {"privacy": ONE | {"placement": "round"}} if epsilon else {}
    method: dict[str, Any] = {"outcome": "y", "predictors": predictors}
    if epsilon:
        method |= {"name": "gradient", "family": "gaussian", "rounds": 100}
    else:
        method = {"name": "moments", "analyses": [{"kind": "ols", **method}]}
    (found,) = audited(
        data, "attribute_inference", method, 0.9, columns, release=release, **more
    )  # fmt: skip
    assert found.finding is not None and found.control is not None
    if epsilon:
        assert found.verdict is not Verdict.LEAK and found.finding.low < 0
    else:
        assert found.verdict is Verdict.LEAK and found.finding.value > 2 * found.finding.baseline
    assert found.control.value > 0.5 and found.control.low > 0.1
    gained = found.control.details["gains"]
    best = gained[found.control.details["column"]]
    assert best["members"][0] - best["others"][0] == found.control.value
    for name in ("x", "kind") if mixed else ():  # what is known of everybody
        each = gained[f"1_ols.{name}"]
        assert each["members"][0] > each["others"][0] > 0.2 and each["population"][0] > 0.5


def test_a_column_with_few_errors_of_the_guess_does_not_count() -> None:
    rng = np.random.default_rng(0)
    variables = tuple(
        Variable(name, name, 0.0, 1.0, indicator=name == "rare") for name in ("rare", "x", "y")
    )
    public = PublicFacts(variables, ("rare", "x", "y"), 1000, ("s0",))
    model = Regression("ols", GAUSSIAN, 2, (0, 1), np.ones(2), 0.0, Y)

    def records(cases: int) -> Array:
        x = rng.normal(size=(100, 3))
        x[:, 0] = np.where(np.arange(100) < cases, 1.0, -1.0)
        return x

    for cases, names in ((9, {"1_ols.x"}), (10, {"1_ols.rare", "1_ols.x"})):
        for few, many in ((0, 1), (1, 0)):
            groups = records((cases, 30)[few]), records((cases, 30)[many])
            columns = Columns([model], public, *groups, records(20))
            assert columns.members.keys() == columns.others.keys() == names
    assert not Columns([replace(model, predictors=(0,), slopes=np.ones(1))], public,
                       records(5), records(5), records(5)).members  # fmt: skip


def test_the_intervals_of_all_columns_hold_together() -> None:
    """With three columns, each at an error of 5 % / 3."""
    rng, names = np.random.default_rng(2), "abcy"
    variables = tuple(Variable(name, name, 0.0, 1.0) for name in names)
    public = PublicFacts(variables, tuple(names), 1000, ("s0",))
    model = Regression("ols", GAUSSIAN, 3, (0, 1, 2), np.ones(3), 0.0, Y)
    groups = [rng.normal(size=(50, 4)) for _ in range(3)]
    found, reference = Columns([model], public, *groups), groups[2]
    for rates, records in ((found.members, groups[0]), (found.others, groups[1])):
        for name in names[:3]:
            alone = gain(*errors(model, public, name, records, reference), 1)
            wider = rates[f"1_ols.{name}"]
            ratio = (wider.value - wider.low) / (alone.value - alone.low)
            assert ratio == pytest.approx(norm.ppf(1 - 0.025 / 3) / norm.ppf(0.975))


def test_a_difference_that_may_be_chance_is_no_leak() -> None:
    found = difference(Rate(0.5, 0.2, 0.8), Rate(0.1, -0.3, 0.5))
    assert found.value == pytest.approx(0.4) and found.low == pytest.approx(0.4 - 0.5)


def test_coefficients_of_other_records_say_as_much_of_both() -> None:
    rng, found = np.random.default_rng(0), []
    variables = tuple(Variable(name, name, 0.0, 1.0) for name in "abcy")
    public = PublicFacts(variables, tuple("abcy"), 1000, ("s0",))
    for _ in range(40):
        draws = [rng.normal(size=(n, 4)) for n in (30, 30, 30, 12)]
        for each in draws:
            each[:, 3] += each[:, :3].sum(axis=1)
        b, _ = fitted(np.column_stack([np.ones(12), draws[3][:, :3]]), draws[3][:, 3], GAUSSIAN)
        model = Regression("ols", GAUSSIAN, 3, (0, 1, 2), b[1:], float(b[0]), Y)
        columns = Columns([model], public, *draws[:3])
        found.append([columns.members[k].value - columns.others[k].value for k in columns.members])
    assert np.mean(found) == pytest.approx(0, abs=0.05)
