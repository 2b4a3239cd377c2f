"""Oracles: the drawn polynomial in Python integers, and every case counted in small fields."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations, product
from math import prod

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
    """Return a source of randomness that yields exactly these integers."""
    remaining = iter(values)

    def random(n: int) -> bytes:
        assert n == size
        return next(remaining).to_bytes(n, "little")

    return random


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
def test_split_secrets_are_combined_again(sharing: tuple[bytes, int, list[int], list[int]]) -> None:
    secret, threshold, points, kept = sharing
    shares = shamir.split(secret, threshold, points, system_random)
    assert list(shares) == points
    assert all(len(share) == shamir.SHARE_BYTES for share in shares.values())
    assert shamir.combine({point: shares[point] for point in kept}) == secret


def test_shares_are_values_of_the_polynomial_that_was_drawn() -> None:
    coefficients = [Q - 1, 0, 2**200 + 1]  # highest power first
    shares = shamir.split(SECRET, 4, [1, 9, 77, 2**32 - 1], draws(coefficients, 33))
    for x, share in shares.items():
        value = int.from_bytes(SECRET, "little") + sum(
            c * x**power for power, c in zip((3, 2, 1), coefficients, strict=True)
        )
        assert int.from_bytes(share, "little") == value % Q


def test_known_coefficients_give_known_shares() -> None:
    assert {point: share.hex() for point, share in SHARES.items()} == {
        1: "5d68c4b7d27c900b8280c8ccdaa44cb5c69310530435b248bee18496bf6dafd900",
        2: "52bf85e173a4c557166cdb78a333403e988ca0667a271959ce0b40c88285575800",
        3: "31084680e77ba5ebc4cb420f66b9e8a984fbc14d76ec4a4848974bb06564169b00",
        4: "d14105942d0330c78d9ffe8f223646f88be07408f88347162c84a74e680aeca100",
        5: "326cc31c463a65ea70e70efbd8a95829ae3bb996ffed0ec379d253a38a77d86c00",
    }


# --- fewer give nothing -----------------------------------------------------------------------


@pytest.mark.parametrize(("q", "threshold"), [(5, 2), (5, 3), (7, 3), (5, 4)])
def test_fewer_shares_have_the_same_distribution_for_every_secret(q: int, threshold: int) -> None:
    """Count all polynomials: at any t - 1 points each tuple of values occurs exactly once."""
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
    """Of all 256 bytes, each residue occurs equally often, and as few as possible are rejected."""
    accepted: Counter[int] = Counter()
    for byte in range(256):
        try:
            accepted[shamir._uniform(draws([byte], 1), q)] += 1
        except StopIteration:  # rejected: another byte was requested
            continue
    assert accepted == dict.fromkeys(range(q), 256 // q)


def test_values_beyond_the_last_multiple_of_the_field_are_redrawn() -> None:
    end = 255 * Q
    assert end <= 2**264 < end + Q
    assert shamir._uniform(draws([end - 1], 33), Q) == Q - 1
    assert shamir._uniform(draws([end, 2**264 - 1, 5], 33), Q) == 5


# --- wrong shares -----------------------------------------------------------------------------


def test_a_wrong_share_or_too_few_shares_give_another_secret() -> None:
    """The shares do not show it: the recipient must compare the secret with what was advertised."""
    for point in (1, 2, 3):
        shares = {at: SHARES[at] for at in (1, 2, 3)} | {point: wrong(SHARES[point])}
        assert shamir.combine(shares) != SECRET
    assert shamir.combine({1: SHARES[1], 5: SHARES[5]}) != SECRET


@pytest.mark.parametrize(
    "shares",
    [
        {1: (2**256).to_bytes(33, "little")},  # not a secret of 32 bytes
        *({**SHARES, 1: share} for share in (SHARES[1][:-1], SHARES[1] + b"\0", b"")),
        {**SHARES, 1: Q.to_bytes(33, "little")},
        {**SHARES, 5: b"\xff" * 33},
        *({**SHARES, point: SHARES[1]} for point in (0, -1, 2**32)),
    ],
)
def test_malformed_shares_are_refused(shares: dict[int, bytes]) -> None:
    with pytest.raises(PeerError):
        shamir.combine(shares)


@pytest.mark.parametrize(
    ("size", "threshold", "points"),
    [
        (31, 2, [1, 2]), (33, 2, [1, 2]), (32, 0, [1, 2]), (32, 3, [1, 2]), (32, 1, []),
        (32, 2, [1, 1]), (32, 2, [0, 1]), (32, 2, [-1, 1]), (32, 2, [1, 2**32]),
    ],
)  # fmt: skip
def test_arguments_out_of_range_are_refused(size: int, threshold: int, points: list[int]) -> None:
    with pytest.raises(ValueError):
        shamir.split(bytes(size), threshold, points, system_random)
    with pytest.raises(ValueError):
        shamir.combine({})


def test_thresholds_of_one_and_of_all_shares_work() -> None:
    single = shamir.split(SECRET, 1, [4, 5], system_random)
    assert set(single.values()) == {SECRET + b"\0"}
    shares = shamir.split(SECRET, 5, [1, 2, 3, 4, 5], system_random)
    assert shamir.combine(dict(reversed(shares.items()))) == SECRET
    assert shamir.combine({point: shares[point] for point in (1, 2, 3, 4)}) != SECRET


@given(st.sets(st.integers(1, 2**32 - 1) | st.integers(1, 300), min_size=1, max_size=60))
def test_weights_are_lagranges(points: set[int]) -> None:
    ordered = tuple(sorted(points))
    for x, weight in zip(ordered, shamir._weights(ordered), strict=True):
        others = [other for other in ordered if other != x]
        expected = prod(others) * pow(prod(other - x for other in others), -1, shamir._Q)
        assert weight == expected % shamir._Q
