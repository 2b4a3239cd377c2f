"""A site's own policy: a TOML file that its data-protection officer owns.

docs/how-to/policies.md explains the keys. `secagg.privacy.policy.job_rules` applies them at the
site, to each request, before anything leaves it.

A profile is a named set of rules that follows a known convention.

Guarantees
    * In doubt, the site refuses. A file that cannot be read, or that contains an unknown key, is an
      error. If neither the file nor a profile sets min_sites and min_records, every job is refused.
    * If a file names a profile and sets a weaker rule, this is an error. So a report may quote the
      profile's name. For weaker rules, leave out the profile.
    * A job can make min_sites, min_records and min_total_records stricter. It can make no rule
      weaker.

=======  =========  ===========  =====  =====  ================  ======  ==========================
profile  min_sites  min_records  ratio  exact  dof; dominance    budget  its convention
=======  =========  ===========  =====  =====  ================  ======  ==========================
3        3          3            0.33   1                        4, 8    DataSHIELD: its filters
5        3          5            0.33   0.5                      4, 8    many registries; OMOP
7        3          8            0.33   0.5                      2, 4    OpenSAFELY: up to 7 hidden
10       3          10           0.33   0.33   10; 2, 0.9, 0.1   2, 4    SACRO; ABS, rule of ten
11       3          11           0.33   0.33   10; 2, 0.9, 0.1   2, 4    CMS: 1 to 10 hidden
=======  =========  ===========  =====  =====  ================  ======  ==========================

From profile 5 on, min_level_records is set to the same number as min_records. "ratio" is
max_parameters_ratio, "exact" is max_exact_share, and "dof" is min_residual_dof. The three numbers
of "dominance" are `largest`, `share` and `remainder`. The minimum of three sites and the exact
share are not part of these conventions. Three sites are needed because with two sites, each
computes the other's contribution from the sum. If a convention has only a minimum count, the ratio
is that of DataSHIELD. Profile 11 (CMS) also has the other rules of profile 10.

"budget" is epsilon of one job with noise, and epsilon of all of them together, both at delta 1e-5.
Without it, [privacy] would switch off the rules on records and replace them by nothing. The numbers
are ours, because the conventions have none: docs/adr/031-budgets-of-profiles.md.

==============================================  ====================================================
policy file, job                                decided by
==============================================  ====================================================
profile; job with noise                         the profile's budget
profile; exact job                              the rules on records, as if there were no budget
profile; job with noise after exact ones        the budget. Exact releases do not count: their
                                                epsilon is infinite, but other rules limit them, and
                                                what noise protects, it protects from everybody who
                                                knows exact results. To refuse it would push users
                                                to exact jobs
profile and stricter `[budget]`; with noise     that budget; keys that it leaves out: the profile's
profile and looser `[budget]`                   the file is an error
`[budget]`; exact job                           refused, unless `exact_jobs = "by_rules"`
`[budget]`; job with noise after exact ones     refused for the period, unless `"by_rules"`
no profile, no `[budget]`; job with noise       refused
no profile, no `[budget]`; exact job            the rules on records
noise that others can compute (simulations)     no budget fits, because its epsilon is infinite
no policy file                                  the job's own rules: no budget (`policy_of`)
==============================================  ====================================================

Not protected: a policy is as good as its owner's control over the file and over the code that reads
it. Nothing here proves to others that a site follows its policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, PrivateAttr, ValidationError, model_validator

from secagg.core.validation import describe, read_toml, unknown_key
from secagg.errors import JobError
from secagg.privacy.accounting.composition import Cap
from secagg.privacy.policy.policy_tables import (
    Budget,
    Columns,
    Dominance,
    Keys,
    Names,
    PinnedColumn,
    Share,
    StrictTable,
)
from secagg.privacy.policy.release_rules import ReleasePolicy


def _budget(epsilon: float, period_epsilon: float) -> Mapping[str, Any]:
    deltas = {"delta": 1e-5, "period_delta": 1e-5}
    return deltas | {"epsilon": epsilon, "period_epsilon": period_epsilon}


_DATASHIELD = {
    "min_sites": 3, "max_parameters_ratio": 0.33, "max_exact_share": 1.0,
    "budget": _budget(4.0, 8.0),
}  # fmt: skip
_HALF = _DATASHIELD | {"max_exact_share": 0.5}
_SACRO = _DATASHIELD | {
    "max_exact_share": 0.33,
    "budget": _budget(2.0, 4.0),
    "min_residual_dof": 10,
    "dominance": {"largest": 2, "share": 0.9, "remainder": 0.1},
}
PROFILES: Mapping[int, Mapping[str, Any]] = {
    3: _DATASHIELD | {"min_records": 3},
    5: _HALF | {"min_records": 5, "min_level_records": 5},
    7: _HALF | {"min_records": 8, "min_level_records": 8, "budget": _budget(2.0, 4.0)},
    10: _SACRO | {"min_records": 10, "min_level_records": 10},
    11: _SACRO | {"min_records": 11, "min_level_records": 11},
}

ANY_PROTOCOL = "any"
"""Stands for every protocol in a policy."""

ANY_MODULE = "any"
"""Stands for every factory of networks in a policy."""


MAX_LEVERAGE = 0.9
"""The largest leverage of a record, if a policy sets no other. At 0.9, nine tenths of the squares
of a combination of columns are one record's."""


class SitePolicy(StrictTable):
    """A site's rules. A rule that is not set does not restrict, except min_sites, min_records."""

    profile: Literal[3, 5, 7, 10, 11] | None = None
    """Rules from the table of profiles."""
    dataset: str | None = Field(default=None, min_length=1)
    """The name under which the ledger records releases of these records. Keep it when the file is
    renamed or rows are added: under another name, the ledger starts again. If it is not set, the
    name is that of the file of records, without its ending."""
    ledger: str | None = Field(default=None, min_length=1)
    """The file of this site's ledger. A relative path begins at the policy's folder. If it is not
    set: `ledgers/DATASET.ledger` in that folder. Set it if the records may ever be given in another
    folder, for instance as a new extract: there, the default would be a new and empty ledger."""
    person: str | None = Field(default=None, min_length=1)
    """The column that names the person of each record. A job must name the same column
    (`privacy.person`): with noise it then protects persons, and without noise every rule below
    counts persons where it says records. If it is not set, a job may name any column or none; the
    rules count rows if it names none, and noise has to allow for a badly chosen column."""
    min_sites: int | None = Field(default=None, ge=2)
    """Smallest number of sites in a sum. If neither this nor a profile is set, everything is
    refused."""
    min_records: int | None = Field(default=None, ge=1)
    """Smallest number of complete records of this site. If neither this nor a profile is set,
    everything is refused."""
    min_total_records: int | None = Field(default=None, ge=1)
    """Smallest total number of complete records. It is at least `min_sites` times `min_records`."""
    min_level_records: int | None = Field(default=None, ge=1)
    """For each 0/1 variable, and so for each level of a categorical column: this site has either no
    ones or at least this many; the same for zeros. It is strict, because it looks at this site's
    count. If it is not set: `min_records`. With 1, the rule is off. A site without a policy file
    has no such rule. The job's `release.min_cell_records` applies to the counts of all sites."""
    min_cell_records: int | None = Field(default=None, ge=1)
    """Without noise: an exact job is refused if its `release.min_cell_records` is smaller. If it is
    not set: `min_records`. A site without a policy file has no such rule."""
    min_level_sites: int | None = Field(default=None, ge=1)
    """Without noise: an exact job is refused if its `release.min_level_sites` is smaller. Above 1,
    a continuous column with one value here is also refused: it could identify the site. If it is
    not set: `min_sites`. A site without a policy file has no such rule."""
    max_leverage: Share | None = MAX_LEVERAGE
    """Without noise: the largest leverage of one of this site's records in the columns of all exact
    jobs together. It is 1 if a combination of columns is nonzero in this record alone. Below 1, a
    combination that is nonzero in fewer than `min_records` records is refused, too. Write 1.0 to
    allow all. A site without a policy file has this rule too, unless the job's
    `release.min_records` is 1."""
    max_levels: int = Field(default=40, ge=2)
    """Without noise: largest number of levels of a categorical column. A column with many levels
    has few records in each. The default is that of DataSHIELD (`nfilter.levels.max`)."""
    max_clipped_share: Share = 0.5
    """Without noise: largest share of a column's values at this site that may lie outside the job's
    bounds. More of them mean wrong bounds or a wrong unit. Such bounds can also single out the few
    records that lie inside."""
    methods: Names | None = None
    """The methods that are allowed. If it is not set, all are, but those whose messages can choose
    which records weigh most in a sum (neural networks) only with noise. A site without a policy
    file has no such rule."""
    columns: Columns | None = None
    """The columns that are allowed: a list of names, or a table `[columns]` as in a job. A job that
    declares another column is refused. With a table, so is a job that declares a column in another
    way (type, bounds, transform or levels). If it is not set, all are allowed."""
    protocols: Names | None = None
    """The protocols that are allowed; `"any"` stands for all. `"plain"` shows the coordinator this
    site's own numbers. If the key is not set, all others are allowed, and `"plain"` only for sums
    to which this site adds all of its noise. A site without a policy file has no such rule."""
    max_parameters_ratio: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Largest number of parameters for each of this site's records."""
    max_exact_share: float | None = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Without noise: largest number of exact numbers that all jobs together may release of these
    records, for each unknown value of the records (`secagg.privacy.policy.exact_numbers`). A site
    without a policy file has no such rule."""
    min_residual_dof: int | None = Field(default=None, ge=1)
    """Smallest difference between the total number of records and the number of parameters."""
    max_site_share: Share | None = None
    """Largest share of all records that this site may have. A sum that is mostly one site's reveals
    that site."""
    cohorts: Literal["checked", "fixed"] = "checked"
    """Which sites may take part, given all earlier releases of these records. `"checked"`: no
    combination of releases may isolate fewer than `min_sites` sites. `"fixed"`: only the sites of
    an earlier release."""
    max_refusals: int = Field(default=5, ge=1)
    """After this many exact jobs in a period that were refused because of these records, the site
    refuses every exact job. Each such refusal reveals up to one bit, because the coordinator writes
    the job. Jobs with differential privacy are never refused because of the records."""
    max_unreleased: int = Field(default=10, ge=1)
    """After this many exact jobs in a period that ended before their first release, for instance
    because another site refused, the site refuses every exact job except a repeat of one of these
    jobs. Each shows that these records did not cause a refusal: at most one bit."""
    refusal_days: float = Field(default=30, gt=0, allow_inf_nan=False)
    """The period of `max_refusals` and `max_unreleased` in days. It ends now."""
    noise: Literal["any", "required", "own"] = "any"
    """`"required"`: only releases with differential privacy. `"own"`: in addition, this site adds
    all of the noise itself (placement `"site"`), so that it does not depend on other sites."""
    dominance: Dominance | None = None
    """A few records may not make up most of a total."""
    budget: Budget | None = None
    """How much privacy one job with noise, and all of them together, may cost. If neither this nor
    a profile is set, jobs with noise are refused."""
    modules: Names = ()
    """The factories of networks, `package.module:factory`, that jobs may name. A job that names
    another one is refused before it is imported, because that would run code of the coordinator's
    choice. Networks that come with secagg are always allowed. A site without a policy file allows
    all."""
    keys: Keys | None = None
    """Whose requests are answered."""
    _file: str = PrivateAttr(default="")
    _of_job: bool = PrivateAttr(default=False)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_profile(cls, raw: Any) -> Any:
        raw = _with_person(raw)
        if not isinstance(raw, dict) or not isinstance(raw.get("profile"), int | float):
            return raw  # no profile, or one of a wrong type, which its field rejects
        known = PROFILES.get(raw["profile"], {})
        filled = {**known, **raw}
        if "dominance" in known and isinstance(filled["dominance"], dict):
            filled["dominance"] = {**known["dominance"], **filled["dominance"]}
        if known and "budget" not in raw:
            filled["budget"] = {**known["budget"], "exact_jobs": "by_rules"}
        elif known and isinstance(raw["budget"], dict):
            filled["budget"] = {**known["budget"], **raw["budget"]}
        return filled

    @model_validator(mode="after")
    def _not_looser_than_profile(self) -> SitePolicy:
        if self.profile is not None:
            rules = dict(PROFILES[self.profile])
            _refuse_looser(self.dominance, rules.pop("dominance", {}), "dominance.")
            _refuse_looser(self.budget, rules.pop("budget", {}), "budget.")
            if self.budget is not None and self.budget.period_days is not None:
                raise ValueError(
                    "budget.period_days is looser than the profile's all time: leave "
                    "out one of them"
                )
            _refuse_looser(self, rules, "")
        return self

    def forbids(self, column: str, declared: Mapping[str, Any]) -> bool:
        """Return whether the policy pins this column to another declaration than a job's."""
        pinned = self.columns.get(column) if isinstance(self.columns, dict) else None
        return pinned is not None and pinned.declaration != declared

    @property
    def is_own(self) -> bool:
        """Whether these are the site's own rules; if not, it has only those that all agreed on."""
        return not self._of_job

    def caps(self, *, exact: bool) -> tuple[Cap, ...]:
        """Return the caps of the budget that hold for a job; exact: one without noise."""
        if self.budget is None or (exact and self.budget.exact_jobs == "by_rules"):
            return ()
        return self.budget.caps

    @property
    def release(self) -> ReleasePolicy:
        """The counting rules, for those who open a sum."""
        rules = ReleasePolicy(self.min_sites, self.min_records, self.min_total_records)
        return (
            replace(rules, place=f"{self._file} (a profile sets it too)") if self._file else rules
        )

    @property
    def on_record_sets(self) -> tuple[int | None, float | None, bool]:
        """What `secagg.privacy.policy.record_sets` needs.

        `min_records`, `max_leverage`, and whether levels of few records are judged by the counts of
        all sites only.
        """
        return self.min_records, self.max_leverage, self._of_job

    @property
    def smallest_cell(self) -> int:
        """The rule `min_cell_records`, with its default."""
        return self.min_cell_records or self.min_records or 1

    @property
    def fewest_level_sites(self) -> int:
        """The rule `min_level_sites`, with its default."""
        return self.min_level_sites or self.min_sites or 1

    def at_least(self, agreed: ReleasePolicy) -> SitePolicy:
        """Return this policy with its counting rules raised to the agreed ones, if it sets any."""
        release = self.release.at_least(agreed)
        counts = ("min_sites", "min_records", "min_total_records")
        return self.model_copy(update={key: getattr(release, key) for key in counts})


def policy_of(release: ReleasePolicy) -> SitePolicy:
    """Return the policy of a site without a policy file: the counting rules that all agreed on.

    The rule on leverage has its default, because it protects the smallest count that was agreed: a
    combination of columns that is zero for all other records is a sum over fewer. If a sum may be
    over one record, so may a combination, and there is no such rule.
    """
    single = release.min_records == 1
    policy = SitePolicy(
        min_sites=release.min_sites,
        min_records=release.min_records,
        min_total_records=release.min_total_records,
        min_level_records=1, min_cell_records=1, min_level_sites=1,
        max_leverage=None if single else MAX_LEVERAGE, max_exact_share=None,
        protocols=(ANY_PROTOCOL,), modules=(ANY_MODULE,),
    )  # fmt: skip
    policy._of_job = True
    return policy


def read_policy(path: Path) -> SitePolicy:
    """Read a site's policy file. Raises `JobError` with one line."""
    policy = parse_policy(read_toml(path, JobError), str(path))
    policy._file = str(path)
    return policy


def parse_policy(raw: Mapping[str, Any], where: str) -> SitePolicy:
    """Return the policy in TOML data. Raises `JobError` naming the key."""
    try:
        return SitePolicy.model_validate(dict(raw))
    except ValidationError as error:
        errors = error.errors(include_url=False)
    unknown = [e for e in errors if e["type"] == "extra_forbidden"]
    first = (unknown or errors)[0]  # a misspelt key explains a missing one
    path = [str(part) for part in first["loc"] if not str(part).startswith("<")]  # no tags
    key = ".".join(path)
    if not unknown:
        raise JobError(where, describe(first, key or "policy"))
    tables: dict[str, type[BaseModel]] = {"dominance": Dominance, "budget": Budget, "keys": Keys}
    kind = tables.get(path[0], PinnedColumn) if len(path) > 1 else SitePolicy
    raise unknown_key(where, key, kind.model_fields)


def _with_person(raw: Any) -> Any:
    """Return the policy with `budget.person`, as older files have it, as `person`."""
    budget = raw.get("budget") if isinstance(raw, dict) else None
    if not isinstance(budget, dict) or "person" not in budget:
        return raw
    rest = dict(budget)
    column = rest.pop("person")
    if raw.get("person", column) != column:
        raise ValueError("person and budget.person name different columns; keep person")
    return {**raw, "person": column, "budget": rest}


_SMALLER_IS_STRICTER = (
    "max_parameters_ratio", "max_exact_share", "share", "epsilon", "delta", "period_epsilon",
    "period_delta",
)  # fmt: skip


def _refuse_looser(own: BaseModel | None, profile: Mapping[str, Any], table: str) -> None:
    for key, required in profile.items():
        value = getattr(own, key)
        if value < required if key not in _SMALLER_IS_STRICTER else value > required:
            raise ValueError(
                f"{table}{key} = {value} is looser than the profile's {required}: leave out one of "
                "them"
            )
