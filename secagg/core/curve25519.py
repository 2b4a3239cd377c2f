"""Whether a public key is a point of the prime-order subgroup of Curve25519.

Sources: RFC 8032, sections 5.1.1 to 5.1.4 (the curve, decoding, addition); RFC 7748, section 4.1
(the map between the curve's two forms). Why it matters: Chalkias, Garillot and Nikolaenko, "Taming
the many EdDSAs" (SSR 2020).

A key is a point A, and the curve has 8 L points for a prime L. Keys that a party draws lie in the
subgroup of L points. For others, the library's functions do not do what their names say:

=====================================  ========================================================
key                                    without this check
=====================================  ========================================================
of small order (8 points)              Ed25519: anybody signs for the party, as the signature
                                       0 is valid for some or all messages. X25519: the library
                                       raises `ValueError` when something is sealed for the party
of mixed order (A plus such a point)   Ed25519: libraries differ on which signatures are valid
of a number p or above                 two texts are one key, so "no key twice" is not checked
of no point of the curve               Ed25519: no signature is valid. X25519: computes on another
                                       curve, the twist
=====================================  ========================================================

So `is_verify_key` and `is_seal_key` hold if A is on the curve, is not the identity, has [L] A = 0,
and is encoded in the one canonical way. The check of a key takes two milliseconds, and results are
cached, of keys of 32 bytes only: longer ones could fill the memory. Keys are public, so its time
may depend on them.

Not protected: a party whose private key others know. The check shows that a private key exists, and
not who knows it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

KEY_BYTES: Final = 32
_P: Final = 2**255 - 19
_L: Final = 2**252 + 27742317777372353535851937790883648493
_D: Final = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_1: Final = pow(2, (_P - 1) // 4, _P)

_Point = tuple[int, int, int, int]
"""(X, Y, Z, T): the point with x = X/Z, y = Y/Z, and x y = T/Z."""
_IDENTITY: Final = (0, 1, 1, 0)


def is_verify_key(key: bytes) -> bool:
    """Return whether these bytes are an Ed25519 public key of the prime-order subgroup."""
    return len(key) == KEY_BYTES and _is_ed25519_key(key)


def is_seal_key(key: bytes) -> bool:
    """Return whether these bytes are an X25519 public key of the prime-order subgroup.

    An X25519 key is the coordinate u of a point. With y = (u - 1) / (u + 1), it is a point of the
    curve of Ed25519, up to the sign of x, on which its order does not depend.
    """
    return len(key) == KEY_BYTES and _is_x25519_key(key)


@lru_cache(maxsize=1 << 12)
def _is_ed25519_key(key: bytes) -> bool:
    number = int.from_bytes(key, "little")
    y, sign = number % 2**255, number >> 255
    return y < _P and _is_in_subgroup(_x_of(y, sign), y)


@lru_cache(maxsize=1 << 12)
def _is_x25519_key(key: bytes) -> bool:
    u = int.from_bytes(key, "little")
    if u >= _P - 1:  # u = -1 has no y, and is on the twist
        return False
    y = (u - 1) * pow(u + 1, -1, _P) % _P
    return _is_in_subgroup(_x_of(y, 0), y)


def _x_of(y: int, sign: int) -> int | None:
    """Return the x with this lowest bit of the point (x, y), or None if there is none."""
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if x * x % _P != square:
        x = x * _ROOT_OF_MINUS_1 % _P
    if x * x % _P != square or (x == 0 and sign):
        return None
    return x if x & 1 == sign else _P - x


def _is_in_subgroup(x: int | None, y: int) -> bool:
    """Return whether the point is not the identity, and L times the point is."""
    if x is None or (x, y) == (0, 1):
        return False
    result, power = _IDENTITY, (x, y, 1, x * y % _P)
    for bit in range(_L.bit_length()):
        if _L >> bit & 1:
            result = _add(result, power)
        power = _add(power, power)
    return result[0] == 0 and result[1] == result[2]


def _add(first: _Point, second: _Point) -> _Point:
    """Return the sum of two points. The formula holds for any two, also for equal ones."""
    x1, y1, z1, t1 = first
    x2, y2, z2, t2 = second
    a, b = (y1 - x1) * (y2 - x2) % _P, (y1 + x1) * (y2 + x2) % _P
    c, d = 2 * t1 * t2 * _D % _P, 2 * z1 * z2 % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P
