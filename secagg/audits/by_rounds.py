"""Attacks on the first sums of a run: how much a coordinator knows after each of them.

The job and its control are run once, as in `secagg.audits.audit`. Then each attack gets the view
after the first r sums of the method, for several r: the coordinator's messages up to then, the
opened sums, and the sites' frames if they can be read. It has no result. The control is cut in the
same way, so it says whether r sums are enough where the leak is certain.

A coordinator that follows the protocol sends messages that are functions of the sums before, so
the first r sums of a run are those of a run that ends there. An attack that reads more of a run, or
asks the sites, is refused, because its view after r sums would not be that of such a run.

What counts as a sum: each that the method opened, in its order. For NOTEARS-ADMM, the first is the
count with the columns' variances, and the responses follow. The count of records that comes first
in every run is not counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from secagg.audits.audit import Attacked, both_runs, judged, tasks_of
from secagg.audits.audited_run import in_memory, split
from secagg.audits.catalogue import ATTACKS, make_attacks
from secagg.audits.outcomes import attack_once
from secagg.errors import UsageError
from secagg.jobs.job import Job


def check_from_sums_only(names: Sequence[str]) -> None:
    """Refuse an attack that reads more of a run than its sums. Raises `UsageError`."""
    known = [attack.name for attack in make_attacks(list(ATTACKS)) if attack.from_sums_only]
    for name in names:
        if name not in known:
            what = f"{name} reads more of a run than its sums, so it has no view after some of them"
            advice = f"Name only {', '.join(known)}, or leave out rounds."
            raise UsageError("attacks.rounds", what, advice)


def audit_by_rounds(
    job: Job,
    tables: Mapping[str, pd.DataFrame],
    *,
    attacks: Sequence[str],
    rounds: Sequence[int],
    seed: int,
    set_aside: float,
) -> dict[int, list[Attacked]]:
    """Return what each attack found after the first sums, by their number.

    rounds: numbers of sums; those that are not below the number of all sums are left out, and the
        last one found is that of all sums
    Raises what `secagg.run` raises, and `UsageError` for an attack that reads more than sums.
    """
    check_from_sums_only(attacks)
    job = in_memory(job)
    kept, aside = split(tables, set_aside, np.random.default_rng([seed, 0]), job.privacy)
    with tempfile.TemporaryDirectory(prefix="secagg-audit-") as scratch:
        run, control = both_runs(job, kept, aside, seed, scratch)
    total, found = len(run.view.rounds), dict[int, list[Attacked]]()
    for r in [*sorted({r for r in rounds if r < total}), total]:
        planted = None if control is None else control.first(r)
        found[r] = [
            row
            for attack, who in tasks_of(make_attacks(attacks), ())
            for row in judged(
                attack, who, attack_once(attack, who, run.first(r), planted, seed), {}
            )
        ]
    return found
