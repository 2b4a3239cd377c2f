"""Release rules: how many sites and records a sum must cover before anybody may see it.

Each site owns its `ReleasePolicy`. It is checked three times: by the site before it contributes, by
whoever holds shares or keys before a sum is opened (with the thresholds that the contributing sites
signed, so the strictest site decides), and by the coordinator before it decodes.

Guarantees
    * A sum is opened only over at least max(min_sites of every contributor and of the opener)
      distinct sites, each of which signed its part in this round.
    * Within a session no party helps to open sums over two cohorts: the first one it opened (or
      contributed to, after the cohort round) is fixed, because the difference of two cohorts' sums
      is the contribution of the sites between them.
    * A site with fewer than min_records complete records contributes nothing.

=============================================  ======================================
case                                           outcome
=============================================  ======================================
min_sites or min_records unset                 refused
min_sites = number of sites                    allowed
one site fewer than min_sites                  refused
a contributor named twice                      refused
a contributor without a signed threshold       refused
cohort larger or smaller than the first        refused
records = min_records                          allowed
total records unknown after the cohort round   refused
=============================================  ======================================

Across sessions a ledger knows the cohorts of earlier releases, and `check_cohort` compares.

Not protected: between openers that each open once and do not compare (the key holders of
`paillier`, for a coordinator who breaks the protocol); the total of records, which is known, and
checked, only when the cohort round has released it, and which sites take from the coordinator;
records against an
adversary who knows all others (that takes noise, not counts); and against min_sites - 1 colluding
sites, who can subtract their own contributions from a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from secagg.errors import JobError, PolicyRefusal
from secagg.privacy.policy.differencing import exposed

_JOB = "the job's [release]"


@dataclass(frozen=True)
class ReleasePolicy:
    """One party's release rules; None means unset, and an unset rule refuses.

    min_sites: least number of sites in any sum that is opened, at least 2
    min_records: least number of complete records at a site that contributes, at least 1
    min_total_records: least number of records in all; never below min_sites * min_records
    place: where these rules are written, for whoever has to set one
    """

    min_sites: int | None
    min_records: int | None
    min_total_records: int | None = None
    place: str = field(default=_JOB, compare=False)

    def __post_init__(self) -> None:
        if self.min_sites is not None and self.min_sites < 2:
            raise JobError(
                "release.min_sites", "a sum over one site is that site's data: at least 2"
            )
        if self.min_records is not None and self.min_records < 1:
            raise JobError("release.min_records", "must be at least 1")

    @property
    def places(self) -> str:
        """Say where a threshold may come from: a party's own are raised to the job's."""
        own = self.place != _JOB
        return f"{self.place} or {_JOB}, whichever asks for more" if own else _JOB

    def at_least(self, agreed: ReleasePolicy) -> ReleasePolicy:
        """Return these rules, made as strict as the agreed ones; what is unset here stays unset.

        (But for the total, which has a default.)
        """
        totals = [n for n in (self.min_total_records, agreed.min_total_records) if n is not None]
        return ReleasePolicy(
            None if self.min_sites is None else max(self.min_sites, agreed.min_sites or 0),
            None if self.min_records is None else max(self.min_records, agreed.min_records or 0),
            max(totals, default=None),
            self.place,
        )

    def thresholds(self, who: str) -> tuple[int, int, int]:
        """Return (sites, records, total records), or raise `PolicyRefusal` if one is unset."""
        if self.min_sites is None or self.min_records is None:
            unset = "min_sites" if self.min_sites is None else "min_records"
            raise PolicyRefusal(
                who, f"release rule {unset} is not set", f"Set {unset} in {self.place}."
            )
        implied = self.min_sites * self.min_records
        return self.min_sites, self.min_records, max(self.min_total_records or 0, implied)


def check_invitation(
    policy: ReleasePolicy, who: str, cohort: Sequence[str], total_records: int | None
) -> None:
    """A site asks before it reads its data: may I take part with this cohort?

    total_records is None only in the round that counts them. Raises `PolicyRefusal`.
    """
    min_sites, _, min_total = policy.thresholds(who)
    _check_sites(who, cohort, min_sites)
    if total_records is not None and total_records < min_total:
        raise PolicyRefusal(
            who,
            f"the cohort has {total_records} records in all, and {min_total} are needed",
            f"Wait for more records, or change min_total_records or min_records in "
            f"{policy.places}.",
        )


def check_records(policy: ReleasePolicy, who: str, records: int) -> None:
    """A site asks before it contributes: have I enough complete records? `PolicyRefusal` if not."""
    _, min_records, _ = policy.thresholds(who)
    if records < min_records:
        change = f", or change min_records in {policy.places}" if min_records > 1 else ""
        raise PolicyRefusal(
            who,
            f"it has fewer complete records than its rule asks for ({min_records})",
            f"Leave the site out{change}.",
        )


def check_release(
    policy: ReleasePolicy,
    who: str,
    contributors: Sequence[str],
    signed_thresholds: Mapping[str, int],
    first_cohort: Sequence[str] | None,
) -> None:
    """Whoever can open a sum asks first: may the sum over these sites be seen?

    signed_thresholds: min_sites of each contributor, from its verified signature in this round
    first_cohort: the sites of the session's first release, or None before it
    Raises `PolicyRefusal`.
    """
    own, _, _ = policy.thresholds(who)
    unsigned = sorted(set(contributors) - set(signed_thresholds))
    if unsigned:
        raise PolicyRefusal(who, f"{unsigned[0]} has not signed that it takes part")
    strictest = max([own, *(signed_thresholds[site] for site in contributors)])
    _check_sites(who, contributors, strictest)
    if first_cohort is not None and set(contributors) != set(first_cohort):
        raise PolicyRefusal(
            who,
            f"the sites changed after the first release (then {len(first_cohort)}, now "
            f"{len(contributors)}): the difference would show the sites between",
            "Run again with the same sites as then.",
        )


def check_cohort(
    policy: ReleasePolicy, who: str, cohort: Sequence[str], earlier: Sequence[frozenset[str]]
) -> None:
    """Ask of a sum over these sites: would it, with all earlier ones, show fewer than min_sites?

    earlier: the cohorts of earlier sessions. Raises `PolicyRefusal`, which names them.
    """
    least, _, _ = policy.thresholds(who)
    exposure = exposed(earlier, frozenset(cohort), least)
    if exposure is not None:
        raise PolicyRefusal(who, exposure.line(), "Run again with the sites of an earlier release.")


def _check_sites(who: str, sites: Sequence[str], least: int) -> None:
    if len(set(sites)) != len(sites):
        raise PolicyRefusal(who, "a site is counted twice")
    if len(sites) < least:
        raise PolicyRefusal(
            who,
            f"{len(sites)} sites take part, and the release rule asks for {least}",
            "Wait for more sites, or agree on another release.min_sites.",
        )
