"""Audit every method on small simulated cases, and write docs/audits.md with its pictures.

    python benchmarks/audits/page.py --cache FOLDER [--write] [--jobs N]

Outcomes are kept in FOLDER, so an interrupted run goes on. Without --write, the page is printed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cases import METHODS, job, tables

from secagg.audits.attacks.statistics.identified_share import GROUPS
from secagg.audits.audit import Attacked, audit_job
from secagg.audits.contract import Verdict
from secagg.audits.views import Who
from secagg.core.threads import single_threaded_blas
from secagg.errors import SecaggError
from secagg.jobs.registry import METHODS as REGISTERED
from secagg.reports.audits.page import interval
from secagg.reports.svg.xy_chart import Axis, xy_picture

DOCS = Path(__file__).parents[2] / "docs"
SITES = (3, 4, 8)
FEW_ROWS, ROWS = 15, 80
NOISED = ("moments", "tables", "logistic", "gradient", "one_step")
EPSILON = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5}
ANY_RECORDS = {"min_sites": 3, "min_records": 1}
"""For tables so small that a combination of columns would be zero for all but a few records."""
IN_CLEAR = (
    "clear_contributions", "admm_messages", "hm1_messages", "ep_messages", "gibbs_messages",
)  # fmt: skip
PICTURED = ("moments", "notears_admm", "fedavg", "fedlin_hm1", "logistic")
SIGNS = {
    Verdict.LEAK: "**leak**", Verdict.NO_LEAK_FOUND: "no leak", Verdict.INCONCLUSIVE: "unclear",
}  # fmt: skip
HEAD = """# Audits of all methods

`make audit` writes this page. Every method is run on small simulated cases, and the whole [catalogue of attacks](how-to/audit.md) is tried on each run. Cases this small leak more than studies with many sites and records do: the page shows which attacks exist, and not what your job reveals. For that, run `secagg audit` on your job.
"""  # noqa: E501
SHARES = """
## What the sums identify

The table has the share of each site's means and covariances that the opened sums determine (`identified_share`, protocol `masked`): after one sum of the method, after ten, and after all. One sum of moments over K sites determines about 1/K of them. A share of 1 means that every site's own numbers follow from the sums. *pooled*: the sums do not change if sites exchange records, so they do not say who has which.

\\* an upper bound: the method reads single records, or its sites draw random numbers, and the attacker is assumed to know these. For `sparse_regression` and `sparse_markov`, `gibbs_sums` below has an estimate without this assumption.
"""  # noqa: E501
VERDICTS = """
## Which attacks succeed

Three sites with {rows} records each, a fifth of which takes no part. *leak*: the number exceeds the attack's limit. *no leak*: it does not, and the attack finds the planted leak. *unclear*: no leak was shown, and the attack does not find the planted leak either, or the number is only an upper bound. Attacks that do not apply to a method are left out. Under `plain`, only attacks on messages were tried: there every attack on sums succeeds, too.
"""  # noqa: E501


def main() -> int:
    """Write or print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(METHODS), help="these methods")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    missing = set(REGISTERED) - set(METHODS)
    if missing:
        raise SystemExit(f"benchmarks/audits/cases.py has no settings for {sorted(missing)}")
    began = time.perf_counter()
    with single_threaded_blas():
        text = HEAD + "".join(_shares(given.only, given.cache, given.jobs, write=given.write))
        text += "".join(_verdicts(given.only, given.cache, given.jobs))
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    if given.write:
        (DOCS / "audits.md").write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


def _audit(
    name: str, protocol: str, sites: int, rows: int, cache: Path, jobs: int, **more: Any
) -> Sequence[Attacked]:
    parts = {n: more.pop(n) for n in ("privacy", "release") if n in more}
    print(f"{name}, {protocol}, {sites} sites", file=sys.stderr)
    raw = job(name, protocol, **parts)
    return audit_job(raw, tables(sites, rows), cache=cache, jobs=jobs, **more).attacked


def _shares(names: Sequence[str], cache: Path, jobs: int, *, write: bool) -> Iterator[str]:
    yield SHARES
    yield "\n| method | " + " | ".join(f"K = {K}: 1, 10, all" for K in SITES) + " |\n"
    yield "|---" * (1 + len(SITES)) + "|\n"
    curves: dict[str, Mapping[str, Mapping[str, float]]] = {}
    for name in names:
        cells, bound = [], False
        for K in SITES:
            (found,) = _audit(
                name, "masked", K, FEW_ROWS, cache, jobs, attacks=["identified_share"],
                views=[Who.COORDINATOR], release=ANY_RECORDS,
            )  # fmt: skip
            if found.finding is None:
                cells.append(found.why)
                continue
            if found.finding.details.get("pooled"):
                cells.append("pooled")
                continue
            rounds = found.finding.details["mean_shares"]
            bound |= bool(found.finding.bound)
            cells.append(_cell(rounds))
            if SITES[0] == K:
                curves[name] = rounds
        star = "\\*" if bound else ""
        yield f"| `{name}`{star} | " + " | ".join(cells) + " |\n"
    yield "\nEach cell has means / covariances.\n\n"
    if write:
        yield from _curves({name: curves[name] for name in PICTURED if name in curves})


def _cell(rounds: Mapping[str, Mapping[str, float]]) -> str:
    numbers = sorted(map(int, rounds))
    shown = [n for n in (1, 10) if n in numbers and n < numbers[-1]] + [numbers[-1]]
    return ", ".join("/".join(f"{rounds[str(n)][g]:.2f}" for g in GROUPS) for n in shown)


def _curves(curves: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    """Write one picture of the covariances' shares, and yield its line."""
    longest = max(int(r) for rounds in curves.values() for r in rounds)
    lines = [
        (name, [(float(r), rounds[r]["covariances"]) for r in sorted(rounds, key=int)])
        for name, rounds in curves.items()
    ]
    x = Axis("rounds observed", 1.0, float(longest), log=True)
    picture = str(xy_picture("Identified share", lines, x, Axis("identified share", 0.0, 1.0)))
    style = (
        "<style>text{font:12px system-ui,sans-serif;fill:#222}.name{font-weight:600}"
        ".grid{stroke:#ddd}.axis{stroke:#555}.line{stroke:#0b5c8c;stroke-width:1.8}"
        ".point{fill:#0b5c8c}</style>"
    )
    open_tag = picture.index(">") + 1
    text = picture[: open_tag - 1] + ' xmlns="http://www.w3.org/2000/svg">'
    text += style + '<rect width="100%" height="100%" fill="#fff"/>' + picture[open_tag:] + "\n"
    folder = DOCS / "figures" / "audits"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "identified-share.svg").write_text(text, encoding="utf-8")
    yield (
        "![Identified share of the sites' covariances by the number of rounds]"
        "(figures/audits/identified-share.svg)\n\n"
        "Share of the sites' covariances that the sums of the first rounds determine, for three "
        "sites.\n"
    )


def _verdicts(names: Sequence[str], cache: Path, jobs: int) -> Iterator[str]:
    yield VERDICTS.format(rows=ROWS)
    for name in names:
        runs = {
            "plain": _audit(name, "plain", 3, ROWS, cache, jobs, attacks=IN_CLEAR),
            "masked": _audit(name, "masked", 3, ROWS, cache, jobs),
        }
        if name in NOISED:
            try:
                once = name in ("moments", "tables")
                privacy = EPSILON | ({} if once else {"placement": "round"})
                more = {"privacy": privacy}
                runs["masked, ε = 1"] = _audit(name, "masked", 3, ROWS, cache, jobs, **more)
            except SecaggError as error:
                print(error.line(), file=sys.stderr)
        yield f"\n### `{name}`\n\n| attack | view | " + " | ".join(runs) + " |\n"
        yield "|---" * (2 + len(runs)) + "|\n"
        by_run = {p: {(a.attack.name, a.who): a for a in found} for p, found in runs.items()}
        for attack, who in by_run["masked"]:
            cells = [
                _verdict(found[attack, who]) if (attack, who) in found else ""
                for found in by_run.values()
            ]
            if any(cells):
                yield f"| `{attack}` | {who.value} | " + " | ".join(cells) + " |\n"


def _verdict(attacked: Attacked) -> str:
    if attacked.finding is None:
        return "" if attacked.verdict is Verdict.NOT_APPLICABLE else attacked.why
    return f"{SIGNS[attacked.verdict]} ({interval(vars(attacked.finding))})"


if __name__ == "__main__":
    sys.exit(main())
