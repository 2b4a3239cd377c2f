"""The table `[privacy]` of a job."""

from __future__ import annotations

from pydantic import BaseModel, Field, model_validator

from secagg.contracts.noise import Adjacency, Placement
from secagg.privacy.accounting.terms import Terms


class Privacy(BaseModel, extra="forbid", frozen=True):
    """Differential privacy: what is guaranteed, and for whom."""

    placement: Placement = Placement.NONE
    """Where the noise is added. `"sum"`: once, in the secure sum. `"site"`: once, in each site's
    own contribution, or in its moments, which all rounds then use. `"round"`: in the sum of every
    round. `"none"`: nowhere; no other key of this table may then be set. If it is not set and
    `epsilon` is: the first that `secagg list methods --privacy` names for the method."""
    epsilon: float | None = Field(default=None, gt=0, le=100, allow_inf_nan=False)
    """Epsilon of all releases of the run together, including the count of records. The noise
    consists of whole steps of a grid. This limits epsilon to about 20 to 25 with delta 1e-5,
    depending on the job; the error names the limit."""
    delta: float | None = Field(default=None, gt=0, lt=1)
    """Delta that belongs to `epsilon`, and is required with it. It must be below 1 / (number of
    records); a tenth of that is better."""
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    """Which change of the data is protected: adding or removing one record (`"add_remove"`), or
    replacing one record by another (`"replace"`). `"replace"` needs about 1.4 times the noise of
    `"add_remove"` for `moments`, and twice the noise for `gradient`."""
    record_norm: float | None = Field(default=None, ge=1e-3, le=1e6)
    """A limit for the L2 norm of a record: the root of the sum of its squared values. Before the
    norm is computed, variables are scaled to [-1, 1]. A record with a larger norm is scaled down to
    this norm. A smaller limit means less noise and more bias. Each 0/1 variable adds 1/4 to the
    squared norm. A continuous variable adds the square of its scaled value, which is 0 at the
    middle of its bounds and 1 at either bound. If it is not set, the limit follows from the bounds,
    and no record is scaled down; or from `typical` ranges, if all columns state them (method
    moments)."""
    person: str | None = Field(default=None, min_length=1)
    """The column that names the person of each record. The site reads this column and does not send
    it. If it is set, the guarantee protects all records of a person together; otherwise it protects
    single records. A record without a person's name is incomplete, so it is not used. Without
    noise, rules on numbers of records then count persons. See `secagg.jobs.person_ids` for which
    names are equal."""
    person_pinned: bool = False
    """With `person` and noise: whether the policy of every site names this column (its key
    `person`). A site whose policy does not name it refuses the job. If false, the job could have
    chosen a column in which one patient's removal lets another's record in. The noise is then sized
    for that: adding or removing a person counts as replacing one, and replacing one counts
    twice."""
    records_per_person: int = Field(default=1, ge=1, le=2**48)
    """With `person`: the largest number of complete records of one person that a site uses. It uses
    the first ones. Intervals treat records as independent. So with more than one record per person,
    intervals are too short, and the result says so."""
    person_norm: float | None = Field(default=None, ge=1e-3, le=1e6)
    """With `person`, for methods whose noise is in moments: a limit for the root of the sum of the
    squared norms of all records of one person at a site. If it is exceeded, these records are all
    scaled down by one factor. The noise is then that of records with a squared norm of
    `person_norm`^2 / `records_per_person`. A limit of root(`records_per_person`) times the norm
    of a record, or more, would have no effect, so it is refused. If it is not set, each record may
    have the largest norm."""
    sites_per_person: int = Field(default=1, ge=1, le=2**32)
    """With `person`: the largest number of sites at which one person may have records. Nobody can
    check this number. The guarantee relies on it, and the report says so. Noise in the sum grows in
    proportion to this number, and noise at the sites in proportion to its root, because each site
    adds noise of its own."""
    colluding: int = Field(default=1, ge=0)
    """With `"sum"` and `"round"`: the number of sites that may reveal their part of the noise to
    the coordinator, without weakening the guarantee. With 0, the guarantee does not hold against
    the sites, because each site knows its own part of the noise. The number must be below
    `release.min_sites`, and at most what the protocol allows."""
    count_share: float = Field(default=0.05, ge=0.001, le=0.5)
    """Share of the budget for the count of records, which every run needs first. It is a share of
    the total mu^2, where mu is the sensitivity divided by the noise's standard deviation."""
    expected_records: int | None = Field(default=None, ge=1)
    """A public guess of the number of records. `secagg plan` uses it to predict whether the result
    will be usable. It computes how much the noise is expected to change the coefficients. This
    change should be below the sampling error, or at most 30 %."""

    @model_validator(mode="after")
    def _complete(self) -> Privacy:
        if self.placement is Placement.NONE:
            # Compare values, not `model_fields_set`: a stored job has every key.
            changed = [
                k for k, f in type(self).model_fields.items()
                if k != "person" and getattr(self, k) != f.default
            ]  # fmt: skip
            if changed:
                missing = "epsilon is not" if self.epsilon is None else "placement is 'none'"
                raise ValueError(
                    f"{changed[0]} is set but {missing}, so the sums would have no noise. Set "
                    "epsilon and delta, and no placement 'none'. To run without differential "
                    "privacy, leave [privacy] out: --set privacy={}"
                )
            return self
        if self.epsilon is None or self.delta is None:
            raise ValueError("epsilon and delta are both required for noise")
        if self.person is None and max(self.records_per_person, self.sites_per_person) > 1:
            raise ValueError("records_per_person and sites_per_person require person (a column)")
        if self.person is None and self.person_norm is not None:
            raise ValueError("person_norm requires person (a column)")
        if self.person is None and self.person_pinned:
            raise ValueError("person_pinned requires person (a column)")
        return self

    @property
    def records_used(self) -> int | None:
        """The largest number of records of a person that a site uses; None, without noise: all."""
        return None if self.placement is Placement.NONE else self.records_per_person

    def terms(self) -> Terms | None:
        """Return the terms of the requested guarantee; None without noise."""
        if self.placement is Placement.NONE:
            return None
        assert self.epsilon is not None and self.delta is not None  # as `_complete` checks
        return Terms(
            self.placement, self.epsilon, self.delta, self.adjacency, self.colluding,
            self.count_share, self.records_per_person, self.sites_per_person, self.person,
            self.person_pinned,
        )  # fmt: skip
