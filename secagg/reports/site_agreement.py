"""Whether sites agree on a regression's coefficients: Cochran's Q and I squared, in words.

Everything here is computed from the sites' own estimates, which only a simulation shows. Sums over
all sites do not tell whether sites agree; if a run released nothing else, the report says so.

Cochran (1954), The combination of estimates from different experiments. Higgins and Thompson
(2002), Quantifying heterogeneity in a meta-analysis: I squared, and its test-based interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import chi2

from secagg.evidence import numbers as written
from secagg.models.common.coefficient_table import INTERCEPT
from secagg.reports.regression import effect
from secagg.reports.results import Block, Summary, usable

_LEVEL = 0.05  # of each term: Q has little power over few sites, so it is not made smaller
_NORMAL = 1.959964  # of the 95 % interval of I squared
NOT_KNOWN = (
    "Whether the sites agree on these estimates is not known: only sums over all sites were "
    "released, and Cochran's Q needs an estimate with its error from each site."
)
OVERDISPERSED = (
    "Counts that vary more than a Poisson distribution allows can look like this where sites do "
    "not differ."
)


@dataclass(frozen=True)
class Agreement:
    """How far sites agree on one term.

    q, df, p: Cochran's Q of the sites' estimates around their mean, weighted by precision
    i_squared, low, high: share of the variance between estimates that is not chance, and its 95 %
        interval; the ends are nan if it does not exist
    estimates: the terms of the sites, by site
    against: sites whose interval excludes the pooled estimate
    opposite: sites whose interval lies on the other side of no effect than the pooled estimate
    """

    term: str
    q: float
    df: int
    p: float
    i_squared: float
    low: float
    high: float
    estimates: Mapping[str, Summary]
    against: tuple[str, ...]
    opposite: tuple[str, ...]

    @property
    def differ(self) -> bool:
        """Whether the estimates differ by more than chance."""
        return self.p < _LEVEL


def agreements(block: Block) -> list[Agreement]:
    """Return how far sites agree on each term that two or more of them estimate with an error."""
    if not block.usable or block.summary.get("terms") is None:
        return []
    pooled = {t["term"]: t for t in block.summary["terms"] if t["term"] != INTERCEPT}
    found = {name: _sites_terms(block, name) for name in pooled}
    return [
        Agreement(
            name, *(q := heterogeneity(_numbers(of))), *i_squared(*q[:2]), of,
            tuple(_against(pooled[name], of)), tuple(_opposite(pooled[name], of)),
        )
        for name, of in found.items()
        if len(of) > 1
    ]  # fmt: skip


def heterogeneity(estimates: Sequence[tuple[float, float]]) -> tuple[float, int, float]:
    """Return Cochran's Q of estimates with their standard errors, its degrees of freedom, and p."""
    weights = [error**-2 for _, error in estimates]
    mean = sum(w * b for w, (b, _) in zip(weights, estimates, strict=True)) / sum(weights)
    q = sum(w * (b - mean) ** 2 for w, (b, _) in zip(weights, estimates, strict=True))
    df = len(estimates) - 1
    return q, df, float(chi2.sf(q, df))


def i_squared(q: float, df: int) -> tuple[float, float, float]:
    """Return I squared and the ends of its 95 % interval, which is symmetric in the log of H."""
    share = max(0.0, 1 - df / q) if q > 0 else 0.0
    if q > df + 1:
        error = (math.log(q) - math.log(df)) / (2 * (math.sqrt(2 * q) - math.sqrt(2 * df - 1)))
    elif df > 1:
        error = math.sqrt((1 - 1 / (3 * (df - 1) ** 2)) / (2 * (df - 1)))
    else:
        return share, math.nan, math.nan
    log_h = max(0.0, math.log(q / df) / 2) if q > 0 else 0.0
    ends = (log_h - _NORMAL * error, log_h + _NORMAL * error)
    low, high = (max(0.0, 1 - math.exp(-2 * end)) for end in ends)
    return share, low, high


def in_words(each: Agreement) -> str:
    """Return the numbers of one term, to stand below its panel."""
    text = f"I² {_percent(each.i_squared)}"
    if math.isfinite(each.low):
        text += f" ({_percent(each.low)} to {_percent(each.high)})"
    p = written.p_value(each.p)
    return f"{text}, Q {written.fixed(each.q, 1)} on {each.df} df, p {p if '<' in p else '= ' + p}"


def in_short(block: Block) -> str:
    """Return in which terms sites differ, for the first lines of a report; "" if in none."""
    differ = [each.term for each in agreements(block) if each.differ]
    if not differ:
        return ""
    caution = f" {OVERDISPERSED}" if _may_be_overdispersed(block) else ""
    return f"Sites differ in {written.listing(differ)}.{caution}"


def sentences(block: Block) -> list[str]:
    """Return whether sites agree: a sentence for each term that differs, one for all others."""
    if not block.alone:
        return [NOT_KNOWN] if block.usable and _has_errors(block.summary) else []
    tested = agreements(block)
    if not tested:
        return []
    compared = {site for each in tested for site in each.estimates}
    left_out = sorted(block.alone.keys() - compared)
    basis = f"{written.counted(len(tested), 'term')}, tested at {_LEVEL:.0%} each".replace(
        "%", " %"
    )
    differ = [_sentence(block, each) for each in tested if each.differ]
    found = differ
    if len(differ) < len(tested):
        others = "other tested term" if differ else "tested term"
        found = [*differ, f"No {others} is found to differ between sites by more than chance "
                 f"({basis})."]  # fmt: skip
    if differ and _may_be_overdispersed(block):
        found = [*found, OVERDISPERSED]
    if not left_out:
        return found
    has = "has" if len(left_out) == 1 else "have"
    text = f"Not compared, although such sites may differ most: {written.listing(left_out)}, which"
    return [*found, f"{text} {has} no estimate."]


def _sentence(block: Block, each: Agreement) -> str:
    """Return what the sites' estimates of a term are, least and largest, against the pooled one."""
    ordered = sorted(each.estimates, key=lambda site: each.estimates[site]["estimate"])
    pooled = next(term for term in block.summary["terms"] if term["term"] == each.term)

    def text(term: Summary) -> str:
        _, estimate, interval = effect(term, block.effect)
        return f"{estimate} ({interval})"

    least, largest = (
        f"{text(each.estimates[site])} at {site}" for site in (ordered[0], ordered[-1])
    )
    found = f"Sites differ in {each.term}: {text(pooled)} over all sites, but {least} and {largest}"
    if each.against:
        found += f". Intervals that exclude the pooled estimate: {written.listing(each.against)}"
    if each.opposite:
        found += f"; effect in the opposite direction: {written.listing(each.opposite)}"
    return f"{found}. {in_words(each)}."


def _may_be_overdispersed(block: Block) -> bool:
    """Whether errors assume that counts vary as their mean: no dispersion was estimated."""
    return block.effect == "rate" and "dispersion" not in block.summary


def _sites_terms(block: Block, name: str) -> dict[str, Summary]:
    """Return a term of each site that estimates it with an error."""
    return {
        site: term
        for site, own in block.alone.items()
        for term in (own["terms"] if usable(own) else ())
        if term["term"] == name and term["std_error"] and math.isfinite(term["std_error"])
    }


def _numbers(terms: Mapping[str, Summary]) -> list[tuple[float, float]]:
    return [(float(term["estimate"]), float(term["std_error"])) for term in terms.values()]


def _against(pooled: Summary, terms: Mapping[str, Summary]) -> Iterator[str]:
    for site, term in terms.items():
        if not term["ci_low"] <= pooled["estimate"] <= term["ci_high"]:
            yield site


def _opposite(pooled: Summary, terms: Mapping[str, Summary]) -> Iterator[str]:
    for site, term in terms.items():
        same_sign = term["estimate"] * pooled["estimate"] > 0
        if not same_sign and not term["ci_low"] <= 0 <= term["ci_high"]:
            yield site


def _has_errors(summary: Mapping[str, Any]) -> bool:
    return any(term["std_error"] is not None for term in summary.get("terms", ()))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
