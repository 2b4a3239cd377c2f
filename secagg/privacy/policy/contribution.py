"""One request to a site to contribute, and the release that the site would make."""

from __future__ import annotations

from dataclasses import dataclass

from secagg.contracts import Body, Spec
from secagg.core import canonical_encoding


@dataclass(frozen=True)
class ContributionRequest:
    """One request to contribute.

    total: number of records of these sites; None in the round that counts records
    before: the number of earlier rounds of this stage in the session
    """

    round: int
    stage: str
    cohort: tuple[str, ...]
    total: int | None
    before: int

    @property
    def counting(self) -> bool:
        """Whether this is the round that counts records. The cohort is final only after it."""
        return self.total is None

    @property
    def facts(self) -> tuple[tuple[str, ...], int | None]:
        """What the rules look at: the same in every round after the count."""
        return self.cohort, self.total


@dataclass(frozen=True)
class PlannedRelease:
    """A contribution before it is written to the ledger.

    spec: the arrays of the contribution
    variance: variance of the noise that will be added; 0 for none
    """

    request: ContributionRequest
    spec: Spec
    message: Body
    variance: int


def release_query(query: bytes, spec: Spec, message: Body) -> str:
    """Return the digest of all that determines a release: of `Guard.query`, fields and message."""
    fields = [[f.name, list(f.shape), f.bound, f.fraction_bits, f.kind.value] for f in spec]
    return canonical_encoding.digest([query, fields, message]).hex()
