"""Draw the pictures of the pages from runs of the examples, into `docs/assets/`.

    OMP_NUM_THREADS=1 .venv/bin/python docs/pictures.py [NAME ...]

They are the same on every computer: the records and all draws have fixed seeds. Text and axes have
the colour of the page's text, so a picture can be read in the dark mode, too; curves also differ
in marks and dashes, for grey prints. Matplotlib comes with the tests' packages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

import secagg
from secagg.core.randomness import replayable_random
from secagg.runs.simulate import simulate_sites

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "assets"
HEART = ROOT / "examples" / "heart-disease"
OWN = ROOT / "examples" / "own-study"
INK = "#111111"  # becomes the page's colour of text
TEAL, ORANGE, GREY = "#00897b", "#d9730d", "#8a8a8a"  # each readable on white and on black
FILLED: dict[str, Any] = {"color": INK, "marker": "s", "fill": INK}
OPEN: dict[str, Any] = {"color": ORANGE, "marker": "o", "fill": "none"}
DIAMOND: dict[str, Any] = {"color": TEAL, "marker": "D", "fill": "none"}
STYLE = "<style>svg{color:#111}@media(prefers-color-scheme:dark){svg{color:#ddd}}</style>"

mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "secagg",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "legend.labelcolor": INK,
    }
)


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture without date and background, in the page's colour of text."""
    path = OUT / f"{name}.svg"
    figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
    text = path.read_text(encoding="utf-8").replace(INK, "currentColor")
    text = re.sub(r"(<svg [^>]*>)", rf"\1{STYLE}", text, count=1)
    path.write_text(re.sub(r" +$", "", text, flags=re.M), encoding="utf-8")
    plt.close(figure)


def regression(job: Path, centre: str) -> dict[str, dict[str, float]]:
    """Return the terms of the second analysis of a job, by name."""
    done = secagg.simulate(job, overrides={"method.centre": centre})
    terms: list[dict[str, Any]] = done.summary["analyses"][1]["terms"]
    return {term["term"]: term for term in terms}


def intervals(
    axes: Axes, names: Sequence[str], terms: dict[str, dict[str, float]], offset: float, **how: Any
) -> None:
    """Draw the estimate and interval of each named term in a row of its own."""
    for row, name in enumerate(names):
        term = terms[name]
        label = how["label"] if row == 0 else None
        axes.plot([term["ci_low"], term["ci_high"]], [row + offset] * 2, color=how["color"], lw=1.6)
        axes.plot(
            term["estimate"], row + offset, how["marker"], color=how["color"], ms=6, label=label,
            markerfacecolor=how["fill"],
        )  # fmt: skip


def rows(axes: Axes, names: Sequence[str], none: float) -> None:
    """Name the rows, the first one on top, and draw the line of no effect."""
    axes.axvline(none, color=GREY, lw=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()


def own_study() -> None:
    """Stay by age at three hospitals: slopes within hospitals, and the pooled slope."""
    tables = {path.stem: pd.read_csv(path) for path in sorted((OWN / "data").glob("*.csv"))}
    records = pd.concat(table.dropna() for table in tables.values())
    figure, axes = plt.subplots(figsize=(6.6, 3.6))
    within = regression(OWN / "stay.toml", "site")["age"]["estimate"]
    pooled = regression(OWN / "stay.toml", "pooled")["age"]["estimate"]
    marks = zip(tables, ("o", "^", "s"), (TEAL, GREY, ORANGE), strict=True)
    for name, mark, colour in marks:
        table = tables[name].dropna()
        age, stay = table["age"], table["stay"]
        axes.plot(age, stay, mark, color=colour, ms=3.2, alpha=0.6, mew=0, label=name.title())
        ends = np.array([age.quantile(0.03), age.quantile(0.97)])
        axes.plot(ends, stay.mean() + within * (ends - age.mean()), color=INK, lw=2)
    ends = np.array([records["age"].quantile(0.03), records["age"].quantile(0.97)])
    line = records["stay"].mean() + pooled * (ends - records["age"].mean())
    axes.plot(ends, line, "--", color=INK, lw=1.6)
    axes.annotate(f"all patients: {pooled:.3f} days a year", (ends[0], line[0]), (19, 12.3),
                  arrowprops={"arrowstyle": "-", "color": INK, "lw": 0.6})  # fmt: skip
    axes.text(99, 1.6, f"within hospitals:\n{within:.3f} days a year", ha="right")
    axes.set(xlabel="age, years", ylabel="length of stay, days", ylim=(-0.5, 16))
    axes.legend(loc="upper left", ncols=3)
    save(figure, "own-study")


def centre() -> None:
    """Slopes of the heart rate over all patients, and within hospitals."""
    both = {each: regression(HEART / "linear.toml", each) for each in ("pooled", "site")}
    names = ["sex=male", "exercise_angina", "st_depression", "disease"]
    figure, axes = plt.subplots(figsize=(6.6, 2.5))
    intervals(axes, names, both["pooled"], -0.14, label="all patients", **OPEN)
    intervals(axes, names, both["site"], 0.14, label="within hospitals", **FILLED)
    rows(axes, names, 0)
    axes.set_xlabel("beats per minute lower  ←   slope and 95 % interval   →  higher")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.2), ncols=2)
    save(figure, "centre")


def odds() -> None:
    """Odds ratios over four hospitals, and of the two that can fit the model alone."""
    done = secagg.run(HEART / "logistic.toml").result.summary
    alone = done["simulation"]["site_alone"]
    names = ["age", "sex=male", "exercise_angina", "st_depression"]
    figure, axes = plt.subplots(figsize=(6.6, 2.8))
    fits = (
        ("four hospitals", done, FILLED),
        ("Cleveland alone", alone["cleveland"], OPEN),
        ("Hungary alone", alone["hungary"], DIAMOND),
    )
    for (label, fit, how), offset in zip(fits, (-0.2, 0.0, 0.2), strict=True):
        ratios = {
            each["term"]: {
                "estimate": each["odds_ratio"],
                "ci_low": each["odds_low"],
                "ci_high": each["odds_high"],
            }
            for each in fit["terms"]
        }
        intervals(axes, names, ratios, offset, label=label, **how)
    rows(axes, names, 1)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    axes.minorticks_off()
    axes.set_xlabel("less disease  ←   odds ratio and 95 % interval   →  more disease")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.2), ncols=3)
    save(figure, "odds")


def sparse() -> None:
    """Common effects with intervals, the hospitals' own effects, and inclusion probabilities."""
    done, kept = simulate_sites(HEART / "sparse.toml", random=replayable_random(1))
    found = done.summary["coefficients"]
    figure, axes = plt.subplots(figsize=(3.5, 3.6))
    terms = {
        each["term"]: {"estimate": each["mean"], "ci_low": each["low"], "ci_high": each["high"]}
        for each in found
    }
    intervals(axes, list(terms), terms, 0, label="common effect", **FILLED)
    for mark, (site, own) in zip("o^Dv", kept.items(), strict=True):
        means = [each["mean"] for each in own.summary["regressions"][0]["coefficients"]]
        axes.plot(means, np.arange(len(means)) + 0.28, mark, color=ORANGE, ms=4.5,
                  markerfacecolor="none", label=site.replace("_", " ").title())  # fmt: skip
    rows(axes, [f"{each['term']}   PIP {each['pip']:.2f}" for each in found], 0)
    axes.set_xlabel("slower heart  ←   effect, in SD   →  faster")
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.02, 1.0), ncols=3, columnspacing=1, handletextpad=0.2
    )
    save(figure, "sparse")


def noise() -> None:
    """Error of the slopes by epsilon, from the runs of `make study`."""
    runs = pd.read_csv(ROOT / "runs" / "study" / "results.csv")
    runs = runs[runs["metric"] == "error"]
    errors = runs.groupby(["line", "privacy.epsilon"])["value"]
    figure, axes = plt.subplots(figsize=(6.6, 3.2))
    curves = (("once at each site", OPEN), ("once in the sum", FILLED), ("in every round", DIAMOND))
    for (where, how), shift in zip(curves, (0.97, 1.0, 1.03), strict=True):
        mean = errors.mean()[f"noise {where}"]
        half = 1.96 * errors.sem()[f"noise {where}"]
        at = np.isfinite(mean.index)
        axes.errorbar(
            mean.index[at] * shift, mean[at], half[at], fmt=how["marker"], color=how["color"],
            ls="--" if how is OPEN else ":" if how is DIAMOND else "-", lw=1.3, ms=6,
            markerfacecolor=how["fill"], label=f"noise {where}",
        )  # fmt: skip
    base = runs.loc[runs["line"] == "no noise", "value"].mean()
    axes.axhline(base, color=GREY, lw=1)
    axes.text(0.47, base + 0.03, "no noise: chance alone")
    axes.axhline(1, color=GREY, lw=1, ls=(0, (1, 3)))
    axes.text(16.5, 1.03, "as bad as slopes of 0", ha="right")
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "16"])
    axes.set(
        ylim=(0, None), xlabel="stronger guarantee  ←   ε   →  weaker", ylabel="error of slopes"
    )
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.8))
    save(figure, "noise")


def flow() -> None:
    """Who receives what under `additive`: shares, sums of shares, one sum."""
    figure, axes = plt.subplots(figsize=(6.6, 2.7))
    axes.set(xlim=(0, 10), ylim=(0, 4))
    axes.axis("off")
    box = {"boxstyle": "round,pad=0.45", "fc": "none", "ec": INK}
    parties = {
        "site A": (0.9, 3.4), "site B": (0.9, 2.0), "site C": (0.9, 0.6),
        "aggregator 1": (4.9, 2.9), "aggregator 2": (4.9, 1.1), "coordinator": (8.8, 2.0),
    }  # fmt: skip
    for name, at in parties.items():
        axes.text(*at, name, ha="center", va="center", bbox=box)
    for colour, dashes, each in ((TEAL, "-", "aggregator 1"), (ORANGE, "--", "aggregator 2")):
        arrow = {"arrowstyle": "->", "color": colour, "ls": dashes, "lw": 1.4}
        far = arrow | {"shrinkA": 34, "shrinkB": 46}
        for site in ("site A", "site B", "site C"):
            axes.annotate("", parties[each], parties[site], arrowprops=far)
        axes.annotate("", parties["coordinator"], parties[each], arrowprops=far | {"shrinkA": 46})
    notes = {
        (0.9, -0.1): "sees its own records",
        (4.9, -0.1): "sees one share of each:\nrandom numbers",
        (8.8, -0.1): "sees the sum of A, B and C",
    }
    for at, text in notes.items():
        axes.text(*at, text, ha="center", va="top", size=9)
    save(figure, "flow")


PICTURES = {
    "own-study": own_study, "centre": centre, "odds": odds, "sparse": sparse, "noise": noise,
    "flow": flow,
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
