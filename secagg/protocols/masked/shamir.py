"""Secret sharing of 32-byte secrets: any `threshold` shares give the secret, fewer give nothing.

Follows Shamir, *How to share a secret* (Communications of the ACM, 1979). The secret, read as a
little-endian integer below 2^256, is the constant term of a polynomial

    f(x) = secret + a_1 x + ... + a_{t-1} x^{t-1}   over GF(q),   q = 2^256 + 297,

q being the smallest prime that leaves room for every 32-byte secret. The a_i are uniform in GF(q),
zero included: a leading coefficient that is never zero would rule values out. The share at point x
is f(x), written as 33 little-endian bytes. Since t - 1 values of f together with *any* secret fix
exactly one polynomial, t - 1 shares have the same joint distribution whatever the secret is.

Threat model: whoever holds fewer than `threshold` shares of a secret, with unlimited computing
power. Whoever combines trusts nobody for the form of a share: all that is malformed is refused.

Not protected: lies. Shares carry no proof, so a wrong share, from whoever holds or dealt it, gives
another secret; who combines must be able to tell (`masked` compares with what was advertised).
Timing: Python's integers are not constant time, so whoever measures the host closely while it
shares or combines may learn about the secret.

==========================================  =================================================
input                                       outcome
==========================================  =================================================
threshold 1                                 every share is the secret
threshold = number of points                all shares are needed
secret of 0, secret of 2^256 - 1            shared and recovered like any other
secret not of 32 bytes                      `split`: ValueError
points repeated, 0 or negative, >= 2^32     `split`: ValueError
threshold < 1, or more than the points      `split`: ValueError
no shares                                   `combine`: ValueError
a share not of 33 bytes, or >= q            `combine`: PeerError
a point outside [1, 2^32)                   `combine`: PeerError
more shares than the threshold              the secret
shares that combine to 2^256 or more        `combine`: PeerError (no 32-byte secret has them)
wrong shares, or fewer than the threshold   some other secret, or PeerError: it cannot be told
==========================================  =================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from operator import mul

import gmpy2
from gmpy2 import mpz

from secagg.core.randomness import RandomBytes
from secagg.errors import PeerError

SECRET_BYTES = 32
SHARE_BYTES = 33

_Q = 2**256 + 297
_POINTS_END = 2**32


def split(
    secret: bytes, threshold: int, points: Sequence[int], random: RandomBytes
) -> dict[int, bytes]:
    """Return one share for each point; any `threshold` of them give `secret` back.

    secret: 32 bytes
    threshold: in [1, len(points)]
    points: distinct, each in [1, 2^32)

    Raises ValueError for arguments out of range.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError("a secret has 32 bytes")
    if not 1 <= threshold <= len(points):
        raise ValueError("the threshold is between 1 and the number of points")
    if len(set(points)) != len(points) or not 1 <= min(points) <= max(points) < _POINTS_END:
        raise ValueError("points are distinct, at least 1 and below 2^32")
    values = _split(int.from_bytes(secret, "little"), threshold, points, random, _Q)
    return {
        point: value.to_bytes(SHARE_BYTES, "little")
        for point, value in zip(points, values, strict=True)
    }


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret that `shares` (by point) give, at least as many as the threshold it has.

    Raises PeerError if they are malformed or give no secret of 32 bytes, ValueError if there are
    none.
    """
    if not shares:
        raise ValueError("a secret takes at least one share")
    points = tuple(sorted(shares))
    values = _read_shares(points, shares)
    secret: int = sum(map(mul, _weights(points), values)) % _Q
    if secret >> 8 * SECRET_BYTES:
        raise PeerError("secret sharing", "the shares combine to no 32-byte secret")
    return secret.to_bytes(SECRET_BYTES, "little")


# --- the polynomial, over a field of any prime size: tests count every case in small ones ---------


def _split(
    secret: int, threshold: int, points: Sequence[int], random: RandomBytes, q: int
) -> list[int]:
    """Return f at each point, f a uniform polynomial of degree < threshold with f(0) = secret."""
    descending = [mpz(_uniform(random, q)) for _ in range(threshold - 1)]
    values = []
    for x in points:
        value = mpz(0)
        for coefficient in descending:
            value = (value + coefficient) * x  # Horner; reduced once, as points are short
        values.append(int(value + secret) % q)
    return values


def _uniform(random: RandomBytes, q: int) -> int:
    """Return a uniform integer below q.

    Draws beyond the last full multiple of q are thrown away, so that each residue is left equally
    often. For the q above that is one draw in 256.
    """
    size = (q.bit_length() + 7) // 8
    end = (1 << 8 * size) // q * q
    while (draw := int.from_bytes(random(size), "little")) >= end:
        pass
    return draw % q


# --- combining ------------------------------------------------------------------------------------


def _read_shares(points: Sequence[int], shares: Mapping[int, bytes]) -> list[int]:
    """Return the shares as integers, in the order of the sorted `points`."""
    written = [shares[point] for point in points]
    if points[0] >= 1 and points[-1] < _POINTS_END and set(map(len, written)) == {SHARE_BYTES}:
        values = [int.from_bytes(share, "little") for share in written]
        if max(values) < _Q:
            return values
    raise PeerError("secret sharing", "malformed share")


@lru_cache(maxsize=1024)  # at most 100 bytes a point: 10 MB where a secret has 100 shareholders
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's l_j(0) = product over k != j of x_k / (x_k - x_j), for each point x_j.

    Survivors are mostly the same from one secret to the next, so the weights are kept.
    """
    above = prod(points)
    weights = []
    for x in points:
        below = prod(other - x for other in points if other != x) * x
        weights.append(int(above * gmpy2.invert(below, _Q) % _Q))
    return tuple(weights)
