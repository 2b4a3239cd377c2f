"""Limits of an audit, in a TOML file: the name of a metric, and the numbers that are no leak.

excess_share = "<= 0.1"
covariance_error = ">= 0.5"
tpr_at_1pct = "<= 0.02"
"""

from __future__ import annotations

from pathlib import Path

from secagg.audits.catalogue import make_attacks
from secagg.audits.contract import Limit
from secagg.core.validation import read_toml, unknown_key
from secagg.errors import UsageError


def read_limits(path: Path) -> dict[str, Limit]:
    """Return the limits in a file, by metric. Raises `UsageError` that names the wrong line."""
    given = read_toml(path)
    attacks = make_attacks()
    rates = {name for attack in attacks for name in attack.rates}
    known = rates | {attack.metric for attack in attacks}
    for metric in given:
        if metric not in known:
            raise UsageError(str(path), *unknown_key("", metric, known).args[1:])
    limits = {metric: _limit(f"{path}, {metric}", text) for metric, text in given.items()}
    for name in rates & limits.keys():
        if limits[name].errors:
            raise UsageError(f"{path}, {name}", "is written with <=", 'For example "<= 0.02".')
    return limits


def _limit(where: str, text: object) -> Limit:
    try:
        return Limit.of_text(text)
    except ValueError as error:
        raise UsageError(where, str(error), 'Write for example "<= 0.1" or ">= 0.5".') from None
