"""Transcripts of the masked sum look like noise; those of broken variants raise an alarm.

A *view* is m elements that an attacker can compute from messages, as uint64 limbs of shape (m,
limbs). If the protocol is secure, every view is uniform and independent of the contributions. The
checks below then raise an alarm with probability at most 2^-20 for the whole file, for any seeds:

* each p-value follows from an exact binomial law or a proved inequality, never from a limit law:
  P(p <= a) <= a for a view of uniform elements (AES and HMAC-SHA256 are assumed to be random);
* several p-values are compared by Bonferroni, with no assumption on their dependence;
* each of the 8 cases of secure views has 2^-23.

Each broken variant is the protocol with one small function replaced, and must raise the alarm.
"""

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from secagg.contracts import Context, PhaseRequest, Shape, Total
from secagg.core import ring
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import RandomBytes, replayable_random
from secagg.core.ring import RingVector
from secagg.protocols import prg
from secagg.protocols.masked import masks, shamir
from secagg.protocols.masked import site as site_steps
from secagg.protocols.masked.protocol import Masked

ALARM = 2.0**-20 / 8
VALUE_BITS = 42

Views = NDArray[np.uint64]  # (views, elements, limbs)


# --- checks: each returns p-values ------------------------------------------------------------


def two_sided(counts: NDArray[Any], trials: int, rate: float) -> NDArray[np.float64]:
    """P-values of counts under the binomial law, exact."""
    low, high = stats.binom.cdf(counts, trials, rate), stats.binom.sf(counts - 1, trials, rate)
    return np.minimum(1.0, 2 * np.minimum(low, high)).reshape(-1)


def bits(views: Views) -> NDArray[np.float64]:
    """Each bit of each limb is set in half of the elements."""
    places = np.arange(64, dtype=np.uint64)
    ones = ((views[..., None] >> places) & np.uint64(1)).sum(axis=1)
    return two_sided(ones, views.shape[1], 0.5)


def bytes_(views: Views) -> NDArray[np.float64]:
    """Each of the 256 byte values occurs equally often."""
    counts = [np.bincount(view.reshape(-1).view(np.uint8), minlength=256) for view in views]
    return two_sided(np.array(counts), views[0].size * 8, 1 / 256)


def distinct(views: Views) -> NDArray[np.float64]:
    """No two elements are equal: P <= number of pairs / 2^(64 limbs), a union bound."""
    elements = views.reshape(-1, views.shape[2])
    n = len(elements)
    repeated = len(np.unique(elements, axis=0)) < n
    return np.array([n * (n - 1) / 2 * 2.0 ** (-64 * views.shape[2]) if repeated else 1.0])


def centred(views: Views) -> NDArray[np.float64]:
    """Each limb as a number in [-1, 1), shape (views, elements * limbs)."""
    return views.view(np.int64).reshape(len(views), -1) / 2.0**63


def against(fixed: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """P-values of inner products of `fixed` with uniform numbers in [-1, 1).

    Those are sub-Gaussian with their own variance 1/3, so P(|sum| >= z s) <= 2 exp(-z^2 / 2) with
    s^2 = sum of fixed^2 / 3.
    """
    squares = 3 * (fixed * uniform).sum(axis=-1) ** 2 / (fixed**2).sum(axis=-1)
    return np.minimum(1.0, 2 * np.exp(-squares / 2)).reshape(-1)


def uncorrelated(views: Views, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
    """No view correlates with the values that it hides: neither its limbs nor its low bits, as many
    as a contribution has, which would show an unmasked contribution at full size."""
    fixed = hidden - hidden.mean(axis=1, keepdims=True)
    low = views[:, :, :1] << np.uint64(64 - VALUE_BITS)
    by_limb = np.repeat(fixed, views.shape[2], axis=1)
    return np.concatenate([against(fixed, centred(low)), against(by_limb, centred(views))])


def wide(tops: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Elements are rarely as small as contributions and their sums are, by their top limbs."""
    near = np.uint64(1 << VALUE_BITS)
    small = (tops + near <= near + near).sum(axis=-1)
    return stats.binom.sf(small - 1, tops.shape[-1], (2 * int(near) + 1) / 2**64).reshape(-1)


def strangers(views: Views) -> NDArray[np.float64]:
    """No two views correlate, and masks do not repeat (small differences) or cancel (sums)."""
    numbers, tops = centred(views), views[:, :, -1]
    i, j = np.array(list(combinations(range(len(views)), 2))).T
    return np.concatenate(
        [against(numbers[i], numbers[j]), wide(tops[i] - tops[j]), wide(tops[i] + tops[j])]
    )


def alarms(**p_values: NDArray[np.float64]) -> set[str]:
    """Return the checks whose smallest p-value is too small, by Bonferroni over all of them."""
    tests = sum(len(values) for values in p_values.values())
    return {name for name, values in p_values.items() if values.min() * tests < ALARM}


def check(views: Views, hidden: NDArray[np.float64], *, dependent: bool = False) -> set[str]:
    """Return the alarms that views raise.

    hidden: the values that each view should hide, shape (views, elements)
    dependent: views may be sums of each other, so that only each single view must be noise
    """
    found = {
        "bits": bits(views),
        "bytes": bytes_(views),
        "wide": wide(views[:, :, -1]),
        "uncorrelated": uncorrelated(views, hidden),
    }
    if not dependent:
        found |= {"distinct": distinct(views), "strangers": strangers(views)}
    return alarms(**found)


# --- a session whose messages are watched -----------------------------------------------------

LENGTH = 3000
SITES = ("a", "b", "c", "d", "e")


class Session:
    """The masked protocol without engine or release rules; each site sends the same every time."""

    def __init__(self, ring_bits: int, seed: int) -> None:
        self.random = replayable_random(seed)
        self.shape = Shape(ring_bits, LENGTH, VALUE_BITS)
        roles = [("coordinator", Role.COORDINATOR), *((site, Role.SITE) for site in SITES)]
        self.identities = {n: Identity.generate(n, role, self.random) for n, role in roles}
        self.roster = Roster({n: i.public for n, i in self.identities.items()})
        self.session = self.roster.session(self.random(16), b"job")
        self.protocol = Masked(colluding=0.2)
        # A different wave at each site: easy to detect in a view.
        self.hidden = {
            site: np.round(2.0**40 * np.sin(np.arange(LENGTH) / (3 + i)))
            for i, site in enumerate(SITES)
        }
        self.states: dict[str, dict[str, Any]] = {site: {} for site in SITES}
        self.server_state: dict[str, Any] = {}
        self.cohort = list(SITES)
        self.round = 0

    def context(self, name: str) -> Context:
        return Context(
            self.session, self.round, self.identities[name], self.roster, self.shape, self.random,
            b"request",
        )  # fmt: skip

    def sum(self, late: str | None = None) -> dict[str, RingVector]:
        """Run one sum; return all uploads, including that of the late site, which is not used."""
        uploads: dict[str, RingVector] = {}
        phase, replies = "sum", {site: dict[str, Any]() for site in self.cohort}
        while True:
            self.server_state, step = self.protocol.server(
                phase, self.server_state, replies, self.context("coordinator")
            )
            if not isinstance(step, PhaseRequest):
                break
            phase, replies = step.phase, {}
            named = {"cohort": self.cohort, "contributors": list(step.contributors)}
            for site, body in step.bodies.items():
                contribution = self.contribution(site).copy() if phase == "mask" else None
                self.states[site], replies[site] = self.protocol.client(
                    phase, self.states[site], {**body, **named}, self.context(site), contribution
                )
            if phase == "mask":
                uploads = {site: reply["masked"] for site, reply in replies.items()}
                replies = {site: reply for site, reply in replies.items() if site != late}
        assert isinstance(step, Total)
        self.cohort = list(step.contributors)
        expected = ring.total(map(self.contribution, self.cohort), LENGTH, self.shape.ring_bits)
        np.testing.assert_array_equal(step.values, expected)
        self.round += 1
        return uploads

    def contribution(self, site: str) -> RingVector:
        return ring.from_integers(self.hidden[site].astype(int).tolist(), self.shape.ring_bits)


Break = Callable[[pytest.MonkeyPatch], None]


def nothing(_: pytest.MonkeyPatch) -> None:
    """Break nothing."""


def verdict(raised: set[str], caught: set[str]) -> None:
    """Require no alarm if `caught` is empty, and at least these alarms otherwise."""
    assert raised >= caught if caught else not raised


RINGS = pytest.mark.parametrize("ring_bits", [64, 128])


# --- uploads: every site, every round ---------------------------------------------------------


def masks_without_top_bits(patch: pytest.MonkeyPatch) -> None:
    """Masks of 48 bits instead of 64: wide enough for the values, too narrow for the ring."""

    def short(vector: RingVector, add: list[bytes], subtract: list[bytes]) -> None:
        for seeds, apply in ((add, ring.add_in_place), (subtract, ring.subtract_in_place)):
            for seed in seeds:
                mask = np.zeros_like(vector)
                prg.apply_masks(mask, [seed], [])
                mask[:, -1] >>= np.uint64(16)
                apply(vector, [mask])

    patch.setattr(masks, "apply_masks", short)


def labels_without_round(patch: pytest.MonkeyPatch) -> None:
    """Labels without the round and the previous label: masks of later sums repeat."""
    label = masks.label
    patch.setattr(masks, "label", lambda session, _, __, *rest: label(session, 0, b"", *rest))


@RINGS
@pytest.mark.parametrize(
    ("broken", "caught"),
    [
        (nothing, set()),
        (masks_without_top_bits, {"bits", "bytes"}),
        (labels_without_round, {"strangers"}),
    ],
)
def test_masked_uploads_look_uniform_and_breaks_are_caught(
    ring_bits: int, broken: Break, caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    session = Session(ring_bits, 1)
    uploads = [upload for _ in range(5) for upload in session.sum().items()]
    views = np.array([vector for _, vector in uploads])
    hidden = np.array([session.hidden[site] for site, _ in uploads])
    verdict(check(views, hidden), caught)


# --- partial sums: all but all sites ----------------------------------------------------------


def neighbours_in_two_pieces(patch: pytest.MonkeyPatch) -> None:
    """a and b share masks, and so do c, d and e: the sum of each group is unmasked."""
    pieces = ("ab", "cde")
    graph = {site: tuple(set(piece) - {site}) for piece in pieces for site in piece}
    patch.setattr(site_steps, "draw_graph", lambda *_: graph)


@RINGS
@pytest.mark.parametrize(
    ("broken", "caught"), [(nothing, set()), (neighbours_in_two_pieces, {"wide", "uncorrelated"})]
)
def test_sums_over_a_subset_of_sites_look_uniform(
    ring_bits: int, broken: Break, caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a later sum, which has no self masks."""
    session = Session(ring_bits, 2)
    session.sum()
    broken(monkeypatch)
    uploads = session.sum()
    some = [part for size in range(1, len(SITES)) for part in combinations(SITES, size)]
    views = np.array([ring.total((uploads[s] for s in part), LENGTH, ring_bits) for part in some])
    hidden = np.array([sum(session.hidden[site] for site in part) for part in some])
    verdict(check(views, hidden, dependent=True), caught)


# --- uploads of sites that count as dropped, without their pairwise masks ---------------------


def without_self_mask(patch: pytest.MonkeyPatch) -> None:
    mask, unmask = masks.mask, masks.unmask
    patch.setattr(masks, "mask", lambda vector, me, pairs, _: mask(vector, me, pairs, None))
    patch.setattr(masks, "unmask", lambda vector, _, lost: unmask(vector, [], lost))


def watch_recovery(patch: pytest.MonkeyPatch) -> dict[str, Mapping[str, bytes]]:
    """Return a dictionary that receives the seeds of dropped sites from the coordinator."""
    recovered: dict[str, Mapping[str, bytes]] = {}
    unmask = masks.unmask

    def watched(vector: RingVector, own: list[bytes], lost: Mapping[str, Mapping[str, bytes]]):
        recovered.update(lost)
        unmask(vector, own, lost)

    patch.setattr(masks, "unmask", watched)
    return recovered


@RINGS
@pytest.mark.parametrize(
    ("broken", "caught"), [(nothing, set()), (without_self_mask, {"wide", "uncorrelated"})]
)
def test_late_uploads_look_uniform(
    ring_bits: int, broken: Break, caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has the upload and the key of a site that it declared dropped."""
    broken(monkeypatch)
    views, hidden = [], []
    for seed, late in enumerate(SITES):
        session = Session(ring_bits, 10 + seed)
        with monkeypatch.context() as patch:
            recovered = watch_recovery(patch)
            upload = session.sum(late)[late].copy()
        seeds = recovered[late]
        assert set(seeds) == set(SITES) - {late}
        prg.apply_masks(
            upload,
            [seed for peer, seed in seeds.items() if peer < late],
            [seed for peer, seed in seeds.items() if peer > late],
        )
        views.append(upload)
        hidden.append(session.hidden[late])
    verdict(check(np.array(views), np.array(hidden)), caught)


# --- seeds ------------------------------------------------------------------------------------


def seeds_of_28_bits(patch: pytest.MonkeyPatch) -> None:
    """The seeds of a widely used implementation of the same protocol."""
    seed = masks.seed
    patch.setattr(masks, "seed", lambda *of: bytes([*(s := seed(*of))[:3], s[3] & 15]) + bytes(28))


@pytest.mark.parametrize(("broken", "caught"), [(nothing, set()), (seeds_of_28_bits, {"distinct"})])
def test_masks_of_different_labels_and_keys_never_repeat(
    broken: Break, caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Birthdays: among 2^17 masks of 28-bit seeds 32 pairs are expected; none has P = e^-32."""
    broken(monkeypatch)
    random = replayable_random(3)
    keys, labels = [random(32) for _ in range(2**8)], [random(32) for _ in range(2**9)]
    seeds = [masks.seed(key, label) for key in keys for label in labels]
    first = ring.zeros(len(seeds), 128)
    for i, seed in enumerate(seeds):
        prg.apply_masks(first[i : i + 1], [seed], [])
    verdict(alarms(distinct=distinct(first[None])), caught)


# --- shares -----------------------------------------------------------------------------------


def split_of_lower_degree(patch: pytest.MonkeyPatch) -> None:
    split = shamir.split
    patch.setattr(
        shamir, "split", lambda secret, t, points, random: split(secret, t - 1, points, random)
    )


def coefficients_of_128_bits(patch: pytest.MonkeyPatch) -> None:
    split = shamir.split

    def short(secret: bytes, t: int, points: list[int], random: RandomBytes) -> dict[int, bytes]:
        return split(secret, t, points, lambda n: random(16) + bytes(n - 16))

    patch.setattr(shamir, "split", short)


@pytest.mark.parametrize(
    ("broken", "caught"),
    [(nothing, set()), (split_of_lower_degree, {"bits"}), (coefficients_of_128_bits, {"bits"})],
)
def test_one_share_too_few_looks_uniform(
    broken: Break, caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4 that are needed: the 3 shares themselves, and what they interpolate to at 0.

    Shares are uniform below 2^256 + 297: on 32 bytes that is uniform but for 2^-247.
    """
    broken(monkeypatch)
    random = replayable_random(4)
    views: list[list[bytes]] = [[], [], [], []]
    secrets = range(0, 2000 << 31, 1 << 31)
    for secret in secrets:
        shares = shamir.split(secret.to_bytes(32, "little"), 4, [1, 2, 3, 5, 8, 13], random)
        seen = {point: shares[point] for point in (2, 3, 13)}
        for view, share in zip(views, [*seen.values(), shamir.combine(seen)], strict=True):
            view.append(share[:32])
    limbs = np.array([np.frombuffer(b"".join(view), "<u8").reshape(-1, 4) for view in views])
    hidden = np.tile(np.array(secrets, dtype=np.float64), (4, 1))
    verdict(check(limbs, hidden), caught)
