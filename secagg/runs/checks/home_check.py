"""What a party's home says of a job: its rules, ledger and roster. No record is read.

Of a site's file, only the header is read. `secagg site check --home` reads the records, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from secagg.core.identity import Role
from secagg.errors import SecaggError
from secagg.jobs.headers_and_copies import check_headers
from secagg.jobs.job import Job
from secagg.runs.checks.expected_refusals import expected_refusals
from secagg.sessions.homes.approvals import (
    Approval,
    approval_digest,
    approval_of,
    check_approved,
)
from secagg.sessions.homes.home import Home
from secagg.sessions.homes.own_source import check_party, named_sites, plan_at_home
from secagg.sessions.planned_job import Planned


@dataclass(frozen=True)
class HomeCheck:
    """How a job stands at a home.

    digest: under which it is approved
    own_rules: whether the home has a policy.toml; None for a party without records
    refusals: why it would be refused, a line each
    planned: the job as this party plans it; None if it cannot
    """

    digest: str
    approval: Approval
    own_rules: bool | None
    refusals: tuple[str, ...]
    planned: Planned | None

    def plain(self) -> dict[str, Any]:
        """Return the check as plain data for JSON."""
        return {
            "digest": self.digest, "approval": self.approval.value, "own_rules": self.own_rules,
            "refusals": list(self.refusals),
        }  # fmt: skip


def check_home(home: Home, job: Job) -> HomeCheck:
    """Return how a job stands at this home. Raises `UsageError` for a damaged home."""
    approval, own_rules = approval_of(home, job), (home.folder / "policy.toml").exists()
    planned, refusals = None, []
    try:
        planned = plan_at_home(home, job, named_sites(job))
        check_headers(job, planned.sources)
        refusals += expected_refusals(planned, coordinator_key(home))[0]
        check_party(home, planned)
        if approval is Approval.BY_POLICY:
            check_approved(home, job)
    except SecaggError as error:
        refusals.append(error.line())
    return HomeCheck(
        approval_digest(job),
        approval,
        own_rules if home.settings.role is Role.SITE else None,
        tuple(refusals),
        planned,
    )


def coordinator_key(home: Home) -> bytes | None:
    """Return the coordinator's key that this home has pinned; None before a roster is pinned."""
    if not home.has_roster:
        return None
    roster = home.roster
    return roster.parties[roster.coordinator].verify_key
