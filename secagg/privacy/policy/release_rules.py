"""Release rules: how many sites and records a sum must cover before anybody may see the sum.

Each site has its own `ReleasePolicy`. The rules are checked three times:

1. The site checks its rules before it contributes.
2. The parties that hold shares or keys check them before they open a sum. Each contributing site
   has signed its min_sites, and the largest of these numbers counts.
3. The coordinator checks them before it decodes the sum.

The cohort of a sum is the set of sites that it covers. The cohort round is the first round of a
session, which counts records.

Guarantees
    * A sum is opened only if it covers at least max(min_sites of all contributors and of the
      opener) different sites, each of which signed its contribution in this round.
    * Within a session no party helps to open sums over two cohorts, because the difference of the
      two sums is the contribution of the sites in which the cohorts differ. A party's cohort is
      fixed as soon as the party has opened a sum, or has contributed after the cohort round.
    * A site with fewer than min_records complete records contributes nothing.

=============================================  ======================================
case                                           result
=============================================  ======================================
min_sites or min_records unset                 refused
min_sites = number of sites                    allowed
one site fewer than min_sites                  refused
a contributor named twice                      refused
a contributor without a signed min_sites       refused
cohort larger or smaller than the first        refused
records = min_records                          allowed
total records unknown after the cohort round   refused
=============================================  ======================================

For sums of different sessions, `check_cohort` compares the cohort with those in a ledger.

Not protected:

* Different cohorts opened by different parties. With `paillier`, a coordinator that departs from
  the protocol can let two key holders each open a sum over another cohort.
* A false total of records. Sites are told the total by the coordinator, after the cohort round.
* A record, against an adversary who knows all other records. Only noise protects against this.
* A site, if min_sites - 1 colluding sites subtract their own contributions from a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from secagg.errors import JobError, PolicyRefusal
from secagg.privacy.policy.differencing import exposed

_JOB = "the job's [release]"


@dataclass(frozen=True)
class ReleasePolicy:
    """One party's release rules. None means that a rule is not set, which blocks the release.

    min_sites: smallest number of sites in a sum, at least 2
    min_records: smallest number of complete records at a contributing site, at least 1
    min_total_records: smallest total number of records; at least min_sites * min_records, which is
        used if the rule is not set
    min_cell_records: smallest number of records with a level, or a pair of levels, over all sites;
        only the coordinator's rules have it
    min_level_sites: smallest number of sites at which a level occurs; only the coordinator's rules
        have it
    place: the file or table that contains these rules, for the advice in errors
    """

    min_sites: int | None
    min_records: int | None
    min_total_records: int | None = None
    min_cell_records: int | None = None
    min_level_sites: int | None = None
    place: str = field(default=_JOB, compare=False)

    def __post_init__(self) -> None:
        if self.min_sites is not None and self.min_sites < 2:
            raise JobError(
                "release.min_sites", "must be at least 2: a sum over one site is that site's data"
            )
        if self.min_records is not None and self.min_records < 1:
            raise JobError("release.min_records", "must be at least 1")

    @property
    def places(self) -> str:
        """The places where a rule may be set: the party's own rules and the job."""
        own = self.place != _JOB
        return f"{self.place} or {_JOB} (the stricter one counts)" if own else _JOB

    def at_least(self, agreed: ReleasePolicy) -> ReleasePolicy:
        """Return these rules, made at least as strict as the rules `agreed`.

        A rule that is not set stays so, except min_total_records, which has a default.
        """
        totals = [n for n in (self.min_total_records, agreed.min_total_records) if n is not None]
        return ReleasePolicy(
            None if self.min_sites is None else max(self.min_sites, agreed.min_sites or 0),
            None if self.min_records is None else max(self.min_records, agreed.min_records or 0),
            max(totals, default=None),
            place=self.place,
        )

    def thresholds(self, who: str) -> tuple[int, int, int]:
        """Return (min_sites, min_records, min_total_records).

        Raises `PolicyRefusal` if a rule is not set. who: name of the party, for the text
        """
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
    """Check at a site, before it reads its records, that it may contribute to a sum over `cohort`.

    who: name of the site
    total_records: number of records of the cohort; None only in the round that counts records
    Raises `PolicyRefusal`.
    """
    min_sites, _, min_total = policy.thresholds(who)
    _check_sites(who, cohort, min_sites)
    if total_records is not None and total_records < min_total:
        raise PolicyRefusal(
            who,
            f"the number of all records, with the noise of the job if it has any, is "
            f"{total_records}, and {min_total} are needed",
            f"Wait for more records, or change min_total_records or min_records in "
            f"{policy.places}.",
        )


def check_records(policy: ReleasePolicy, who: str, records: int) -> None:
    """Check at a site, before it contributes, that it has enough complete records.

    Raises `PolicyRefusal`.
    """
    _, min_records, _ = policy.thresholds(who)
    if records < min_records:
        change = f", or change min_records in {policy.places}" if min_records > 1 else ""
        raise PolicyRefusal(
            who,
            f"the site has fewer complete records than its rule requires ({min_records})",
            f"Leave the site out{change}.",
        )


def check_release(
    policy: ReleasePolicy,
    who: str,
    contributors: Sequence[str],
    signed_thresholds: Mapping[str, int],
    first_cohort: Sequence[str] | None,
) -> None:
    """Check at a party that helps to open a sum that the sum over these sites may be opened.

    who: name of the party
    contributors: the sites of the sum
    signed_thresholds: min_sites of each contributor, which it signed in this round
    first_cohort: the sites of the session's first release; None if there was no release
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
            f"{len(contributors)}); the difference would reveal the sites that changed",
            "Run again with the sites of the first release.",
        )


def check_cohort(
    policy: ReleasePolicy, who: str, cohort: Sequence[str], earlier: Sequence[frozenset[str]]
) -> None:
    """Check that a sum over these sites, with all earlier ones, exposes no group of sites.

    earlier: the cohorts of earlier sessions
    Raises `PolicyRefusal`, which names the exposed sites.
    """
    min_sites, _, _ = policy.thresholds(who)
    exposure = exposed(earlier, frozenset(cohort), min_sites)
    if exposure is not None:
        nearest = max(earlier, key=lambda sites: (len(sites & set(cohort)), -len(sites)))
        advice = (
            f"Earlier sums cannot be taken back. Run again with the sites of an earlier release "
            f"(the nearest had {', '.join(sorted(nearest))}), or with sites.names so that every "
            f"difference covers {min_sites} sites. Do not delete ledgers: others hold the sums."
        )
        raise PolicyRefusal(who, exposure.line(), advice)


def _check_sites(who: str, sites: Sequence[str], min_sites: int) -> None:
    if len(set(sites)) != len(sites):
        raise PolicyRefusal(who, "a site is counted twice")
    if len(sites) < min_sites:
        raise PolicyRefusal(
            who,
            f"{len(sites)} sites take part, and the release rule requires {min_sites}",
            "Wait for more sites, or agree on another release.min_sites.",
        )
