"""Sessions of a job over some of its sites, opened by a coordinator that lies about who answered.

Each attack is played twice: with thresholds for the sites of the session alone, as in an earlier
version, and with thresholds for the sites that the job names. The first is the positive control.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.crashes.consortium import remote_job
from support.protocols.world import STAGE, SumNumbers, World, run_until

from secagg.contracts import Context, SecureSum
from secagg.core import canonical_encoding
from secagg.core.frames import peek_header, read_frame, write_frame
from secagg.errors import JobError, PolicyRefusal, ProtocolAbort, SecaggError
from secagg.privacy.policy.differencing import exposed
from secagg.privacy.policy.named_sites import NamedSites
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.protocols.masked import masks, shamir
from secagg.protocols.masked.protocol import Masked
from secagg.protocols.paillier.encrypted_vectors import EncryptedVectors
from secagg.protocols.paillier.key_shares import KeyShare, combine, partially_decrypt
from secagg.protocols.paillier.keys import PublicKey
from secagg.protocols.paillier.single_key import Paillier
from secagg.protocols.paillier.threshold import ThresholdPaillier
from secagg.protocols.prg import apply_masks
from secagg.sessions.fixed_point import decode
from secagg.sessions.planned_job import agreement, plan_sites

Numbers = dict[str, NDArray[np.float64]]
SIZES = (10, 15, 20, 30)


def site_names(n: int) -> list[str]:
    return [f"site_{i:02d}" for i in range(n)]


class Counted(NamedSites):
    """Named sites of which a session may have any, so that only thresholds protect."""

    def fault(self, sites: Collection[str]) -> str:
        return ""

    def check(self, who: str, cohort: Collection[str], min_sites: int | None) -> None:
        pass


def counted(n: int) -> NamedSites:
    return Counted((tuple(site_names(n)),), 0)


# --- masked: two lists of survivors -----------------------------------------------------------


def secrets_of_a_site(
    protocol: Masked, world: World, colluding: Sequence[str], sent: dict[str, bytes]
) -> int | None:
    """Show two lists of survivors to two halves of the honest sites; only one has the first site.

    Return the number of records of the first site, read off its masked contribution of the first
    sum, or None if the honest sites reveal too few shares. sent: the masked contributions
    """
    state = run_until(world, "agree").state
    names, label = sorted(world.numbers), state.protocol["label"]
    honest = [name for name in names if name not in colluding]
    victim, half = honest[0], (len(honest) + 1) // 2
    lists = {s: [*honest[:half], *colluding] for s in honest[:half]}
    lists |= {s: [*honest[half:], *colluding] for s in honest[half:]}

    def ask(site: str, phase: str, body: dict[str, Any]) -> Any:
        frame = write_frame(
            world.coordinator.identity, world.session, 0, phase, site, {**body, "stage": "cohort"}
        )
        handled = world.engine.parties[site].handle(frame, world.engine.states[site])
        world.engine.states[site] = handled.state
        if handled.error is not None:
            return {}
        return read_frame(handled.reply, world.roster, "coordinator", world.session).body

    def signature(site: str, survivors: Sequence[str]) -> Any:
        digest = masks.survivors_digest(label, sorted(survivors))
        context = Context(
            world.session, 0, world.identities[site], world.roster,
            world.plans.of("cohort").shape, world.random,
        )  # fmt: skip
        return masks.sign_statement(context, "agree", {"survivors": digest})

    signed = {s: ask(s, "agree", {"survivors": lists[s]}).get("statement") for s in honest}
    shown = {}
    for site, survivors in lists.items():
        statements = {s: signed[s] for s in survivors if signed.get(s) is not None}
        statements |= {s: signature(s, survivors) for s in colluding}
        claims = {s: state.claims[s] for s in survivors}
        body = {"contributors": survivors, "claims": claims, "statements": statements}
        shown[site] = ask(site, "unmask", body).get("shares")
    held = {
        s: canonical_encoding.loads(world.engine.states[s])["protocol"]["held"] for s in colluding
    }
    points = {name: i + 1 for i, name in enumerate(names)}
    own, first = (
        {points[s]: held[s][victim][kind] for s in colluding} for kind in ("self", "first")
    )
    for site, shares in shown.items():
        if shares is not None:
            (own if victim in lists[site] else first)[points[site]] = shares[victim]
    directory = {s: masks.PublicKeys(**k) for s, k in state.protocol["directory"].items()}
    threshold = protocol.plan(
        Context(world.session, 0, world.identities[victim], world.roster,
                world.plans.of("cohort").shape, world.random,
                named=0 if world.named is None else len(world.named.names))
    ).threshold  # fmt: skip
    if min(len(own), len(first)) < threshold:
        return None
    self_secret = shamir.combine(dict(sorted(own.items())[:threshold]))
    private = shamir.combine(dict(sorted(first.items())[:threshold]))
    if masks.public_key(private) != directory[victim].first:
        return None
    public = {s: directory[s].first for s in names if s != victim}
    pairs = masks.pair_keys(private, public, "first", victim, world.session)
    seeds = {peer: masks.seed(key, label) for peer, key in pairs.items()}
    masked = read_frame(sent[victim], world.roster, "coordinator", world.session).body["masked"]
    alone = masked.copy()
    apply_masks(
        alone,
        [seed for peer, seed in seeds.items() if peer < victim],
        [*(seed for peer, seed in seeds.items() if victim < peer), masks.seed(self_secret, label)],
    )
    fields, _ = decode(world.plans.of("cohort"), alone)
    return int(fields["records"][0])


def survivor_lists(n: int, colluding: float, *, named: bool) -> int | str | None:
    """Play the attack in the smallest session of n named sites that is allowed."""
    protocol = Masked(colluding=colluding)
    present = site_names(n)[: protocol.least_sites(n)]
    numbers = {name: np.full(3 + i, 0.5) for i, name in enumerate(present)}
    sent: dict[str, bytes] = {}

    def note(sender: str, recipient: str, frame: bytes) -> list[bytes]:
        if recipient == "coordinator" and peek_header(frame)[1] == "mask":
            sent[sender] = frame
        return [frame]

    known = counted(n) if named else None
    world = World(protocol, numbers, SumNumbers((3,)), tamper=note, named=known)
    colluding_sites = present[-protocol.max_colluding(n) :]
    try:
        return secrets_of_a_site(protocol, world, colluding_sites, sent)
    except (PolicyRefusal, ProtocolAbort) as refused:
        return refused.what


@pytest.mark.attack
@pytest.mark.parametrize(
    ("n", "colluding"), [*((n, 1 / 3) for n in SIZES), (20, 0.4), (18, 0.25), (16, 0.25)]
)
def test_two_lists_of_survivors_expose_no_site_of_a_smaller_session(
    n: int, colluding: float
) -> None:
    before, after = (survivor_lists(n, colluding, named=named) for named in (False, True))
    print(f"masked, {n} named sites: before {before} records of one site, now {after}")
    assert before == 3  # the first site's own number of records
    assert after is None


# --- threshold_paillier: the key, from fewer sites ----------------------------------------------


def decrypted_alone(n: int, threshold: int | None, *, named: bool) -> list[float] | str:
    """Decrypt one site's ciphertexts with the shares of as many sites as may collude, passively.

    n: number of named sites; the session has the smallest number of them that is allowed
    """
    protocol = ThresholdPaillier(key_bits=2048, threshold=threshold)
    present = site_names(n)[: protocol.least_sites(n)]
    numbers = {name: np.arange(4.0) + i for i, name in enumerate(present)}
    world = World(
        protocol, numbers, SumNumbers((4,)), named=counted(n) if named else None
    )  # fmt: skip
    state = run_until(world, "decrypt", 1).state.protocol
    public = PublicKey(state["n"], state["h_s"])
    context = Context(
        world.session, 1, world.identities[present[0]], world.roster, world.plans.of(STAGE).shape,
        world.random,
    )  # fmt: skip
    sums = EncryptedVectors.of(public, context)
    victim, m = present[0], len(present)  # the dealer is the first site, and does not collude
    ciphertexts = sums.ciphertexts(victim, state["ciphertexts"][victim])
    answers = {}
    for site in present[-protocol.max_colluding(n) :]:
        index = present.index(site) + 1
        share = canonical_encoding.loads(world.engine.states[site])["protocol"]["share"]
        answers[index] = partially_decrypt(KeyShare(public, m, index, share), ciphertexts)
    try:
        plaintexts = combine(public, m, answers, ciphertexts)
    except ProtocolAbort as error:
        return error.what
    fields, _ = decode(world.plans.of(STAGE), sums.total(plaintexts, 1))
    return fields["x"].tolist()  # type: ignore[no-any-return]


@pytest.mark.attack
@pytest.mark.parametrize("n", [*SIZES, 9, 13])
def test_as_many_sites_as_may_collude_cannot_decrypt_in_a_smaller_session(n: int) -> None:
    before, after = (decrypted_alone(n, None, named=named) for named in (False, True))
    print(f"threshold_paillier, {n} named sites: before {before} of one site, now {after}")
    assert before == [0.0, 1.0, 2.0, 3.0]
    assert isinstance(after, str) and "inconsistent" in after


# --- many sessions of one job, without colluding sites ------------------------------------------


def ledgers_allow(sessions: Sequence[frozenset[str]], k: int) -> bool:
    """Return whether each site's ledger allows the sessions that it is in, in this order."""
    return all(
        exposed([s for s in sessions[:i] if site in s], cohort, k) is None
        for i, cohort in enumerate(sessions)
        for site in cohort
    )


def fewest_exposed(sessions: Sequence[frozenset[str]], names: Sequence[str], k: int) -> int:
    """Return the smallest number of sites that a combination depends on; k if it is k or more.

    By ranks: a vector of the row space that is zero outside a set exists if and only if the columns
    outside have a smaller rank than all columns.
    """
    matrix = np.array([[name in s for name in names] for s in sessions], dtype=float)
    rank = np.linalg.matrix_rank(matrix)
    for size in range(1, k):
        for group in itertools.combinations(range(len(names)), size):
            if np.linalg.matrix_rank(np.delete(matrix, group, axis=1)) < rank:
                return size
    return k


def blocks(names: Sequence[str], k: int) -> list[frozenset[str]]:
    """Return sessions of which each leaves out one block of about k / 2 sites.

    Two sessions differ by k sites or more, and each site is missing in one of them. So each ledger
    sees one session less, and without it no combination depends on fewer than k sites. All of them
    together show each block (docs/math/differencing.md).
    """
    size = (k + 1) // 2
    count = len(names) // size
    cuts = [i * size for i in range(count)] + [len(names)]
    return [frozenset(names) - set(names[a:b]) for a, b in itertools.pairwise(cuts)]


@pytest.mark.attack
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("n", SIZES)
def test_sessions_without_a_common_site_expose_no_group_of_sites(n: int, k: int) -> None:
    """Any two sessions are large enough for `masked`: they have an honest site in common."""
    names, least = site_names(n), Masked().least_sites(n)
    sessions = blocks(names, k)
    assert all(len(session) >= least for session in sessions)  # allowed before
    assert ledgers_allow(sessions, k)
    before = fewest_exposed(sessions, names, k)
    named = NamedSites.of(tuple(names), k, max(k, least))
    left = sum(not named.fault(session) for session in sessions)
    every = [frozenset(names), *(frozenset(names) - set(group) for group in named.groups)]
    allowed = [session for session in every if not named.fault(session)]
    after = fewest_exposed(allowed, names, k)
    print(
        f"{n} named sites, min_sites {k}, {len(sessions)} sessions: before, a combination of "
        f"{before} site(s); now {left} of them allowed, and of the {len(allowed)} sessions with at "
        f"most one group left out no combination of fewer than {after}"
    )
    assert before < k == after


def all_cohorts(names: Sequence[str]) -> Iterator[frozenset[str]]:
    for size in range(len(names) + 1):
        yield from map(frozenset, itertools.combinations(names, size))


@pytest.mark.attack
@pytest.mark.parametrize(
    ("n", "k"), [(n, k) for n in range(2, 9) for k in (2, 3, 4) if k <= n]
)  # fmt: skip
def test_no_family_of_allowed_sessions_exposes_fewer_than_min_sites(n: int, k: int) -> None:
    """All families, for all smallest numbers of sites; no ledger is asked."""
    names = site_names(n)
    for least in range(k, n + 1):
        named = NamedSites.of(tuple(names), k, least)
        allowed = [cohort for cohort in all_cohorts(names) if not named.fault(cohort)]
        assert frozenset(names) in allowed
        assert min(map(len, allowed)) == named.fewest >= k
        if len(allowed) > 4:  # the row space of a family contains that of each part of it
            assert fewest_exposed(allowed, names, k) == k
            continue
        for size in range(1, len(allowed) + 1):
            for family in itertools.combinations(allowed, size):
                assert fewest_exposed(family, names, k) == k


@pytest.mark.attack
def test_a_rule_on_the_number_of_sites_alone_allows_no_second_cohort_or_too_much() -> None:
    """With n sites of which d may be missing, it is safe if 2 d < k, and not if 2 d >= k.

    The second half is for the n that blocks of k / 2 sites divide.
    """
    for n, k in itertools.product(range(3, 13), range(2, 6)):
        names, size = site_names(n), (k + 1) // 2
        if n % size == 0 and n // size >= 3:
            assert ledgers_allow(blocks(names, k), k)
            assert fewest_exposed(blocks(names, k), names, k) == size < k
    for n, k in itertools.product(range(3, 8), range(2, 5)):
        names, missing = site_names(n), (k - 1) // 2
        large = [cohort for cohort in all_cohorts(names) if len(cohort) >= max(k, n - missing)]
        for first, second in itertools.combinations(large, 2):
            assert not ledgers_allow([first, second], k)


# --- one session: a site that is said to be missing in the first sum ---------------------------


@pytest.mark.attack
@pytest.mark.parametrize(
    "protocol",
    [Masked(), Additive(), Paillier(key_bits=2048), ThresholdPaillier(key_bits=2048)],
    ids=lambda protocol: protocol.name,
)
@pytest.mark.parametrize("missing", ["site_00", "site_02"])
def test_no_party_opens_a_first_sum_without_one_of_the_named_sites(
    protocol: SecureSum, missing: str
) -> None:
    """Else each of n sessions could leave out another site, and no ledger would show this."""
    contributing = {phase.name for phase in protocol.phases if phase.contributes}

    def drop(sender: str, recipient: str, frame: bytes) -> list[bytes]:
        lost = sender == missing and peek_header(frame)[1] in contributing
        return [] if lost else [frame]

    numbers = {name: np.full(3 + i, 0.5) for i, name in enumerate(site_names(4))}
    everyone = NamedSites.of(tuple(numbers), None, 2)
    for named in (None, everyone):
        world = World(protocol, numbers, SumNumbers((3,)), tamper=drop, named=named)
        world.coordinator = replace(world.coordinator, named=None)  # it lies
        if named is None:  # the control
            assert len(world.sum()[1]) == 3
            continue
        with pytest.raises(SecaggError) as caught:
            world.sum()
        assert isinstance(caught.value, PolicyRefusal | ProtocolAbort)


@pytest.mark.attack
@pytest.mark.parametrize(("minimum", "allowed"), [(2, True), (3, False)])
def test_a_site_with_a_stricter_rule_is_in_no_session_of_smaller_groups(
    minimum: int, allowed: bool
) -> None:
    """Two sessions over other sites would show the sum of its group, which has two sites."""
    numbers = {name: np.full(3 + i, 0.5) for i, name in enumerate(site_names(4))}
    named = NamedSites.of(tuple(numbers), 2, 2)
    policies = {"site_03": ReleasePolicy(minimum, 1)}
    world = World(Additive(), numbers, SumNumbers((3,)), named=named, policies=policies)
    if allowed:
        assert len(world.sum()[1]) == 4
        return
    with pytest.raises(PolicyRefusal) as caught:
        world.sum()
    assert caught.value.where == "site_03"


# --- what the parties agree on, and what plan and report say ------------------------------------


@pytest.mark.parametrize(
    ("protocol", "n", "lost", "colluding", "fewest"),
    [
        ("masked", 10, "leave_out", 3, 7), ("masked", 20, "leave_out", 6, 14),
        ("masked", 10, "stop", 3, 10), ("threshold_paillier", 13, "leave_out", 8, 10),
        ("additive", 10, "leave_out", 10, 3),
    ],
)  # fmt: skip
def test_a_session_states_the_tolerance_for_the_named_sites(
    protocol: str, n: int, lost: str, colluding: int, fewest: int
) -> None:
    names = site_names(n)
    job = remote_job(
        sites={"max_rows": 100, "names": names, "lost": lost},
        release={"min_sites": 3, "min_records": 2}, protocol={"name": protocol},
    )  # fmt: skip
    whole = plan_sites(job, tuple(names), {})
    named = whole.named
    assert named is not None
    smallest = next(
        tuple(sorted(s for group in some for s in group))
        for count in range(1, len(named.groups) + 1)
        for some in itertools.combinations(named.groups, count)
        if sum(map(len, some)) == fewest and not named.fault([s for g in some for s in g])
    )
    session = plan_sites(job, smallest, {})
    agreed = agreement(session)["tolerance"]
    assert agreed == agreement(whole)["tolerance"]
    assert (agreed["named"], agreed["colluding"], agreed["fewest"]) == (n, colluding, fewest)
    assert session.in_numbers == whole.in_numbers
    assert f"{n} sites" in session.in_numbers and str(fewest) in session.in_numbers


@pytest.mark.parametrize("colluding", [0.7, 0.9])
def test_a_job_with_fewer_than_two_honest_sites_is_refused_when_it_is_read(
    colluding: float,
) -> None:
    job = remote_job(
        sites={"max_rows": 100, "names": ["a", "b", "c"]},
        release={"min_sites": 2, "min_records": 2},
        protocol={"name": "masked", "colluding": colluding, "dropping": 0.0},
    )  # fmt: skip
    with pytest.raises(JobError):
        plan_sites(job, ("a", "b", "c"), {})
