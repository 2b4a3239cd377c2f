"""Posteriors by NUTS, stored because they take minutes to compute."""

import json
from typing import Any

from support.runs.checkout import ROOT

SIMULATED: dict[str, Any] = json.loads(
    (ROOT / "tests" / "oracles" / "simulated_gold.json").read_text()
)["posteriors"]
"""See oracles/make_simulated_gold.py."""
