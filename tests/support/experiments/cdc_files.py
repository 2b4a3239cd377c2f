"""Made births in the formats of the CDC's linked file of 2015."""

from pathlib import Path

import numpy as np

from reproductions.data.cdc_births import CSV, FIXED_WIDTH, POSITIONS

LINE = 1384  # characters of the denominator-plus file's lines, without their end
UNKNOWN = {"mager": "99", "meduc": "9", "pay": "9", "combgest": "99", "brthwgt": "9999",
           "bmi": "99.9", "sex": "", "wtgain": "99", "dmar": ""}  # fmt: skip


def birth(**changes: str) -> dict[str, str]:
    """Return a birth with all values known."""
    return {
        "mager": "31", "mracehisp": "1", "dmar": "1", "meduc": "6", "priorlive": "01",
        "previs": "11", "cig_rec": "N", "bmi": "24.5", "wtgain": "30", "me_rout": "1", "pay": "2",
        "apgar5": "09", "dplural": "1", "sex": "F", "combgest": "39", "brthwgt": "3300",
        "aged": "", "ucod": "", **changes,
    }  # fmt: skip


def made_births(many: int, seed: int = 0) -> list[dict[str, str]]:
    """Return births in which the weight depends on the weeks, and death on both."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(many):
        weeks = int(np.clip(rng.normal(38.6, 2.5), 22, 43))
        weight = int(np.clip(3300 + 150 * (weeks - 39) + rng.normal(0, 420), 300, 6000))
        dies = rng.random() < 1 / (1 + np.exp((weeks - 30) / 2))
        found.append(birth(
            mager=f"{rng.integers(16, 44)}", meduc=f"{rng.integers(1, 9)}",
            pay=f"{rng.integers(1, 4)}", me_rout=str(rng.choice(["1", "2", "4"])),
            mracehisp=str(rng.choice(["1", "2", "7"])), dmar=str(rng.choice(["1", "2"])),
            cig_rec=str(rng.choice(["N", "Y"], p=[0.9, 0.1])), sex=str(rng.choice(["F", "M"])),
            previs=f"{rng.integers(0, 20):02d}", wtgain=f"{rng.integers(0, 60):02d}",
            bmi=f"{rng.uniform(18, 40):.1f}", priorlive=f"{rng.integers(0, 4):02d}",
            apgar5=f"{rng.integers(5, 11):02d}", dplural=str(rng.choice(["1", "2"])),
            combgest=f"{weeks}", brthwgt=f"{weight:04d}", aged="003" if dies else "",
            ucod=str(rng.choice(["P072", "Q249", "R95", "K550"])) if dies else "",
        ))  # fmt: skip
    return found


def write_fixed_width(folder: Path, births: list[dict[str, str]]) -> Path:
    """Write the CDC's format: fields at fixed places, blanks elsewhere."""
    lines = []
    for each in births:
        line = [" "] * LINE
        for name, (first, last) in POSITIONS.items():
            line[first - 1 : last] = each[name].ljust(last - first + 1)
        lines.append("".join(line) + "\r\n")
    path = folder / FIXED_WIDTH
    path.write_text("".join(lines), newline="")
    return path


def write_csv(folder: Path, births: list[dict[str, str]]) -> Path:
    """Write NBER's format: names in the first line, another column among them."""
    names = ["dob_yy", *POSITIONS]
    lines = [",".join(names), *(",".join(["2015", *each.values()]) for each in births)]
    path = folder / CSV[0]
    path.write_text("\n".join(lines) + "\n")
    return path
