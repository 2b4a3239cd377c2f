"""Oracles: elimination on the Vandermonde system, and every case counted in small fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations, product

import gmpy2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.core.randomness import RandomBytes, replayable_random, system_random
from secagg.errors import PeerError
from secagg.protocols.masked import shamir

Q = 2**256 + 297
SECRET = bytes(range(32))
SHARES = shamir.split(SECRET, 3, [1, 2, 3, 4, 5], replayable_random(1))


def wrong(share: bytes) -> bytes:
    """Return another canonical share."""
    return bytes([share[0] ^ 1]) + share[1:]


def draws(values: Iterable[int], size: int) -> RandomBytes:
    """Return a generator that hands out exactly these integers."""
    left = iter(values)

    def random(n: int) -> bytes:
        assert n == size
        return next(left).to_bytes(n, "little")

    return random


def solve_vandermonde(points: list[int], values: list[int]) -> list[int]:
    """Return the coefficients of the polynomial through the points, by elimination over GF(Q)."""
    rows = [
        [pow(x, power, Q) for power in range(len(points))] + [value]
        for x, value in zip(points, values, strict=True)
    ]
    for i, row in enumerate(rows):
        row[:] = [entry * pow(row[i], -1, Q) % Q for entry in row]
        for other in rows:
            if other is not row:
                other[:] = [(a - other[i] * b) % Q for a, b in zip(other, row, strict=True)]
    return [row[-1] for row in rows]


def test_the_field_is_the_smallest_prime_above_every_secret() -> None:
    assert shamir._Q == Q
    assert gmpy2.is_prime(Q, 64)  # Miller-Rabin: error below 4^-64
    assert not any(gmpy2.is_prime(n) for n in range(2**256, Q))


# --- any `threshold` shares give the secret ---------------------------------------------------


@st.composite
def sharings(draw: st.DrawFn) -> tuple[bytes, int, list[int], list[int]]:
    """Draw a secret, a threshold, points, and at least `threshold` of them in any order."""
    points = draw(st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=12, unique=True))
    threshold = draw(st.integers(1, len(points)))
    kept = draw(st.permutations(points))[: draw(st.integers(threshold, len(points)))]
    secret = draw(
        st.one_of(st.sampled_from([bytes(32), b"\xff" * 32]), st.binary(min_size=32, max_size=32))
    )
    return secret, threshold, points, kept


@given(sharings())
def test_round_trip(sharing: tuple[bytes, int, list[int], list[int]]) -> None:
    secret, threshold, points, kept = sharing
    shares = shamir.split(secret, threshold, points, system_random)
    assert list(shares) == points
    assert all(len(share) == shamir.SHARE_BYTES for share in shares.values())
    assert shamir.combine({point: shares[point] for point in kept}) == secret


def test_every_subset_of_threshold_size_recovers() -> None:
    for kept in combinations(SHARES, 3):
        assert shamir.combine({point: SHARES[point] for point in kept}) == SECRET


@pytest.mark.parametrize("threshold", [1, 2, 7, 20])
def test_against_linear_algebra(threshold: int) -> None:
    points = [1, 2**32 - 1, *range(3, 21)][:threshold]
    shares = shamir.split(SECRET, threshold, points, system_random)
    values = [int.from_bytes(shares[point], "little") for point in points]
    assert solve_vandermonde(points, values)[0] == int.from_bytes(SECRET, "little")


def test_shares_are_values_of_the_polynomial_that_was_drawn() -> None:
    coefficients = [Q - 1, 0, 2**200 + 1]  # highest power first
    shares = shamir.split(SECRET, 4, [1, 9, 77, 2**32 - 1], draws(coefficients, 33))
    for x, share in shares.items():
        value = int.from_bytes(SECRET, "little") + sum(
            c * x**power for power, c in zip((3, 2, 1), coefficients, strict=True)
        )
        assert int.from_bytes(share, "little") == value % Q


def test_published_shares_do_not_change() -> None:
    assert {point: share.hex() for point, share in SHARES.items()} == {
        1: "5d68c4b7d27c900b8280c8ccdaa44cb5c69310530435b248bee18496bf6dafd900",
        2: "52bf85e173a4c557166cdb78a333403e988ca0667a271959ce0b40c88285575800",
        3: "31084680e77ba5ebc4cb420f66b9e8a984fbc14d76ec4a4848974bb06564169b00",
        4: "d14105942d0330c78d9ffe8f223646f88be07408f88347162c84a74e680aeca100",
        5: "326cc31c463a65ea70e70efbd8a95829ae3bb996ffed0ec379d253a38a77d86c00",
    }


# --- fewer give nothing -----------------------------------------------------------------------


@pytest.mark.parametrize(("q", "threshold"), [(5, 2), (5, 3), (7, 3), (5, 4)])
def test_fewer_shares_have_one_distribution_for_every_secret(q: int, threshold: int) -> None:
    """Count all polynomials: at any t - 1 points each tuple of values comes up exactly once."""
    points = range(1, q)
    for secret in range(q):
        sharings = [
            shamir._split(secret, threshold, points, draws(coefficients, 1), q)
            for coefficients in product(range(q), repeat=threshold - 1)
        ]
        for seen in combinations(range(len(points)), threshold - 1):
            views = Counter(tuple(values[i] for i in seen) for values in sharings)
            assert views == Counter(product(range(q), repeat=threshold - 1))


@pytest.mark.parametrize("q", [2, 5, 7, 127, 251])
def test_coefficients_are_uniform(q: int) -> None:
    """Of all 256 bytes each residue is left equally often, and no full multiple of q is wasted."""
    kept: Counter[int] = Counter()
    for byte in range(256):
        try:
            kept[shamir._uniform(draws([byte], 1), q)] += 1
        except StopIteration:  # thrown away: another byte was asked for
            continue
    assert kept == dict.fromkeys(range(q), 256 // q)


def test_rejection_at_the_size_in_use() -> None:
    end = 255 * Q
    assert end <= 2**264 < end + Q
    assert shamir._uniform(draws([end - 1], 33), Q) == Q - 1
    assert shamir._uniform(draws([end, 2**264 - 1, 5], 33), Q) == 5


# --- wrong shares -----------------------------------------------------------------------------


@pytest.mark.parametrize("point", [1, 2, 3])
def test_a_wrong_share_gives_another_secret(point: int) -> None:
    """Nothing in the shares tells; whoever combines them compares with what was advertised."""
    shares = {at: SHARES[at] for at in (1, 2, 3)} | {point: wrong(SHARES[point])}
    assert shamir.combine(shares) != SECRET


def test_fewer_shares_than_the_threshold_give_another_secret() -> None:
    assert shamir.combine({1: SHARES[1], 5: SHARES[5]}) != SECRET


def test_shares_come_in_any_order() -> None:
    assert shamir.combine(dict(reversed(SHARES.items()))) == SECRET


def test_shares_of_no_32_byte_secret() -> None:
    with pytest.raises(PeerError, match="do not combine to a 32-byte secret"):
        shamir.combine({1: (2**256).to_bytes(33, "little")})


@pytest.mark.parametrize(
    ("point", "share"),
    [
        (1, SHARES[1][:-1]),
        (1, SHARES[1] + b"\0"),
        (1, b""),
        (1, Q.to_bytes(33, "little")),
        (1, b"\xff" * 33),
        (5, Q.to_bytes(33, "little")),
        (0, SHARES[1]),
        (-1, SHARES[1]),
        (2**32, SHARES[1]),
    ],
)
def test_malformed_shares_are_a_peers_fault(point: int, share: bytes) -> None:
    with pytest.raises(PeerError, match="malformed"):
        shamir.combine({**SHARES, point: share})


def test_no_shares_are_our_fault() -> None:
    with pytest.raises(ValueError, match="at least one share"):
        shamir.combine({})


@pytest.mark.parametrize(
    ("secret", "threshold", "points"),
    [
        (bytes(31), 2, [1, 2]),
        (bytes(33), 2, [1, 2]),
        (bytes(32), 0, [1, 2]),
        (bytes(32), 3, [1, 2]),
        (bytes(32), 1, []),
        (bytes(32), 2, [1, 1]),
        (bytes(32), 2, [0, 1]),
        (bytes(32), 2, [-1, 1]),
        (bytes(32), 2, [1, 2**32]),
    ],
)
def test_split_refuses(secret: bytes, threshold: int, points: list[int]) -> None:
    with pytest.raises(ValueError, match=r"32 bytes|threshold|points"):
        shamir.split(secret, threshold, points, system_random)


def test_threshold_one_and_all() -> None:
    alone = shamir.split(SECRET, 1, [4, 5], system_random)
    assert set(alone.values()) == {SECRET + b"\0"}
    together = shamir.split(SECRET, 5, [1, 2, 3, 4, 5], system_random)
    assert shamir.combine(together) == SECRET
    assert shamir.combine({point: together[point] for point in (1, 2, 3, 4)}) != SECRET
