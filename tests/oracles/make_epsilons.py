"""Write tests/oracles/epsilons_opacus.json: what Opacus' PRV accountant says of Gaussian releases.

Opacus stands on PyTorch, which nothing else here needs, so its numbers are stored. Run this in an
environment of its own:  pip install torch==2.13.0 opacus==1.6.0  (in one command: without the
pinned CPU build of PyTorch, Opacus draws in gigabytes of GPU libraries).

Each row has sigma (sensitivity 1), compositions, delta and what PRV returns for it: a lower bound,
an estimate and an upper bound of epsilon (Gopi, Lee & Wutschitz 2021), in this order.
"""

import importlib.metadata
import json
import warnings
from pathlib import Path

from opacus.accountants import PRVAccountant

PATH = Path(__file__).parents[1] / "oracles" / "epsilons_opacus.json"
GRID = [
    (sigma, compositions, delta)
    for sigma in (0.5, 1.0, 2.0, 5.0, 10.0, 50.0)
    for compositions in (1, 3, 10, 100, 1000)
    for delta in (1e-9, 1e-6, 1e-3)
    if compositions / sigma**2 <= 400  # beyond, the domain that PRV asks for is too large for it
]


def main() -> None:
    packages = ("opacus", "torch", "numpy", "scipy")
    rows = [row for case in GRID if (row := prv(*case)) is not None]
    versions = {name: importlib.metadata.version(name) for name in packages}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    PATH.write_text(f'{{\n "versions": {json.dumps(versions)},\n "rows": [\n{lines}\n ]\n}}\n')
    print(PATH.name, len(rows), "of", len(GRID), "rows")


def prv(sigma: float, compositions: int, delta: float) -> list[float] | None:
    """Return one row, or None where PRV gives up (it says so by RuntimeError or ValueError)."""
    accountant = PRVAccountant()
    accountant.history = [(sigma, 1.0, compositions)]
    epsilon_error, delta_error = 0.01, delta / 1000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Opacus' own arithmetic
        try:
            distribution = accountant._get_dprv(eps_error=epsilon_error, delta_error=delta_error)
            bounds = distribution.compute_epsilon(delta, delta_error, epsilon_error)
        except (RuntimeError, ValueError):
            return None
    return [sigma, compositions, delta, *(float(bound) for bound in bounds)]


if __name__ == "__main__":
    main()
