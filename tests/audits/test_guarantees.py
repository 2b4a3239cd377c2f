"""Audits of guarantees: the noise, and keys and masks. (Epsilon: tests/statistical.)"""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.audited import attacked, tables

from secagg.audits.attacks.guarantees import keys_and_masks
from secagg.audits.audit import Attacked
from secagg.audits.contract import Verdict
from secagg.audits.epsilon.neighbours import rounds_of, worst_neighbours
from secagg.jobs import design_matrix
from secagg.jobs.job import parse_job
from secagg.protocols.masked import masks
from secagg.protocols.masked import site as masked_site
from secagg.protocols.paillier import cryptosystem
from secagg.sessions import site_steps
from secagg.sessions.planned_job import plan_job

pytestmark = pytest.mark.attack
SUM = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5}
ROUNDS = {
    "name": "gradient", "outcome": "x1", "predictors": ["x0"], "family": "gaussian", "rounds": 2,
}  # fmt: skip


def replaced(
    patch: pytest.MonkeyPatch, target: object, name: str, make: Callable[..., Any]
) -> None:
    patch.setattr(target, name, make(getattr(target, name)))


# --- noise ----------------------------------------------------------------------------------------


def noise(method: dict[str, Any] | None = None, **privacy: Any) -> Attacked:
    found = attacked(
        tables(3, 2, rows=100), "noise_self_test", method or {"name": "moments"},
        privacy=SUM | privacy,
    )  # fmt: skip
    assert found.finding is not None and found.control is not None
    assert found.control.value < 1e-100  # half the standard deviation
    return found


@pytest.mark.parametrize("settings", [{}, {"placement": "site"}, {"epsilon": 20.0}])
def test_the_noise_of_moments_passes(settings: dict[str, Any]) -> None:
    found = noise(**settings)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.value > 1e-3 and found.finding.details["tests"] > 100


def test_the_noise_of_rounds_passes() -> None:
    found = noise(ROUNDS, placement="round")
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None


def single(real: Any) -> Any:
    """Normal numbers of single precision instead of the sampler's."""

    def sample(variance: int, weights: Any, size: int, random: Any) -> Any:
        rng = np.random.default_rng(int.from_bytes(random(4), "little"))
        sd = np.sqrt(float(variance) * np.array(weights or (1,) * size))
        return np.rint((rng.normal(size=size) * sd).astype(np.float32)).astype(np.int64)

    return sample


BUGS: dict[str, tuple[object, str, Callable[[Any], Any], str]] = {
    "single precision": (site_steps, "sample_weighted", single, "bit"),
    "one site's noise is missing": (
        site_steps.SiteSteps, "_release",
        lambda real: lambda site, *rest: (
            site._recorded(*rest[:2]) if site.me == "s1" else real(site, *rest)
        ), "s1",
    ),
    "the weights are left out": (
        site_steps, "sample_weighted",
        lambda real: lambda variance, _, *rest: real(variance, (), *rest), "weight 2",
    ),
    "all sites draw the same": (
        site_steps, "seeded_random", lambda real: lambda seed: real(bytes(32)), "with",
    ),
    "numbers are drawn in pairs": (
        site_steps, "sample_weighted",
        lambda real: lambda *what: np.repeat(real(*what)[::2], 2)[: what[2]], "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_wrong_noise_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, name, make, worst = BUGS[bug]
    replaced(monkeypatch, target, name, make)
    found = noise()
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert any(worst in test for test in found.finding.details["worst"])


def test_the_same_noise_in_two_rounds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(
        monkeypatch, site_steps.SiteSteps, "_recorded",
        lambda real: lambda site, *rest: (
            real(site, *rest) and hashlib.sha256(site.me.encode()).digest()
        ),
    )  # fmt: skip
    found = noise(ROUNDS, placement="round")
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert all("round" in test and "with" in test for test in found.finding.details["worst"])


# --- canaries -------------------------------------------------------------------------------------


def canaries(
    epsilon: float = 1.0, method: dict[str, Any] | None = None, **privacy: Any
) -> Attacked:
    found = attacked(
        tables(3, 12, rows=100), "canaries", method or {"name": "moments"},
        privacy=SUM | {"epsilon": epsilon} | privacy,
    )  # fmt: skip
    assert found.finding is not None and found.control is not None
    assert found.control.details["claim"] == epsilon
    return found


@pytest.mark.parametrize(
    ("epsilon", "verdict"), [(1.0, Verdict.NO_LEAK_FOUND), (8.0, Verdict.INCONCLUSIVE)]
)
def test_one_run_does_not_exceed_the_claim(epsilon: float, verdict: Verdict) -> None:
    """Even if all guesses are right, the bound is less than 2.6: no evidence about epsilon 8."""
    found = canaries(epsilon)
    assert found.verdict is verdict and found.finding is not None and found.control is not None
    assert found.finding.value < 1 and found.finding.details["guesses"] > 20
    assert (found.control.value > 1) == (epsilon == 1.0)
    assert ("right guesses bound epsilon by" in found.why) == (epsilon == 8.0)


def test_without_noise_a_claim_that_no_guesses_refute_is_not_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replaced(monkeypatch, site_steps, "add_noise", lambda _: lambda *what: None)
    found = canaries(8.0)
    assert found.verdict is Verdict.INCONCLUSIVE and found.finding is not None
    assert found.finding.details["correct"] == found.finding.details["guesses"]
    assert "below the claim" in found.finding.failed
    assert found.finding.details["epsilon_low"] == found.finding.details["epsilon_best"] < 2.7


def test_one_run_without_noise_exceeds_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, site_steps, "add_noise", lambda _: lambda *what: None)
    found = canaries()
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.details["correct"] == found.finding.details["guesses"]


@pytest.mark.neural
@pytest.mark.parametrize("noise", [True, False])
def test_one_run_of_a_network(noise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    method = {"name": "torch_module", "outcome": "x0", "module_settings": {"hidden": [8]},
              "optimiser": "sgd", "learning_rate": 0.01, "rounds": 3}  # fmt: skip
    if not noise:
        replaced(monkeypatch, site_steps, "add_noise", lambda _: lambda *what: None)
    found = canaries(method=method, placement="round")
    assert found.verdict is (Verdict.NO_LEAK_FOUND if noise else Verdict.LEAK)


# --- keys and masks -------------------------------------------------------------------------------


def keys(protocol: str = "masked", method: dict[str, Any] | None = None) -> Attacked:
    found = attacked(
        tables(3, 2), "keys_and_masks", method or {"name": "moments"}, protocol=protocol
    )
    if found.finding is not None:
        print(found.finding.details)
        assert found.control is not None and set(found.control.details.values()) == {1}
    return found


@pytest.mark.parametrize("protocol", ["masked", "additive", "paillier", "threshold_paillier"])
def test_no_key_or_mask_is_used_twice(protocol: str) -> None:
    found = keys(protocol)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.value == 0


def test_masks_of_many_rounds_differ() -> None:
    found = keys(method={"name": "notears_admm", "rounds": 10})
    assert found.verdict is Verdict.NO_LEAK_FOUND


def test_in_clear_there_is_nothing_to_use_twice() -> None:
    assert keys("plain").verdict is Verdict.NOT_APPLICABLE


def short_key(real: Any) -> Any:
    """A generator of a site's secrets that knows 2^12 of them."""

    def advertise(state: Any, context: Any) -> Any:
        secrets = (int.from_bytes(context.random(2), "little") % 4096 for _ in range(3))
        first, later, own = (secret.to_bytes(32, "little") for secret in secrets)
        public = masks.PublicKeys(
            masks.public_key(first), masks.public_key(later), masks.commit(own)
        )
        statement = masks.sign_statement(context, "advertise", public.to_plain())
        private = {"round": context.round, "first": first, "later": later, "self": own}
        return {"advertised": private}, {"keys": statement}

    return advertise


KEYS: dict[str, tuple[object, str, Callable[[Any], Any], str]] = {
    "short secrets": (masked_site, "advertise", short_key, "guessed keys"),
    "a nonce used twice": (
        masks, "seal_shares",
        lambda real: lambda *what: real(*what[:-1], bytes), "repeated nonces",
    ),
    "the label of a sum left out": (
        masks, "seed", lambda real: lambda key, label: real(bytes(32), b""), "masks used twice",
    ),
    "no mask": (masks, "mask", lambda real: lambda *what: None, "unmasked vectors"),
}  # fmt: skip


@pytest.mark.parametrize("bug", KEYS)
def test_keys_and_masks_used_wrongly_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, name, make, kind = KEYS[bug]
    replaced(monkeypatch, target, name, make)
    if bug == "no mask":
        replaced(monkeypatch, masks, "unmask", make)
    found = keys(method={"name": "notears_admm", "rounds": 4})
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.details[kind] > 0


def test_equal_ciphertexts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sites have the same number of records, and here also the same randomisers."""
    replaced(
        monkeypatch, cryptosystem, "_draw",
        lambda real: lambda key, count, _, short: real(key, count, lambda n: bytes([1] * n), short),
    )  # fmt: skip
    found = keys("paillier")
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.details["repeated values"] > 0


def test_without_one_kind_the_control_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_and_masks, "_short_secrets", frozenset)
    found = attacked(tables(3, 2), "keys_and_masks", {"name": "moments"})
    assert found.verdict is Verdict.INCONCLUSIVE and found.control is not None
    assert found.control.details["masks used twice"] == 1


# --- neighbours -----------------------------------------------------------------------------------

COLUMNS = {
    "age": {"type": "continuous", "low": 18, "high": 100},
    "crp": {"type": "continuous", "low": 0.5, "high": 200, "transform": "log"},
    "sex": {"type": "binary"},
    "stage": {"type": "categorical", "levels": ["a", "b", "c"]},
}
TYPICAL = {
    "age": COLUMNS["age"] | {"typical": [40, 70]},
    "crp": COLUMNS["crp"] | {"typical": [2, 20]},
    "sex": COLUMNS["sex"] | {"typical": 0.4},
    "stage": COLUMNS["stage"],
}
LOGISTIC = {
    "name": "gradient", "outcome": "sex", "predictors": ["age", "crp"], "family": "binomial",
}  # fmt: skip


def reached(method: dict[str, Any], columns: Any = COLUMNS, **privacy: Any) -> float:
    raw = {
        "title": "Neighbours", "sites": {"max_rows": 100}, "columns": columns, "method": method,
        "release": {"min_sites": 2, "min_records": 1}, "privacy": SUM | privacy,
    }  # fmt: skip
    nobody = {name: pd.DataFrame(columns=[*COLUMNS, "id"]) for name in ("s0", "s1")}
    planned = plan_job(parse_job(raw), nobody)
    return worst_neighbours(planned, rounds_of(planned), seed=1).reached


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize(
    ("method", "settings"),
    [({"name": "moments"}, {}), ({"name": "moments"}, {"record_norm": 1.0}),
     ({"name": "moments"},
      {"person": "id", "person_pinned": True, "records_per_person": 3, "person_norm": 1.5}),
     ({"name": "moments"}, {"columns": TYPICAL}),
     ({"name": "moments"},
      {"columns": TYPICAL, "person": "id", "person_pinned": True, "records_per_person": 3,
       "person_norm": 0.6}),
     (LOGISTIC, {"placement": "round"})],
)  # fmt: skip
def test_neighbours_reach_the_promised_sensitivity(
    method: dict[str, Any], settings: dict[str, Any], adjacency: str
) -> None:
    assert 0.95 < reached(method, adjacency=adjacency, **settings) <= 1


def test_neighbours_exceed_a_sensitivity_that_does_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replaced(monkeypatch, design_matrix, "clip_rows", lambda _: lambda values, clip: values)
    assert reached({"name": "moments"}, record_norm=0.5) > 2
    replaced(
        monkeypatch, design_matrix, "clip_whole",
        lambda _: lambda values, clip: np.column_stack([np.full(len(values), 0.2), values]),
    )  # fmt: skip
    assert reached({"name": "moments"}, TYPICAL) > 2


def test_a_person_exceeds_a_limit_that_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, design_matrix, "clip_persons", lambda _: lambda values, *more: values)
    limited = {"person": "id", "records_per_person": 3, "person_norm": 1.0}
    assert reached({"name": "moments"}, **limited) > 2
