"""Which of a job's sites its sums may cover, whatever the number of its sessions.

A job that lists its sites runs over all of them. With `sites.lost = "leave_out"` it may also run
over some of them, and a coordinator that lies about who answered can choose which, in any number of
sessions. The sums of all these sessions can be combined. A site knows only the sessions that it was
in, so no ledger of a site needs to show what the sums reveal together (`differencing`). Therefore
the sites are left out in fixed groups, which follow from the job alone: the first k names of
`sites.names`, the next k, and so on, where k is `release.min_sites`. The last group has the rest,
so each has k sites or more. A sum covers whole groups only. With `"stop"`, all sites are one group.

Guarantee: each linear combination of all sums of the job, in all its sessions, is zero or depends
on at least k sites. Proof: the weight vector of a sum is constant on each group, so the weight
vector of a combination is, too. If one site of a group has a weight other than zero, all sites of
the group have it, and these are at least k. If t < k sites collude and subtract their own
contributions, at least k - t others are left. No site needs to be honest, no ledger is used, and
the number of sessions does not matter.

Nothing weaker will do if sites are judged by their number alone (docs/math/differencing.md): if so
many sites may be missing that two sums may differ by k sites, then some sessions together expose
fewer than k sites, although each site's ledger allows all of those that the site was in.

======================================================  ==========================================
case                                                    result
======================================================  ==========================================
all sites that the job names                            allowed
a group without one of its sites                        refused
all sites but one or several groups ("leave_out")       allowed, if `least` sites or more
all sites but a group ("stop")                          refused: all sites are one group
fewer than 2 k sites                                    one group, so none can be left out
a site outside the job                                  refused
a site whose own min_sites is above its group's size    it refuses, unless all sites are one group
======================================================  ==========================================

Not protected: sums of other jobs over other sites. Each site's ledger has those that the site was
in, and the coordinator's ledger has all. A job without `sites.names`, whose sites are all on one
computer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from secagg.errors import PolicyRefusal


@dataclass(frozen=True)
class NamedSites:
    """The sites that a job names, in the groups in which they may be left out.

    groups: each of at least `release.min_sites` sites, or one group with all sites
    least: the smallest number of sites that a sum may cover, as the protocol needs them
    """

    groups: tuple[tuple[str, ...], ...]
    least: int

    @classmethod
    def of(cls, names: tuple[str, ...], group: int | None, least: int) -> NamedSites:
        """Return the groups of so many sites in the order of `names`; None: one group."""
        count = 1 if group is None else max(1, len(names) // group)
        cuts = [i * (group or 0) for i in range(count)] + [len(names)]
        return cls(tuple(names[a:b] for a, b in pairwise(cuts)), least)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(site for group in self.groups for site in group)

    @property
    def fewest(self) -> int:
        """The number of sites in the smallest sum that the job allows."""
        *others, last = map(len, self.groups)
        sizes = [sum(others[:n]) + rest for n in range(len(others) + 1) for rest in (0, last)]
        return min(size for size in sizes if size >= self.least or size == len(self.names))

    def whole_groups(self, sites: Collection[str]) -> tuple[str, ...]:
        """Return the sites of the groups that are complete among these, sorted."""
        return tuple(sorted(s for group in self.groups if set(group) <= set(sites) for s in group))

    def fault(self, sites: Collection[str]) -> str:
        """Return why a sum of the job must not cover exactly these sites; empty if it may."""
        if strangers := sorted(set(sites) - self.names):
            return f"the job does not name {strangers[0]!r}"
        for group in self.groups:
            missing = [site for site in group if site not in sites]
            if 0 < len(missing) < len(group):
                rule = "every sum of this job covers all its sites"
                if len(self.groups) > 1:
                    rule = f"{', '.join(sorted(group))} can be left out of a sum together only"
                return f"{missing[0]!r} is missing, and {rule}"
        if len(sites) < self.least and set(sites) != self.names:
            return f"{len(sites)} sites are left, and this job needs {self.least}"
        return ""

    def check(self, who: str, cohort: Collection[str], min_sites: int | None) -> None:
        """Check at a party that a sum may cover these sites. Raises `PolicyRefusal`.

        min_sites: the party's own rule, which its own group must meet
        """
        if fault := self.fault(cohort):
            raise PolicyRefusal(who, fault, "Wait for the missing sites.")
        own = next((group for group in self.groups if who in group), None)
        if len(self.groups) > 1 and own is not None and len(own) < (min_sites or 0):
            what = (
                f"a session may leave out this site with {len(own) - 1} others, so sums of two "
                f"sessions may differ by {len(own)} sites, and min_sites = {min_sites}"
            )
            raise PolicyRefusal(who, what, 'Raise the job\'s release.min_sites, or lost = "stop".')
