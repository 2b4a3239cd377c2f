"""What refusals tell about the records of one site.

A site refuses an exact job if its records do not fit: if a value is no declared level, if it has
more rows than `max_rows`, if more than half of a column's values lie outside the bounds. It sends
one code for all of these reasons, "records". So each answer is one bit, and the coordinator writes
the question:

*levels*: a job that declares a column without one level is refused if the site has that level. (A
column keeps at least two levels: another name replaces the level, if needed.)
*rows*: a bisection of `max_rows` finds the site's number of rows.
*medians*: a job with the bounds [b, high] of a column is refused if the median is below b, so a
bisection finds the median.

The attacker asks about one site, the first one; the other sites are asked too, as in any job. It
starts with the questions whose answers are bits of their own. A code other than "records" says
nothing ("policy" depends on public facts only). Without such a code, a site that consents says
that its records fit. Under [privacy] no code should depend on the records: there the attacker
believes consents only if it saw the code "records" at least once.

The number is that of bits: of the levels, the right answers without the wrong ones; of an interval,
log2 of how much shorter it became, if it contains the truth. Every answer counts as a bit, as if
both were equally likely before. The rules promise no more than `max_refusals` + `max_unreleased`
bits in a period without noise, which is the limit, and none with noise.

What the result does not show: questions about values of records (`job_differencing`); what several
sites' answers tell about one person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import log2
from typing import Any, ClassVar

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.deployment import changed_job
from secagg.audits.views import View, Who
from secagg.contracts import SiteRecords, Variable
from secagg.core.identity import COORDINATOR
from secagg.errors import RecordsRefusal
from secagg.jobs.columns import Continuous, Number
from secagg.jobs.data_sources import as_policy
from secagg.privacy.policy.site_policy import policy_of

_RESOLUTION = 2.0**-11  # of a median, scaled
_JOBS = 60
_ENOUGH = 24  # answers, after which no bisection goes on: the rules allow 15
_NO_LEVEL = "no such level"

Level = tuple[str, str]


@dataclass
class Guess:
    """What the attacker believes about one site.

    levels: whether each (column, level) exists there, if it was told
    rows: more than the first number and at most the second; medians: by column, likewise, scaled
    asked, refused: number of jobs, and of those that the site refused because of its records
    """

    site: str
    levels: dict[Level, bool] = field(default_factory=dict)
    rows: tuple[float, float] = (0, 0)
    medians: dict[str, tuple[float, float]] = field(default_factory=dict)
    asked: int = 0
    refused: int = 0


class _Oracle:
    """One site's answers. depends: whether they depend on its records, as far as one can tell."""

    def __init__(self, view: View) -> None:
        assert view.ask is not None
        self._ask, self.site = view.ask, view.sites[0]
        self.asked = self.told = self.refused = 0
        self.depends = not view.planned.public.noise

    def fits(self, changes: Mapping[str, Any]) -> bool | None:
        """Return whether the site's records fit a job of moments; None if it does not say so."""
        if self.asked >= _JOBS:
            return None
        self.asked += 1
        refused = self._ask({"method": {"name": "moments"}} | dict(changes)).refused
        code = refused.get(self.site)
        if COORDINATOR in refused or code not in (None, RecordsRefusal.code):
            return None
        self.told += 1
        self.refused += code is not None
        self.depends |= code is not None
        return code is None

    def bisected(
        self, low: float, high: float, resolution: float, above: Callable[[float], bool | None]
    ) -> tuple[float, float]:
        """Return a part of the interval (low, high] that contains a number, by bisection.

        above: returns whether the number is above another one; None ends the search
        """
        while high - low > resolution and self.told < _ENOUGH:
            middle = low + resolution * ((high - low) / resolution // 2)
            answer = above(middle)
            if answer is None:
                break
            low, high = (middle, high) if answer else (low, middle)
        return low, high


class RefusalOracle(Attack):
    """Ask, and read the codes."""

    name: ClassVar[str] = "refusal_oracle"
    title: ClassVar[str] = "What refusals of jobs tell about the records of one site"
    source: ClassVar[str] = "the module's text"
    knows: ClassVar[str] = "the job"
    views: ClassVar[tuple[Who, ...]] = (Who.DISHONEST,)
    metric: ClassVar[str] = "existence_bits"
    meaning: ClassVar[str] = "bits about one site: levels that exist there, its rows, its medians"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        return "the sites cannot be asked" if view.ask is None else ""

    def limit(self, view: View) -> Limit:
        """Return the number of bits that the rules allow."""
        if view.planned.public.noise:
            return Limit(0)
        rules = policy_of(as_policy(view.planned.job.release))
        return Limit(rules.max_refusals + rules.max_unreleased)

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        """Ask about levels, then rows, then medians."""
        oracle, job = _Oracle(view), view.planned.job
        guess, columns = Guess(oracle.site), changed_job(job, {})["columns"]
        for name, level in _levels(view):
            levels = [_NO_LEVEL if each == level else each for each in _declared(view, name)]
            fits = oracle.fits({"columns": columns | {name: columns[name] | {"levels": levels}}})
            if fits is not None:
                guess.levels[name, level] = not fits
        most = job.sites.max_rows
        guess.rows = oracle.bisected(
            0, most, 1, lambda r: _not(oracle.fits({"sites.max_rows": int(r)}))
        )
        for variable in view.planned.public.variables:
            column = job.columns[variable.column]
            if isinstance(column, Continuous) and column.transform == "none":
                guess.medians[variable.column] = _median(oracle, columns, variable)
        if not oracle.depends:  # then consents say nothing
            guess = Guess(guess.site, rows=(0, most))
        guess.asked, guess.refused = oracle.asked, oracle.refused
        return guess

    def score(self, guess: Guess, view: View, truth: Truth) -> Finding:
        """Return the number of bits; details: of each kind, and the share of the levels' bits."""
        rows = truth.sites[guess.site]
        true = {level: _exists(view, rows, level) for level in _levels(view)}
        right = sum(true[level] == there for level, there in guess.levels.items())
        of_levels = max(0, right - (len(guess.levels) - right))
        most, (above, at_most) = view.planned.job.sites.max_rows, guess.rows
        n, of_rows, of_medians = len(rows.complete), 0.0, 0.0
        if above < n <= at_most:
            of_rows = log2(most / (at_most - above))
        for name, (low, high) in guess.medians.items():
            position = [v.column for v in view.planned.public.variables].index(name)
            values = np.sort(rows.values[:, position])
            # The site refuses if more than half of its values are below the bound.
            if len(values) and low <= values[len(values) // 2] <= high:
                of_medians += log2(2 / (high - low))
        bits = of_levels + of_rows + of_medians
        details: dict[str, Any] = {
            "site": guess.site, "asked": guess.asked, "refused": guess.refused,
            "level_bits": of_levels, "levels": len(true), "row_bits": of_rows,
            "median_bits": of_medians,
        }  # fmt: skip
        if true:
            details["share_of_level_bits"] = of_levels / len(true)
        return Finding.exact(float(bits), 0.0, **details)


def _levels(view: View) -> list[Level]:
    """Return all levels of the job's columns."""
    return [(name, level) for name in view.planned.job.columns for level in _declared(view, name)]


def _declared(view: View, name: str) -> tuple[str, ...]:
    column = view.planned.job.columns[name]
    return () if isinstance(column, Number) else column.levels


def _exists(view: View, rows: SiteRecords, level: Level) -> bool:
    """Return whether one of a site's records has a level."""
    name, text = level
    of_column = [j for j, v in enumerate(view.planned.public.variables) if v.column == name]
    ones = rows.values[:, of_column] > 0  # one column for each level but the first
    position = _declared(view, name).index(text)
    return bool((~ones.any(axis=1) if position == 0 else ones[:, position - 1]).any())


def _median(oracle: _Oracle, columns: Mapping[str, Any], variable: Variable) -> tuple[float, float]:
    """Return an interval that contains the median, scaled, by raising the lower bound."""

    def above(b: float) -> bool | None:
        low, name = variable.midpoint + variable.half_range * b, variable.column
        return oracle.fits({"columns": {**columns, name: columns[name] | {"low": low}}})

    return oracle.bisected(-1, 1, _RESOLUTION, above)


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer
