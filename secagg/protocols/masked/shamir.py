"""Shamir secret sharing of 32-byte secrets: any `threshold` shares recover the secret.

Follows Shamir, *How to share a secret* (Communications of the ACM, 1979). The secret, read as a
little-endian integer below 2^256, is the constant term of a polynomial

    f(x) = secret + a_1 x + ... + a_{t-1} x^{t-1}   over GF(q),   q = 2^256 + 297.

where t is the threshold and q is the smallest prime above all secrets of 32 bytes. The a_i are
uniform in GF(q), including zero. (If the leading coefficient could not be zero, t - 1 shares would
exclude some secrets.) The share at point x is f(x), written as 33 little-endian bytes. For any
t - 1 shares and *any* secret there is exactly one polynomial. So the joint distribution of t - 1
shares does not depend on the secret.

Threat model: an attacker with fewer than `threshold` shares and unlimited computing power. The
party that combines shares rejects malformed shares, whoever sent them.

Not protected:

* False shares. Shares contain no proof, so a false share, from its holder or from the site that
  made the shares, gives a wrong secret. The party that combines shares must be able to check the
  secret. (`masked` compares the secret with the advertised key or commitment.)
* Timing. Computing with Python's integers does not take constant time. An attacker that measures
  the running time while a computer splits or combines a secret may learn about the secret.

==========================================  ==================================================
input                                       result
==========================================  ==================================================
threshold 1                                 every share is the secret
threshold = number of points                all shares are required
secret 0, or secret 2^256 - 1               shared and recovered like any other secret
secret not of 32 bytes                      `split`: ValueError
points repeated, below 1, or >= 2^32        `split`: ValueError
threshold below 1, or above len(points)     `split`: ValueError
no shares                                   `combine`: ValueError
a share not of 33 bytes, or >= q            `combine`: PeerError
a point outside [1, 2^32)                   `combine`: PeerError
more shares than the threshold              the secret
shares that combine to 2^256 or more        `combine`: PeerError (not a 32-byte secret)
false shares, or fewer than the threshold   a wrong secret without an error, or PeerError
==========================================  ==================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from operator import mul

import gmpy2
import numpy as np
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
    """Return one share for each point; any `threshold` of them recover `secret`.

    secret: 32 bytes
    threshold: in [1, len(points)]
    points: distinct, each in [1, 2^32)

    Raises ValueError for arguments out of range.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"the secret must have {SECRET_BYTES} bytes")
    if not 1 <= threshold <= len(points):
        raise ValueError("the threshold must be between 1 and the number of points")
    if len(set(points)) != len(points) or not 1 <= min(points) <= max(points) < _POINTS_END:
        raise ValueError("points must be distinct, at least 1 and below 2^32")
    values = _split(int.from_bytes(secret, "little"), threshold, points, random, _Q)
    return {
        point: value.to_bytes(SHARE_BYTES, "little")
        for point, value in zip(points, values, strict=True)
    }


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret from at least `threshold` shares.

    shares: the share of each point
    Raises `PeerError` if shares are malformed or combine to more than 32 bytes, and `ValueError` if
    there are no shares.
    """
    if not shares:
        raise ValueError("at least one share is required")
    points = tuple(sorted(shares))
    values = _read_shares(points, shares)
    secret: int = sum(map(mul, _weights(points), values)) % _Q
    if secret >> 8 * SECRET_BYTES:
        raise PeerError("secret sharing", "the shares do not combine to a 32-byte secret")
    return secret.to_bytes(SECRET_BYTES, "little")


# --- the polynomial, over any prime field (tests enumerate all cases in small fields) -------------


def _split(
    secret: int, threshold: int, points: Sequence[int], random: RandomBytes, q: int
) -> list[int]:
    """Return f at each point, f a uniform polynomial of degree < threshold with f(0) = secret."""
    descending = [mpz(_uniform(random, q)) for _ in range(threshold - 1)]
    values = []
    for x in points:
        value = mpz(0)
        for coefficient in descending:
            value = (value + coefficient) * x  # Horner; reduced once at the end (points are short)
        values.append(int(value + secret) % q)
    return values


def _uniform(random: RandomBytes, q: int) -> int:
    """Return a uniform integer below q.

    Draws above the last full multiple of q are discarded, so that all residues are equally likely.
    For the q above, one draw in 256 is discarded.
    """
    size = (q.bit_length() + 7) // 8
    end = (1 << 8 * size) // q * q
    while (draw := int.from_bytes(random(size), "little")) >= end:
        pass
    return draw % q


# --- combining ------------------------------------------------------------------------------------


def _read_shares(points: Sequence[int], shares: Mapping[int, bytes]) -> list[int]:
    """Return the shares as integers, in the order of the sorted `points`."""
    ordered = [shares[point] for point in points]
    if points[0] >= 1 and points[-1] < _POINTS_END and set(map(len, ordered)) == {SHARE_BYTES}:
        values = [int.from_bytes(share, "little") for share in ordered]
        if max(values) < _Q:
            return values
    raise PeerError("secret sharing", "malformed share")


@lru_cache(maxsize=1024)  # at most 100 bytes for each point: 10 MB for secrets with 100 shares
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's l_j(0) = product over k != j of x_k / (x_k - x_j), for each point x_j.

    The weights are cached, because several secrets mostly have shares at the same points.
    """
    numerator, places = prod(points), np.array(points, dtype=np.int64)
    # Factors are first multiplied in groups whose product has less than 63 bits.
    groups = range(0, len(points), max(1, 62 // points[-1].bit_length()))
    weights = []
    for j, x in enumerate(points):
        factors = places - x
        factors[j] = x
        denominator = prod(np.multiply.reduceat(factors, groups).tolist())
        weights.append(int(numerator * gmpy2.invert(denominator, _Q) % _Q))
    return tuple(weights)
