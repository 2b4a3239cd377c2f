"""The laws of `masked`'s costs: what grows with what, fitted to sessions that ran.

Each step's seconds and bytes are a sum of terms that follow from the protocol, with factors that
are fitted: n sites, k neighbours, t shares that recover a secret, l lost sites. The factors are at
least 0, and the relative errors are least in squares. A projection is such a sum at other n. It
takes k and t from the real plan of so many sites, and the seconds that finding this plan took.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.harness import number, section, size, table, timed
from benchmarks.protocols.sessions import ALONE, COHORT, COORDINATOR, SETUP, SUM, Cost
from secagg.protocols.masked.graph import plan_graph
from secagg.protocols.masked.protocol import FAILURE_LOG2, GRINDING_LOG2, Masked
from secagg.reports.svg.xy_chart import Axis, xy_picture

FIRST, LATER = "set-up and first sum", "a later sum"
PROJECTED = ((10_000, 0.1), (100_000, 0.1), (10_000, 0.01), (100_000, 0.01))
TERMS = {
    (ALONE, "plan"): ("plan",), (ALONE, "consent"): ("1", "n"), (ALONE, "advertise"): ("1",),
    (ALONE, "share"): ("1", "n", "k", "k t"), (ALONE, "mask"): ("1", "n", "k"),
    (ALONE, "agree"): ("1", "n"), (ALONE, "unmask"): ("1", "n", "k"),
    (COORDINATOR, "consent"): ("1", "n", "n n"), (COORDINATOR, "advertise"): ("1", "n"),
    (COORDINATOR, "share"): ("1", "n", "n n", "n k"),
    (COORDINATOR, "mask"): ("1", "n", "n n", "n k"), (COORDINATOR, "agree"): ("1", "n", "n n"),
    (COORDINATOR, "unmask"): ("1", "n", "n n", "n k", "n t t", "l k"),
}  # fmt: skip
"""What a step's seconds grow with, from what it does: each term is a product of numbers.

n: signatures and names of all sites. k: key agreements and sealed shares. k t: the polynomials of
the shares. n n: all sites' names or signed statements, copied to each site. n t t: the weights that
recover each site's secret. plan: the search for the smallest safe number of neighbours.
"""
BYTES = ("1", "n", "k")


@dataclass(frozen=True)
class Measured:
    """One session that ran."""

    sites: int
    lost: int
    values: int
    dropping: float
    degree: int
    threshold: int
    planning: float
    costs: tuple[Cost, ...]
    peak: int

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Measured:
        return cls(**{**raw, "costs": tuple(Cost(**cost) for cost in raw["costs"])})

    @property
    def case(self) -> tuple[int, int, int, float]:
        return self.sites, self.lost, self.values, self.dropping

    def of_step(self, role: str, part: str, phase: str) -> Cost:
        """Return the cost of one party of this role in a step, over all of its requests.

        The first sum of values belongs to FIRST: there sites derive the keys of all later sums.
        """
        names = {FIRST: (SETUP, COHORT, f"{SUM} 1"), LATER: (f"{SUM} 2",)}[part]
        found = [c for c in self.costs
                 if c.role == role and c.part in names and _step(c.phase) == phase]  # fmt: skip
        parties = max((cost.parties for cost in found), default=1)
        seconds, sent, received = (
            sum(getattr(c, what) for c in found) / parties
            for what in ("seconds", "sent", "received")
        )
        if phase == "plan":
            seconds = self.planning
        return Cost(part, phase, role, 1, seconds, round(sent), round(received))

    @cached_property
    def numbers(self) -> dict[str, float]:
        return _numbers(self.sites, self.degree, self.threshold, self.lost, self.planning)

    def total(self, role: str, part: str, what: str) -> float:
        """Return the seconds or bytes of one party of this role."""
        return float(sum(getattr(self.of_step(role, part, phase), what)
                         for phase in _phases(role, part)))  # fmt: skip


def _step(phase: str) -> str:
    return {"start": "consent", "decode": "unmask"}.get(phase, phase)


def _phases(role: str, part: str) -> list[str]:
    return [p for r, p in TERMS if r == role and (part == FIRST or p in ("mask", "unmask"))]


def _numbers(
    sites: int, degree: int, threshold: int, lost: int, planning: float
) -> dict[str, float]:
    # Bits of each number in the ring: |values| are below 2^3 with 20 bits after the point.
    bits = 32 if sites < 2 ** (31 - 20 - 3) else 64
    return {
        "1": 1.0,
        "n": sites,
        "k": degree,
        "t": threshold,
        "l": lost,
        "plan": planning,
        "b": bits,
    }


@dataclass(frozen=True)
class Law:
    """A sum of terms, each with its factor."""

    terms: tuple[str, ...]
    factors: tuple[float, ...]

    @classmethod
    def fitted(cls, terms: tuple[str, ...], at: Sequence[Mapping[str, float]],
               values: Sequence[float]) -> Law:  # fmt: skip
        """Return the law with the least relative errors."""
        rows = [[_term(term, one) / value for term in terms]
                for one, value in zip(at, values, strict=True) if value > 0]  # fmt: skip
        matrix = np.array(rows)
        scale = np.maximum(matrix.max(axis=0), 1e-300)
        factors, _ = nnls(matrix / scale, np.ones(len(rows)))
        return cls(terms, tuple(factors / scale))

    def __call__(self, numbers: Mapping[str, float]) -> float:
        pairs = zip(self.factors, self.terms, strict=True)
        return float(sum(factor * _term(term, numbers) for factor, term in pairs))

    def text(self, numbers: Mapping[str, float]) -> str:
        """Return the terms that are at least 5 % at these numbers."""
        shares = {term: factor * _term(term, numbers) / max(self(numbers), 1e-300)
                  for factor, term in zip(self.factors, self.terms, strict=True)}  # fmt: skip
        return " + ".join(
            f"{term.replace('n n', 'n²').replace('t t', 't²')} ({share:.0%})"
            for term, share in shares.items()
            if share >= 0.05
        )


def _term(term: str, numbers: Mapping[str, float]) -> float:
    return float(np.prod([numbers[name] for name in term.split()]))


@dataclass(frozen=True)
class Laws:
    """The laws of all steps, fitted to the sessions."""

    measured: Sequence[Measured]

    def of(self, role: str, part: str, phase: str, what: str = "seconds") -> Law:
        if what == "seconds":
            terms = TERMS[role, phase] if phase != "unmask" or part == FIRST else ("1",)
        else:
            terms = ("1", "b") if (phase, what) == ("mask", "sent") and role == ALONE else BYTES
        values = [getattr(one.of_step(role, part, phase), what) for one in self.measured]
        return Law.fitted(terms, [one.numbers for one in self.measured], values)

    def total(self, role: str, part: str, numbers: Mapping[str, float], what: str) -> float:
        first = self.measured[0]
        steps = [p for p in _phases(role, part) if getattr(first.of_step(role, part, p), what)]
        return sum(self.of(role, part, phase, what)(numbers) for phase in steps)


def tables(measured: Sequence[Measured]) -> None:
    """Print the measurements, the laws and the projections."""
    values = measured[0].values
    section(
        f"Whole sessions of {values:,} values",
        f"Processor seconds of one party. *First*: {FIRST}, with the keys of later sums.",
        table(
            ("sites", "lost", "k", "site: first s", "later ms", "sends", "receives", "later sends",
             "receives", "coordinator: first s", "later s", "carries", "later", "peak memory"),
            [_row(one) for one in measured],
        ),
    )  # fmt: skip
    laws, largest = Laws(measured), max(measured, key=lambda one: (one.sites, one.lost))
    section(
        f"Each step with {largest.sites:,} sites, {largest.lost} lost",
        "Processor seconds of one party, measured and by the law; and the terms of the law.",
        table(("party", "step", "s", "fitted s", "terms"), list(_steps(laws, largest))),
    )
    section(
        "Projections",
        "By the laws. None of these sizes was run.",
        table(
            ("sites", "dropping", "k", "t", "site: first s", "later s", "receives",
             "later receives", "coordinator: first s", "later s", "carries", "later",
             "shares at once"),
            [_projection(laws, *case) for case in PROJECTED],
        ),
    )  # fmt: skip


def _row(one: Measured) -> tuple[object, ...]:
    def of(role: str, part: str, what: str = "seconds") -> float:
        return one.total(role, part, what)

    return (
        f"{one.sites:,}", one.lost, one.degree, number(of(ALONE, FIRST)),
        number(1e3 * of(ALONE, LATER)),
        *(size(of(ALONE, part, what)) for part in (FIRST, LATER) for what in ("sent", "received")),
        number(of(COORDINATOR, FIRST)), number(of(COORDINATOR, LATER)),
        *(size(of(COORDINATOR, part, "sent") + of(COORDINATOR, part, "received"))
          for part in (FIRST, LATER)),
        size(one.peak),
    )  # fmt: skip


def _steps(laws: Laws, one: Measured) -> Iterator[tuple[object, ...]]:
    for role, name in ((ALONE, "site"), (COORDINATOR, COORDINATOR)):
        for part in (FIRST, LATER):
            for phase in _phases(role, part):
                seconds = one.of_step(role, part, phase).seconds
                if not seconds:
                    continue
                law = laws.of(role, part, phase)
                step = phase if part == FIRST else "later sum"
                if part == LATER and phase == "unmask":
                    continue
                yield name, step, number(seconds), number(law(one.numbers)), law.text(one.numbers)


@lru_cache
def projected(sites: int, dropping: float) -> dict[str, float]:
    """Return the numbers of a session with so many sites, in which as many as planned are lost."""
    settings = sites, Masked().colluding, dropping, FAILURE_LOG2 - GRINDING_LOG2
    planning, plan = timed(lambda: plan_graph(*settings))
    return _numbers(sites, plan.degree, plan.threshold, int(dropping * sites), planning)


def _projection(laws: Laws, sites: int, dropping: float) -> tuple[object, ...]:
    at = projected(sites, dropping)

    def of(role: str, part: str, what: str = "seconds") -> float:
        return laws.total(role, part, at, what)

    carried = [sites * (of(ALONE, part, "sent") + of(ALONE, part, "received"))
               for part in (FIRST, LATER)]  # fmt: skip
    return (
        f"{sites:,}", dropping, f"{at['k']:,}", f"{at['t']:,}",
        number(of(ALONE, FIRST)), number(of(ALONE, LATER)),
        *(size(of(ALONE, part, "received")) for part in (FIRST, LATER)),
        number(of(COORDINATOR, FIRST)), number(of(COORDINATOR, LATER)), *map(size, carried),
        size(sites * laws.of(ALONE, FIRST, "share", "sent")(at)),
    )  # fmt: skip


def figure(measured: Sequence[Measured], path: Path) -> None:
    """Draw the seconds of the first sum by the number of sites: measured points, fitted lines."""
    usual = [one for one in measured if one.dropping == 0.1]
    most = {one.sites: one for one in sorted(usual, key=lambda one: one.lost)}
    laws, lines = Laws(measured), []
    sizes = np.unique(np.geomspace(10, 100_000, 33).round().astype(int))  # no points are drawn
    for role, name in ((ALONE, "a site"), (COORDINATOR, "the coordinator")):
        points = [(float(n), one.total(role, FIRST, "seconds")) for n, one in sorted(most.items())]
        fit = [
            (float(n), laws.total(role, FIRST, projected(int(n), 0.1), "seconds")) for n in sizes
        ]
        lines += [(f"{name}, measured", points), (f"{name}, by the laws", fit)]
    x, y = Axis("sites", 10, 1e5, log=True), Axis("processor seconds", 1e-2, 1e7, log=True)
    picture = str(xy_picture("Cost of the set-up and the first sum", lines, x, y))
    style = (
        "<style>text{font:12px system-ui,sans-serif;fill:#222}.name{font-weight:600}"
        ".grid{stroke:#ddd}.axis{stroke:#555}.line{stroke:#0b5c8c;stroke-width:1.8}"
        ".point{fill:#0b5c8c}</style>"
    )
    at = picture.index(">")
    opened = picture[:at] + ' xmlns="http://www.w3.org/2000/svg">' + style
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'{opened}<rect width="100%" height="100%" fill="#fff"/>{picture[at + 1 :]}\n', "utf-8"
    )
