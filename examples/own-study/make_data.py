"""Write the made-up records of three hospitals, with faults that real files have.

    python examples/own-study/make_data.py

The files are in `raw/` already; docs/own-study.md shows how to find and mend the faults.
"""

from __future__ import annotations

import csv
import random
from pathlib import Path

RAW = Path(__file__).parent / "raw"
HOSPITALS = {"cork": (55, 0.0), "galway": (64, 2.0), "sligo": (71, 5.0)}
"""Mean age, and days that patients stay longer than in Cork, whatever their age."""


def row(name: str, patient: int, draw: random.Random) -> list[object]:
    """Return one patient's cells, coded as this hospital codes them."""
    mean_age, days = HOSPITALS[name]
    age = min(max(round(draw.gauss(mean_age, 12)), 18), 99)
    female, smoker, statin = draw.random() < 0.5, draw.random() < 0.3, draw.random() < 0.4
    ward = draw.choices(["medical", "surgical", "burns"], [55, 43, 2])[0]
    crp = min(draw.lognormvariate(2.3, 0.9), 200)
    stay = 1 + 0.03 * age + 0.03 * crp + days + smoker + draw.gauss(0, 2)
    sex = ("F" if female else "M") if name == "galway" else ("female" if female else "male")
    return [
        f"{name[0].upper()}{patient:03}",
        age,
        sex,
        -9 if draw.random() < 0.04 else int(smoker),
        "statin" if statin else "none",
        ward,
        999 if draw.random() < 0.03 else round(crp / 10, 2) if name == "sligo" else round(crp, 1),
        max(round(stay), 0),
    ]


def main() -> None:
    """Write the three files; the draw always has the same seeds."""
    RAW.mkdir(exist_ok=True)
    for name in HOSPITALS:
        draw = random.Random(name)
        with (RAW / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["patient", "age", "sex", "smoker", "drug", "ward", "crp", "stay"])
            table.writerows(row(name, patient, draw) for patient in range(1, 201))


if __name__ == "__main__":
    main()
