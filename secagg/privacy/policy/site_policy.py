"""A site's own policy: a TOML file that its data-protection officer owns.

The keys are described for officers in docs/policy.md. `secagg.privacy.policy.evaluation` applies
them at the site, to each request, before anything leaves it.

Guarantees
    * It fails closed. A file that cannot be read, or that holds an unknown key, is an error. A
      policy without min_sites or min_records, and without a profile that sets them, refuses all.
    * A file that names a profile is never looser than it: a key beside it that is looser is an
      error. (So a report may quote the profile's name. Who wants to be looser names no profile.)
    * A job can make a site's counting rules stricter and nothing looser (`at_least`).

=======  =========  ===========  =====  ================  =======================================
profile  min_sites  min_records  ratio  dof; dominance    the convention that it follows
=======  =========  ===========  =====  ================  =======================================
3        3          3            0.33                     DataSHIELD: nfilter.subset, nfilter.glm
5        3          5            0.33                     many registries; OMOP's usual minimum
7        3          8            0.33                     OpenSAFELY: counts up to 7 not shown
10       3          10           0.33   10; 2, 0.9, 0.1   SACRO, as it is set; ABS, rule of ten
11       3          11           0.33   10; 2, 0.9, 0.1   CMS: cells of 1 to 10 not shown
=======  =========  ===========  =====  ================  =======================================

Dominance is `largest`, `share`, `remainder`. Three sites are no part of these conventions: of two,
each reads the other's sum. Those that ask for a least count only are filled up with DataSHIELD's
ratio, and CMS with all of profile 10.

Not protected: a policy is as good as its owner's control over the file and over the code that reads
it; nothing here proves to others that a site keeps to it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from secagg.contracts.noise import Adjacency
from secagg.core.validation import describe, unknown_key
from secagg.errors import JobError
from secagg.privacy.accounting.budget import Cap
from secagg.privacy.policy.release_rules import ReleasePolicy

_DATASHIELD = {"min_sites": 3, "max_parameters_ratio": 0.33}
_SACRO = _DATASHIELD | {
    "min_residual_dof": 10,
    "dominance": {"largest": 2, "share": 0.9, "remainder": 0.1},
}
PROFILES: Mapping[int, Mapping[str, Any]] = {
    3: _DATASHIELD | {"min_records": 3},
    5: _DATASHIELD | {"min_records": 5},
    7: _DATASHIELD | {"min_records": 8},
    10: _SACRO | {"min_records": 10},
    11: _SACRO | {"min_records": 11},
}

Share = Annotated[float, Field(gt=0, le=1)]
Names = tuple[Annotated[str, Field(min_length=1)], ...]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Dominance(_Strict):
    """No few records may make up most of a total (Hundepool et al. 2012, section 4.2).

    For each total of contributions x1 >= x2 >= ... >= 0 of the site's records:
    share: x1 + ... + xn <= share * total, n = `largest`: the (n, k)-dominance rule, k = 100 share
    remainder: total - x1 - x2 >= remainder * x1: the p% rule, p = 100 remainder
    """

    largest: int = Field(default=1, ge=1)
    share: Share | None = None
    remainder: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _says_something(self) -> Dominance:
        if self.share is None and self.remainder is None:
            raise ValueError("set share, remainder, or both")
        return self


class Budget(_Strict):
    """What a job, and all jobs of a period, may cost in differential privacy's epsilon and delta.

    period_epsilon, period_delta: of all that was released within `period_days` days (unset: ever)
    adjacency, unit: of the guarantees that are accepted; unset, any, and a cap holds under each
    person: the column that names persons, whom guarantees then have to protect: with another, whose
        values are all different, say, they would protect records
    colluding: least number of sites that may know each other's noise, where it is shared out
    """

    epsilon: float | None = Field(default=None, gt=0, le=100)
    delta: float | None = Field(default=None, gt=0, lt=1)
    period_epsilon: float | None = Field(default=None, gt=0, le=100)
    period_delta: float | None = Field(default=None, gt=0, lt=1)
    period_days: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    adjacency: tuple[Adjacency, ...] | None = Field(default=None, min_length=1)
    unit: tuple[Literal["record", "person"], ...] | None = Field(default=None, min_length=1)
    person: str | None = Field(default=None, min_length=1)
    colluding: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _complete(self) -> Budget:
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta belong together")
        if (self.period_epsilon is None) != (self.period_delta is None):
            raise ValueError("period_epsilon and period_delta belong together")
        if self.period_days is not None and self.period_epsilon is None:
            raise ValueError("period_days needs period_epsilon and period_delta")
        if self.epsilon is None and self.period_epsilon is None:
            raise ValueError("set epsilon and delta, or period_epsilon and period_delta, or all")
        return self

    @property
    def caps(self) -> tuple[Cap, ...]:
        """What the ledger has to keep to: the period's epsilon, under each adjacency accepted."""
        if self.period_epsilon is None or self.period_delta is None:
            return ()
        return tuple(
            Cap(self.period_epsilon, self.period_delta, self.period_days, adjacency)
            for adjacency in (self.adjacency or tuple(Adjacency))
        )


def _is_key(text: str) -> str:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        raise ValueError("is not hexadecimal") from None
    if len(key) != 32:
        raise ValueError(f"an Ed25519 key has 32 bytes, not {len(key)}")
    return key.hex()


class Keys(_Strict):
    """Whose requests are answered: Ed25519 verify keys, in hexadecimal."""

    coordinators: tuple[Annotated[str, AfterValidator(_is_key)], ...] = Field(min_length=1)


class SitePolicy(_Strict):
    """A site's rules; an unset one does not restrict, but for min_sites and min_records.

    dataset: the name under which the ledger keeps what was released from this site's records
    methods, columns, protocols: the only ones allowed
    min_level_records: of each 0/1 variable, ones and zeros at the site, where there are any
    max_parameters_ratio: of a model's parameters to the site's own records
    min_residual_dof: least number of records in all, less the model's parameters
    max_site_share: largest share of all records that may be this site's own
    cohorts: "fixed", no other sites than in earlier releases; "checked", any that together with
        them expose no group of fewer than min_sites (`secagg.privacy.policy.differencing`)
    noise: "required", no exact releases; "own", the site adds all the noise itself
    """

    profile: Literal[3, 5, 7, 10, 11] | None = None
    dataset: str | None = Field(default=None, min_length=1)
    min_sites: int | None = Field(default=None, ge=2)
    min_records: int | None = Field(default=None, ge=1)
    min_total_records: int | None = Field(default=None, ge=1)
    min_level_records: int | None = Field(default=None, ge=1)
    methods: Names | None = None
    columns: Names | None = None
    protocols: Names | None = None
    max_parameters_ratio: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    min_residual_dof: int | None = Field(default=None, ge=1)
    max_site_share: Share | None = None
    cohorts: Literal["checked", "fixed"] = "checked"
    noise: Literal["any", "required", "own"] = "any"
    dominance: Dominance | None = None
    budget: Budget | None = None
    keys: Keys | None = None
    _file: str = PrivateAttr(default="")

    @model_validator(mode="before")
    @classmethod
    def _fill_from_profile(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or not isinstance(raw.get("profile"), int | float):
            return raw  # no profile, or one of a wrong type, which its field refuses
        known = PROFILES.get(raw["profile"], {})
        filled = {**known, **raw}
        if "dominance" in known and isinstance(filled["dominance"], dict):
            filled["dominance"] = {**known["dominance"], **filled["dominance"]}
        return filled

    @model_validator(mode="after")
    def _not_looser_than_profile(self) -> SitePolicy:
        if self.profile is not None:
            asked = dict(PROFILES[self.profile])
            _refuse_looser(self.dominance, asked.pop("dominance", {}), "dominance.")
            _refuse_looser(self, asked, "")
        return self

    @property
    def release(self) -> ReleasePolicy:
        """The counting rules, for whoever opens a sum."""
        rules = ReleasePolicy(self.min_sites, self.min_records, self.min_total_records)
        return (
            replace(rules, place=f"{self._file} (a profile sets it too)") if self._file else rules
        )

    def at_least(self, agreed: ReleasePolicy) -> SitePolicy:
        """Return this policy with counting rules as strict as the agreed ones, if it sets them."""
        release = self.release.at_least(agreed)
        counts = ("min_sites", "min_records", "min_total_records")
        return self.model_copy(update={key: getattr(release, key) for key in counts})


def policy_of(release: ReleasePolicy) -> SitePolicy:
    """Return the policy of a site that has none of its own: the counting rules agreed by all."""
    return SitePolicy(
        min_sites=release.min_sites,
        min_records=release.min_records,
        min_total_records=release.min_total_records,
    )


def read_policy(path: Path) -> SitePolicy:
    """Read a site's policy file. Raises `JobError` with one line; there is no policy then."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise JobError(str(path), f"cannot be read: {error}") from None
    policy = parse_policy(raw, str(path))
    policy._file = str(path)
    return policy


def parse_policy(raw: Mapping[str, Any], where: str) -> SitePolicy:
    """Return the policy that TOML data hold. Raises `JobError` naming the key."""
    try:
        return SitePolicy.model_validate(dict(raw))
    except ValidationError as error:
        errors = error.errors(include_url=False)
    unknown = [e for e in errors if e["type"] == "extra_forbidden"]
    first = (unknown or errors)[0]  # a misspelt key explains the one that is missing
    path = [str(part) for part in first["loc"]]
    key = ".".join(path)
    if not unknown:
        raise JobError(where, describe(first, key or "policy"))
    tables: dict[str, type[BaseModel]] = {"dominance": Dominance, "budget": Budget, "keys": Keys}
    kind = tables[path[0]] if len(path) > 1 else SitePolicy
    raise unknown_key(where, key, kind.model_fields)


_SMALLER_IS_STRICTER = ("max_parameters_ratio", "share")


def _refuse_looser(own: BaseModel | None, profile: Mapping[str, Any], table: str) -> None:
    for key, asked in profile.items():
        value = getattr(own, key)
        if value < asked if key not in _SMALLER_IS_STRICTER else value > asked:
            raise ValueError(
                f"{table}{key} = {value} is looser than the profile's {asked}: leave one of them "
                "out"
            )
