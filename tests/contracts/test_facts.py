"""What methods state about themselves: missing, misspelt and false facts are found.

Three planted methods stand beside the real ones: one says nothing, one misspells a hook, and some
state what is not true.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.methods.all_methods import SITES, Played, job, planned_of, play, played, records
from support.methods.toy_method import UpperShare

from secagg.contracts import (
    NO_WINDOWS,
    DisclosureKind,
    EqualWeights,
    Method,
    MethodFacts,
    MomentsOnly,
    PublicFacts,
    SingleRecords,
    SiteRecords,
    State,
    Update,
    facts_of,
)
from secagg.core import canonical_encoding
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, seeded_random
from secagg.errors import PolicyRefusal, SecaggError
from secagg.jobs import registry
from secagg.jobs.job import parse_job
from secagg.runs.run import run
from secagg.sessions.planned_job import plan_job

Rows = Sequence[SiteRecords]


# --- a method that says nothing is refused --------------------------------------------------------


class SaysNothing:
    """Everything of a method but its facts."""

    def __init__(self, column: str) -> None:
        self._method = UpperShare(column)

    def __getattr__(self, name: str) -> Any:
        if name == "facts" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._method, name)


class Misspelt(UpperShare):
    """Its hook is called otherwise."""

    def record_weights(self, rows: SiteRecords, message: State, public: PublicFacts) -> Any:
        return (np.ones(len(rows.values)),)

    @property
    def facts(self) -> MethodFacts:
        return replace(super().facts, weights=self.record_weigths)  # type: ignore[attr-defined]


class NoWeights(UpperShare):
    """Leaves out a fact on which security rests."""

    @property
    def facts(self) -> MethodFacts:
        return replace(super().facts, weights=None)  # type: ignore[arg-type]


class FactsInWords(UpperShare):
    """States its facts as a text."""

    facts: ClassVar[str] = "harmless"  # type: ignore[assignment]


class NoDisclosure(UpperShare):
    """Does not say what its sums reveal."""

    disclosure: ClassVar[None] = None  # type: ignore[assignment]


@pytest.mark.parametrize("planted", [SaysNothing, Misspelt, NoWeights, FactsInWords, NoDisclosure])
@pytest.mark.parametrize("policy", ["profile = 10\n", ""])
def test_a_method_without_its_facts_is_refused_before_data_is_read(
    planted: type[Any], policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "make_method", lambda named: planted("x"))
    monkeypatch.setattr("secagg.sessions.planned_job.make_method", lambda named: planted("x"))
    for i, site in enumerate(SITES):
        (tmp_path / f"{site}.csv").write_bytes(b"\xff not a table")  # reading it would be an error
        if policy:
            (tmp_path / f"{site}.policy.toml").write_text(policy)
        assert i < 3
    asked = job("moments") | {"method": {"name": "moments"}}
    asked["sites"] = {"folder": str(tmp_path), "max_rows": 100}
    with pytest.raises(PolicyRefusal) as refused:
        run(asked)
    assert refused.value.exit_code == 3 and "MethodFacts" in refused.value.advice


def test_an_error_in_the_users_settings_stays_this_error() -> None:
    class Wrong(UpperShare):
        @property
        def facts(self) -> MethodFacts:
            raise PlannedError("method.column", "is wrong")

    class PlannedError(SecaggError):
        pass

    with pytest.raises(PlannedError):
        facts_of(Wrong("x"))


def test_every_fact_is_required() -> None:
    """Of these, none has a default: who adds a fact decides for every method."""
    whole: dict[str, Any] = {
        "derivation": __name__, "weights": EqualWeights("."), "reads": MomentsOnly(),
        "windows": NO_WINDOWS, "named_code": (), "network": False, "regression": None,
        "edge_rule": None,
    }  # fmt: skip
    assert MethodFacts(**whole).moments_only
    for fact in whole:
        with pytest.raises(TypeError):
            MethodFacts(**{k: v for k, v in whole.items() if k != fact})
        if fact not in ("regression", "edge_rule"):
            with pytest.raises(TypeError):
                MethodFacts(**{**whole, fact: None})


# --- facts that are not true ----------------------------------------------------------------------


def test_the_named_module_derives_what_all_sums_determine(name: str) -> None:
    facts = played(name).method.facts
    derived = importlib.import_module(facts.derivation).__doc__ or ""
    assert "transcript determines" in derived


def repeats(play_: Played) -> bool:
    """Return whether all contributions are the same with other random numbers of the sites."""
    memories: list[State] = [{} for _ in SITES]
    for asked in play_.rounds:
        for i, update in enumerate(asked.updates):
            again, memories[i] = play_.method.contribute(
                asked.stage.name, play_.rows[i], asked.message, memories[i], play_.public,
                seeded_random(bytes(30) + b"77"),
            )  # fmt: skip
            if canonical_encoding.dumps(again) != canonical_encoding.dumps(update):
                return False
    return True


def test_a_method_that_says_that_rounds_repeat_repeats_them(name: str) -> None:
    reads = played(name).method.facts.reads
    if isinstance(reads, SingleRecords) and reads.repeatable:
        assert repeats(played(name))


def dealt_anew(rows: Rows) -> list[SiteRecords]:
    """Return the same records, dealt out to the sites in another way; sizes stay."""
    order = np.random.default_rng(4).permutation(sum(len(each.values) for each in rows))
    pooled = np.concatenate([each.values for each in rows])[order]
    starts = np.cumsum([0, *(len(each.values) for each in rows)])
    return [
        replace(each, values=pooled[start:end])
        for each, start, end in zip(rows, starts, starts[1:], strict=False)
    ]


def moved_by_dealing(first: Played, second: Played) -> float:
    """Return by how much sums over sites move, relative to their size where it is above 1."""
    assert len(first.rounds) == len(second.rounds)
    return max(
        float(np.max(np.abs(a - b) / np.maximum(np.abs(a), 1), initial=0))
        for one, two in zip(first.rounds, second.rounds, strict=True)
        for field in one.stage.spec
        for a, b in [(total(one.updates, field.name), total(two.updates, field.name))]
    )


def total(updates: Sequence[Update], field: str) -> Array:
    found: Array = np.sum([update[field] for update in updates], axis=0)
    return found


def is_pooled(method: Method) -> bool:
    return method.disclosure.kind is DisclosureKind.POOLED


def test_sums_that_are_called_pooled_do_not_depend_on_who_has_which_record(name: str) -> None:
    """The derivation of `DisclosureKind.POOLED`, for whatever method states it."""
    plan = planned_of(name)
    if not is_pooled(plan.method):
        return
    play_ = played(name)
    assert moved_by_dealing(play_, play(plan, dealt_anew(play_.rows))) < 1e-6


@dataclass(frozen=True)
class FalselyPooled(UpperShare):
    """Says that its sum is pooled, and sends how many sites have more high values than others."""

    disclosure = replace(UpperShare.disclosure, kind=DisclosureKind.POOLED)

    def contribute(
        self, stage: str, rows: SiteRecords, message: State, memory: State, public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:  # fmt: skip
        update, memory = super().contribute(stage, rows, message, memory, public, random)
        return {"high": update["high"] ** 2 % 97}, memory


@dataclass(frozen=True)
class FalselyRepeatable(UpperShare):
    """Says that rounds repeat, and draws which records it counts."""

    def contribute(
        self, stage: str, rows: SiteRecords, message: State, memory: State, public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:  # fmt: skip
        some = np.frombuffer(random(len(rows.values)), np.uint8) < 128
        half = replace(rows, values=rows.values[some])
        return super().contribute(stage, half, message, memory, public, random)


def toy(method: UpperShare) -> tuple[Played, Played]:
    """Return two runs: over the records, and over the same records dealt anew."""
    data = {site: records(i, 40 + i) for i, site in enumerate(SITES)}
    plan = replace(plan_job(parse_job(job("moments")), data), method=method)
    from secagg.sessions.parties import read_records
    from secagg.sessions.rounds import plan_stages

    plan = replace(plan, plans=plan_stages(method, plan.public, (64, 128)))
    rows = [read_records(plan, plan.sources[site]) for site in SITES]
    return play(plan, rows), play(plan, dealt_anew(rows))


def test_the_checks_catch_planted_methods_with_false_facts() -> None:
    honest, again = toy(UpperShare("x"))
    assert moved_by_dealing(honest, again) < 1e-6 and repeats(honest)
    assert moved_by_dealing(*toy(FalselyPooled("x"))) > 1e-6
    assert not repeats(toy(FalselyRepeatable("x"))[0])
