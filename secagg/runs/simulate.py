"""The result of a job without its parties, for simulations: encode, add and decode each round.

`secagg.run` plays every party, with keys, signatures, rules, ledgers and a log, which takes much
longer than the sums. A study of a method over thousands of rounds holds all records and needs only
the result. The sums add the same integers as under any protocol, so the result has the same bits as
that of `secagg.run` with the same `random`.

Nothing here is protected, checked by a policy, entered in a ledger or logged. Jobs with noise are
refused, because their noise depends on rules and ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from secagg.contracts import (
    Body,
    Method,
    PublicFacts,
    RecordCount,
    Result,
    SiteRecords,
    State,
    Update,
)
from secagg.core import ring
from secagg.core.randomness import RandomBytes, seeded_random, system_random
from secagg.core.threads import single_threaded_blas
from secagg.errors import CapabilityError
from secagg.jobs.data_sources import Data
from secagg.jobs.job import Job, read_job
from secagg.jobs.registry import settings_of
from secagg.sessions.fixed_point import decode, encode
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job
from secagg.sessions.sum_plan import SumPlan


def simulate(
    job: Job | Mapping[str, object] | str | Path,
    data: Data | None = None,
    *,
    overrides: Mapping[str, str] | None = None,
    random: RandomBytes = system_random,
    progress: Callable[[int], None] = lambda _: None,
) -> Result:
    """Return only the first result of `simulate_sites`."""
    return simulate_sites(job, data, overrides=overrides, random=random, progress=progress)[0]


def simulate_sites(
    job: Job | Mapping[str, object] | str | Path,
    data: Data | None = None,
    *,
    overrides: Mapping[str, str] | None = None,
    random: RandomBytes = system_random,
    progress: Callable[[int], None] = lambda _: None,
    variant: Callable[..., Method] | None = None,
) -> tuple[Result, dict[str, Result]]:
    """Return the result that `secagg.run` would return, and each site's own result.

    progress: called with the number of finished rounds
    variant: a subclass of the job's method to run in its place, with the same settings
    Raises `UsageError` as `run` does; `CapabilityError` for a job with noise.
    """
    planned = plan_job(read_job(job, overrides), data)
    if variant is not None:
        planned = replace(planned, method=variant(**settings_of(planned.method)))
    return simulate_planned(planned, random=random, progress=progress)


def simulate_planned(
    planned: Planned,
    *,
    random: RandomBytes = system_random,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Result, dict[str, Result]]:
    """Return what `simulate_sites` returns, for a planned job."""
    if planned.private is not None:
        what = "noise is not simulated, because its cost must be entered in ledgers"
        raise CapabilityError("privacy", what, "Use secagg.run.")
    method, public, names = planned.method, planned.public, sorted(planned.public.sites)
    randoms = [seeded_random(random(32)) for _ in names]  # drawn first, as in a session
    rows = [read_records(planned, planned.sources[name]) for name in names]
    memories: list[State] = [{} for _ in names]

    def summed(stage: str, updates: list[Update]) -> Update:
        plan: SumPlan = planned.plans.of(stage)
        vectors = [encode(plan, update) for update in updates]
        return decode(plan, ring.total(vectors, plan.length, plan.ring_bits))[0]

    with single_threaded_blas():
        records = float(sum(len(each.values) for each in rows))
        state, done = method.initial_state(public), 0
        while (following := method.next_request(state)) is not None:
            stage, message = following
            replies = _contributions(planned, stage, rows, message, memories, public, randoms)
            memories = [memory for _, memory in replies]
            total = summed(stage, [update for update, _ in replies])
            state = method.aggregate(state, total, len(names))
            done += 1
            progress(done)
        result = method.result(state, public, RecordCount(records, 0.0))
        if (site_result := planned.facts.site_result) is None:
            return result, {}
        own = {
            name: site_result(memory, public) for name, memory in zip(names, memories, strict=True)
        }
        return result, {name: one for name, one in own.items() if one is not None}


def _contributions(
    planned: Planned,
    stage: str,
    rows: Sequence[SiteRecords],
    message: Body,
    memories: Sequence[State],
    public: PublicFacts,
    randoms: Sequence[RandomBytes],
) -> list[tuple[Update, State]]:
    if (batched := planned.facts.contribute_batched) is not None:
        return batched(stage, rows, message, memories, public, randoms)
    return [
        planned.method.contribute(stage, each, message, memory, public, random)
        for each, memory, random in zip(rows, memories, randoms, strict=True)
    ]
