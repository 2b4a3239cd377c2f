"""The only list of all attacks: their names, modules and classes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import cast

from secagg.audits.contract import Attack
from secagg.core.validation import unknown_key
from secagg.errors import UsageError

ATTACKS = {
    "identified_share": ("secagg.audits.attacks.statistics.identified_share", "IdentifiedShare"),
    "admm_messages": ("secagg.audits.attacks.statistics.admm_messages", "AdmmMessages"),
    "admm_sums": ("secagg.audits.attacks.statistics.admm_sums", "AdmmSums"),
    "tracing": ("secagg.audits.attacks.records.tracing", "Tracing"),
}


def make_attacks(names: Sequence[str] = ()) -> list[Attack]:
    """Return the attacks of these names; without names, all. Raises `UsageError`."""
    for name in names:
        if name not in ATTACKS:
            error = unknown_key("attack", name, ATTACKS)
            raise UsageError("attack", f"no attack {name!r}", error.advice)
    found = []
    for name in names or ATTACKS:
        module, attribute = ATTACKS[name]
        found.append(cast("Attack", getattr(importlib.import_module(module), attribute)()))
    return found
