"""The job: one pydantic model for the TOML file, the Python arguments and `--set`.

A job is complete before any record is read: it declares the columns with public bounds and levels,
so that nothing about the data has to be discovered. Unknown keys are refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from secagg.contracts.noise import Adjacency, Placement
from secagg.core.validation import describe, unknown_key
from secagg.errors import JobError

_MAX_BOUND = 1e100


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Continuous(_Strict):
    """A real column. Values outside the public bounds are clipped, and the clipping is counted.

    low, high: public bounds in the column's own units (before `transform`), chosen without looking,
        at most 1e100 in absolute value: squares, and sums of them, stay finite
    transform: "log" takes the natural logarithm, after clipping; then low must be positive
    """

    type: Literal["continuous"]
    low: float = Field(ge=-_MAX_BOUND, le=_MAX_BOUND, allow_inf_nan=False)
    high: float = Field(ge=-_MAX_BOUND, le=_MAX_BOUND, allow_inf_nan=False)
    transform: Literal["none", "log"] = "none"
    unit: str = ""

    @model_validator(mode="after")
    def _ordered(self) -> Continuous:
        if not self.low < self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.transform == "log" and self.low <= 0:
            raise ValueError(f"low ({self.low:g}) must be positive for transform = 'log'")
        return self


def _check_levels(levels: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(levels)) != len(levels):
        raise ValueError("a level is named twice")
    if any(level != level.strip() for level in levels):
        raise ValueError("a level begins or ends with a space, which cells never do")
    return levels


class Binary(_Strict):
    """A column with two levels; the second one counts as 1."""

    type: Literal["binary"]
    levels: Annotated[tuple[str, str], AfterValidator(_check_levels)] = ("0", "1")


class Categorical(_Strict):
    """A column with declared levels; the first is the reference, every other a 0/1 column."""

    type: Literal["categorical"]
    levels: Annotated[tuple[str, ...], AfterValidator(_check_levels)] = Field(min_length=2)


Column = Annotated[Continuous | Binary | Categorical, Field(discriminator="type")]


class Sites(_Strict):
    """Where the records are.

    folder: one CSV or Parquet file a site, named after it; NAME.policy.toml beside it is the
        site's own release policy, and no other file there may have "policy" in its name
    table, site_column: or one table, split by a column (for simulation)
    max_rows: public upper bound on the rows of any one site
    ledgers: folder of the parties' ledgers (unset: beside the records)
    """

    folder: Path | None = None
    table: Path | None = None
    site_column: str | None = None
    max_rows: int = Field(ge=1, le=2**48)
    ledgers: Path | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Sites:
        if (self.table is None) != (self.site_column is None):
            raise ValueError("table and site_column belong together")
        if self.folder is not None and self.table is not None:
            raise ValueError("give either folder or table, not both")
        return self


class Release(_Strict):
    """Release rules; what is unset refuses (see `secagg.privacy.policy.release_rules`)."""

    min_sites: int | None = Field(default=None, ge=2)
    min_records: int | None = Field(default=None, ge=1)
    min_total_records: int | None = Field(default=None, ge=1)


class Privacy(_Strict):
    """Differential privacy: what is promised, and for whom.

    placement: where the noise goes: "sum" (once, into the secure sum), "site" (once, into each
        site's own contribution), "round" (into the sum of every round), or nowhere; then nothing
        else may be set, because nothing of it would hold
    epsilon, delta: of all that the run releases; adjacency: of data sets
    record_norm: every record's scaled variables are clipped to this L2 norm; unset, to what the
        public bounds imply, which clips nothing
    person: a column that names whose record it is; then the promise is to persons, of whom a site
        uses at most `records_per_person` records, and who are at no more than `sites_per_person`
        sites
    colluding: sites whose share of the noise does not count
    count_share: share of the budget that the count of records takes
    expected_records: a public guess of their number, for `secagg plan`
    """

    placement: Placement = Placement.NONE
    epsilon: float | None = Field(default=None, gt=0, le=100, allow_inf_nan=False)
    delta: float | None = Field(default=None, gt=0, lt=1)
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    record_norm: float | None = Field(default=None, ge=1e-3, le=1e6)
    person: str | None = Field(default=None, min_length=1)
    records_per_person: int = Field(default=1, ge=1, le=2**48)
    sites_per_person: int = Field(default=1, ge=1, le=2**32)
    colluding: int = Field(default=1, ge=0)
    count_share: float = Field(default=0.05, ge=0.001, le=0.5)
    expected_records: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _complete(self) -> Privacy:
        if self.placement is Placement.NONE:
            # By value, not by whether it was written: a job that was stored has every key.
            changed = [
                k for k, f in type(self).model_fields.items() if getattr(self, k) != f.default
            ]
            if changed:
                raise ValueError(
                    f"{changed[0]} is set and placement is not, so sums would be exact, without "
                    "noise. Set placement to 'sum', 'site' or 'round', or leave [privacy] out: "
                    "--set privacy={}"
                )
            return self
        if self.epsilon is None or self.delta is None:
            raise ValueError("epsilon and delta are required where noise is placed")
        if self.person is None and max(self.records_per_person, self.sites_per_person) > 1:
            raise ValueError("records_per_person and sites_per_person need person, a column")
        return self


class Simulation(_Strict):
    """What may be shown only because whoever runs the job holds all the data already.

    site_alone: also fit the method at each site by itself, for comparison
    """

    site_alone: bool = False


class Engine(_Strict):
    """Where the parties run: all in this process, or each in a process of its own.

    deadline: seconds that the parties have for each phase; who has not answered has dropped out
    restart: start a party whose process ended again, from its saved state, within the deadline
    Both matter to "processes" only.
    """

    name: Literal["memory", "processes"] = "memory"
    deadline: float = Field(default=30.0, gt=0, le=86400, allow_inf_nan=False)
    restart: bool = True


class Named(BaseModel):
    """A method or protocol by name; its own settings are checked when it is built."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """Everything beside the name."""
        return dict(self.model_extra or {})


class Job(_Strict):
    """A whole job."""

    title: str
    sites: Sites
    columns: dict[str, Column] = Field(min_length=1)
    method: Named
    protocol: Named = Named(name="additive")
    release: Release = Release()
    privacy: Privacy = Privacy()
    simulation: Simulation = Simulation()
    engine: Engine = Engine()


def load_job(path: Path, overrides: dict[str, str] | None = None) -> Job:
    """Read a TOML job; `overrides` are `--set` pairs. Raises `JobError` with one line.

    Relative paths in the job are relative to the folder of the job file.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise JobError(str(path), f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise JobError(str(path), "is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise JobError(str(path), f"is not valid TOML: {error}") from None
    for key, value in (overrides or {}).items():
        set_dotted(raw, key, value)
    job = parse_job(raw, str(path))
    found = {
        key: path.parent / value
        for key in ("folder", "table", "ledgers")
        if (value := getattr(job.sites, key)) is not None
    }
    return job.model_copy(update={"sites": job.sites.model_copy(update=found)})


def parse_job(raw: dict[str, Any], where: str = "job") -> Job:
    """Return the validated job. Raises `JobError` naming the key, and a likely spelling of it."""
    try:
        return Job.model_validate(raw)
    except ValidationError as error:
        raise _one_line(error, where) from None


def set_dotted(raw: dict[str, Any], key: str, value: str) -> None:
    """Set `a.b.c` to a TOML value (or to the bare text). Raises `JobError`."""
    if "\n" in value or "\r" in value:  # read as TOML, what follows could be another key
        raise JobError(f"--set {key}", "holds a line break", "Give one KEY=VALUE at a time.")
    *parents, last = key.split(".")
    table = raw
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise JobError(f"--set {key}", f"{parent!r} is not a table")
    try:
        table[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[last] = value


def _one_line(error: ValidationError, where: str) -> JobError:
    errors = error.errors(include_url=False)
    unknown = [e for e in errors if e["type"] == "extra_forbidden"]
    first = (unknown or errors)[0]  # a misspelt key explains the one that is missing
    path = [str(part) for part in first["loc"]]
    if path[0:1] == ["columns"]:
        del path[2:3]  # pydantic adds the kind of a column
    if first["type"] == "extra_forbidden":
        return unknown_key(where, ".".join(path), _known_keys(path[:-1]))
    if first["type"].startswith("union_tag"):
        path, expected = [*path, "type"], "'continuous', 'binary' or 'categorical'"
        return JobError(where, f"{'.'.join(path)}: must be {expected}")
    return JobError(where, describe(first, ".".join(path)))


def _known_keys(path: list[str]) -> set[str]:
    """Return the keys that the table at `path` may hold."""
    if path[:1] == ["columns"]:
        return {key for kind in (Continuous, Binary, Categorical) for key in kind.model_fields}
    tables: dict[str, type[BaseModel]] = {
        "sites": Sites, "release": Release, "privacy": Privacy, "simulation": Simulation,
        "engine": Engine,
    }  # fmt: skip
    return set((tables[path[0]] if path else Job).model_fields)


def read_job(
    job: Job | Mapping[str, Any] | str | Path, overrides: Mapping[str, str] | None = None
) -> Job:
    """Return the job from any of the forms `run` takes. Raises `JobError`."""
    if isinstance(job, str | Path):
        return load_job(Path(job), dict(overrides or {}))
    if overrides:
        raise JobError("overrides", "go with a job file", "Change the job itself.")
    return job if isinstance(job, Job) else parse_job(dict(job))
