"""The tables inside a site's policy file: pinned columns, dominance, budget and keys.

docs/how-to/policies.md explains the keys; `secagg.privacy.policy.site_policy` reads the file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from secagg.contracts.noise import Adjacency
from secagg.core.curve25519 import is_verify_key
from secagg.privacy.accounting.composition import Cap

Share = Annotated[float, Field(gt=0, le=1)]
Names = tuple[Annotated[str, Field(min_length=1)], ...]


class StrictTable(BaseModel):
    """A table without other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Dominance(StrictTable):
    """A few records may not make up most of a total (Hundepool et al. 2012, section 4.2)."""

    largest: int = Field(default=1, ge=1)
    """The number of largest contributions that `share` limits."""
    share: Share | None = None
    """Largest share that they may have of the total at this site: the (n, k) rule with n =
    `largest` and k = 100 `share`."""
    remainder: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The total without the two largest contributions is at least this multiple of the largest: the
    p% rule with p = 100 `remainder`. Otherwise the owner of the second largest could estimate the
    largest too closely."""

    @model_validator(mode="after")
    def _not_empty(self) -> Dominance:
        if self.share is None and self.remainder is None:
            raise ValueError("set share, remainder, or both")
        return self


class Budget(StrictTable):
    """The epsilon and delta that a job, and all jobs of a period, may cost."""

    epsilon: float | None = Field(default=None, gt=0, le=100)
    """Largest epsilon that one job may claim for all that it releases."""
    delta: float | None = Field(default=None, gt=0, lt=1)
    """Largest delta that one job may claim. Belongs to `epsilon`."""
    period_epsilon: float | None = Field(default=None, gt=0, le=100)
    """Largest epsilon that all jobs of a period may cost together, at `period_delta`."""
    period_delta: float | None = Field(default=None, gt=0, lt=1)
    """Belongs to `period_epsilon`."""
    period_days: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Length in days of the period, which ends now. If it is not set, all time. Only a limit for
    all time bounds what someone can learn who keeps all releases. An answer repeated with its first
    noise (placement `site`) counts when it was first given."""
    adjacency: tuple[Adjacency, ...] | None = Field(default=None, min_length=1)
    """The adjacencies that are accepted. If it is not set, both are. The period's budget holds
    under each of them."""
    unit: tuple[Literal["record", "event", "person"], ...] | None = Field(
        default=None, min_length=1
    )
    """The units that jobs may protect: a single record, an event (all records that contain one step
    of a series), or all records of a person. Where `"record"` is accepted, an event is too. If it
    is not set, all are accepted."""
    colluding: int | None = Field(default=None, ge=1)
    """The noise must allow for this many sites that reveal their noise to the coordinator, unless
    this site adds all of it itself (placement `"site"`)."""
    exact_jobs: Literal["refused", "by_rules"] = "refused"
    """`"refused"`: no job without noise. `"by_rules"`: the rules on records decide about jobs
    without noise, and the budget counts only jobs with noise. The budget of a profile is
    `"by_rules"`."""

    @model_validator(mode="after")
    def _complete(self) -> Budget:
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta belong together")
        if (self.period_epsilon is None) != (self.period_delta is None):
            raise ValueError("period_epsilon and period_delta belong together")
        if self.period_epsilon is None:
            raise ValueError(
                "set period_epsilon and period_delta: without them, any number of jobs is allowed"
            )
        return self

    @property
    def caps(self) -> tuple[Cap, ...]:
        """The caps for the ledger: the period's epsilon, under each accepted adjacency."""
        if self.period_epsilon is None or self.period_delta is None:
            return ()
        return tuple(
            Cap(
                self.period_epsilon, self.period_delta, self.period_days, adjacency,
                noised_only=self.exact_jobs == "by_rules",
            )
            for adjacency in (self.adjacency or tuple(Adjacency))
        )  # fmt: skip


def _is_key(text: str) -> str:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        raise ValueError("is not hexadecimal") from None
    if len(key) != 32:
        raise ValueError(f"an Ed25519 key has 32 bytes, not {len(key)}")
    if not is_verify_key(key):  # anybody could sign for some of them
        raise ValueError("is not a valid Ed25519 key")
    return key.hex()


class PinnedColumn(StrictTable):
    """A column as every job must declare it: the same keys as in a job's table `[columns]`."""

    type: Literal["continuous", "count", "binary", "categorical"]
    """The type of the column."""
    low: float | None = None
    """Lower bound of a continuous column."""
    high: float | None = None
    """Upper bound of a continuous column, or of a column of counts."""
    transform: Literal["none", "log"] = "none"
    """Transform of a continuous column."""
    levels: tuple[str, ...] | None = None
    """Levels of a binary or categorical column, in the job's order."""
    unit: str = ""
    """Not compared."""

    @model_validator(mode="after")
    def _fits_type(self) -> PinnedColumn:
        if self.type == "continuous":
            if self.low is None or self.high is None or self.levels is not None:
                raise ValueError("a continuous column has low and high, and no levels")
        elif self.type == "count":
            others = (self.low, self.levels, None if self.transform == "none" else self.transform)
            if self.high is None or any(each is not None for each in others):
                raise ValueError("a column of counts has high, and no low, transform or levels")
        elif self.low is not None or self.high is not None or self.transform != "none":
            raise ValueError(f"a {self.type} column has no bounds and no transform")
        elif self.type == "categorical" and self.levels is None:
            raise ValueError("a categorical column has levels")
        return self

    @property
    def declaration(self) -> dict[str, Any]:
        """The declaration, as `secagg.privacy.policy.questions.Declarations` have it."""
        if self.type == "continuous":
            bounds = {"low": self.low, "high": self.high}
            return {"type": self.type, **bounds, "transform": self.transform}
        if self.type == "count":
            return {"type": self.type, "high": self.high}
        return {"type": self.type, "levels": list(self.levels or ("0", "1"))}


class Keys(StrictTable):
    """The keys of those whose requests the site answers."""

    coordinators: tuple[Annotated[str, AfterValidator(_is_key)], ...] = Field(min_length=1)
    """The coordinators whose requests are answered: Ed25519 verify keys, 64 hexadecimal digits
    each."""


Columns = Annotated[
    Annotated[Names, Tag("<names>")] | Annotated[dict[str, PinnedColumn], Tag("<table>")],
    Discriminator(lambda value: "<table>" if isinstance(value, dict) else "<names>"),
]
