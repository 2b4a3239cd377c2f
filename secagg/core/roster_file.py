"""Cards and rosters as files: how parties on different computers learn each other's public keys.

A *card* is one party's name, role and public keys. A *roster* is a list of cards. Both are JSON and
public. Each party draws its own keys, and gives its card to the maker of the roster. Then every
party compares the *fingerprint* of the roster, read out over a second channel such as a telephone
call between people who know each other, with that of the file it received. Only then does it pin
the roster: from then on it accepts no other key of these parties.

The fingerprint has 160 bits of SHA-256. Whoever makes the roster chooses its content, so may search
for two rosters with one fingerprint, and give them to different parties. This takes about 2^80
digests (a birthday attack), and a second roster for a given one takes 2^160.

Threat model: an attacker who can change files on their way, and a maker of the roster who replaces
keys.

Not protected: a fingerprint that nobody compares, and a card that was replaced before its own party
compared the roster: each party must look for its own card, as `secagg site pin` does.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from secagg.core import canonical_encoding
from secagg.core.identity import PublicIdentity, Role, Roster, parties_fault, party_fault
from secagg.errors import UsageError

_FORMAT = 1
_KEY = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_GROUP = 4
_DIGITS = 40  # hexadecimal: 160 bits


def check_name(where: str, name: str) -> None:
    """Raise `UsageError` unless every federated engine accepts this name of a party."""
    if not _NAME.fullmatch(name):
        what = f"{name!r} cannot name a party on a network"
        advice = "Use 1 to 63 letters, digits, - and _; begin and end with a letter or digit."
        raise UsageError(where, what, advice)


def card_of(party: PublicIdentity) -> dict[str, str]:
    """Return a party's card as plain data for JSON."""
    return {
        "name": party.name,
        "role": party.role.value,
        "verify_key": party.verify_key.hex(),
        "seal_key": party.seal_key.hex(),
    }


def party_of(card: object, where: str) -> PublicIdentity:
    """Return the party of a card. Raises `UsageError` if it is not one; it names `where`."""
    match card:
        case {
            "name": str(name),
            "role": str(role),
            "verify_key": str(v),
            "seal_key": str(s),
            **rest,
        } if not rest and role in set(Role) and _KEY.fullmatch(v) and _KEY.fullmatch(s):
            check_name(where, name)
            party = PublicIdentity(name, Role(role), bytes.fromhex(v), bytes.fromhex(s))
            if fault := party_fault(party):
                raise UsageError(where, fault, "Ask the party for its card again.")
            return party
    raise UsageError(where, "is not the card of a party")


def roster_text(roster: Roster) -> str:
    """Return the content of a roster's file."""
    parties = [card_of(party) for party in roster.parties.values()]
    return json.dumps({"secagg_roster": _FORMAT, "parties": parties}, indent=1) + "\n"


def card_text(party: PublicIdentity) -> str:
    """Return the content of a card's file."""
    return json.dumps({"secagg_card": _FORMAT, **card_of(party)}, indent=1) + "\n"


def read_card(path: Path) -> PublicIdentity:
    """Return the party whose card is in the file. Raises `UsageError`."""
    found = _read(path, "secagg_card")
    return party_of({key: value for key, value in found.items() if key != "secagg_card"}, str(path))


def read_roster(path: Path) -> Roster:
    """Return the roster in the file. Raises `UsageError`."""
    match _read(path, "secagg_roster"):
        case {"secagg_roster": _, "parties": list(cards), **rest} if not rest:
            return make_roster([party_of(card, str(path)) for card in cards], str(path))
    raise UsageError(str(path), "is not a roster")


def make_roster(parties: list[PublicIdentity], where: str) -> Roster:
    """Return the roster of these parties.

    Raises `UsageError` unless there are at least two sites, and `parties_fault` finds nothing.
    """
    if fault := parties_fault(parties):
        raise UsageError(where, fault)
    roster = Roster({party.name: party for party in parties})
    if len(roster.with_role(Role.SITE)) < 2:
        raise UsageError(where, "a roster has at least two sites")
    return roster


def fingerprint(roster: Roster) -> str:
    """Return the fingerprint of a roster, in groups of four hexadecimal digits."""
    content = canonical_encoding.dumps(["secagg roster 1", roster.to_plain()])
    digits = hashlib.sha256(content).hexdigest()[:_DIGITS]
    return " ".join(digits[i : i + _GROUP] for i in range(0, _DIGITS, _GROUP))


def is_fingerprint(roster: Roster, given: str) -> bool:
    """Whether this text is the roster's fingerprint; spaces and upper case do not matter."""
    read = "".join(given.split()).lower()
    return hmac.compare_digest(read.encode(), fingerprint(roster).replace(" ", "").encode())


def _read(path: Path, kind: str) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes(), object_pairs_hook=_no_key_twice)
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or str(found.get(kind)) != str(_FORMAT):  # True == 1 == 1.0
        raise UsageError(str(path), f"is not a {kind.removeprefix('secagg_')} of this version")
    return found


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that other readers of JSON may read as another one."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)
