"""The job: everything that is decided before any record is read.

A job declares the columns with public bounds and levels, so nothing has to be learned from the
data. The same pydantic model checks TOML files, Python arguments and `--set` options. Unknown keys
are refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from secagg.core.identity import alike
from secagg.core.validation import describe, read_toml, unknown_key
from secagg.errors import JobError
from secagg.jobs.columns import Binary, Categorical, Column, Continuous, Count, Strict
from secagg.jobs.columns_read import with_partial
from secagg.jobs.privacy import Privacy
from secagg.jobs.public_records import PublicRecords
from secagg.jobs.registry import Named, default_placement


class PartialColumn(Strict):
    """A column that only some sites have. Only `sparse_directed` can use it."""

    column: Column
    """How it is declared, as in `[columns]`."""
    sites: tuple[str, ...] = Field(min_length=1)
    """The sites that have it."""


def _check_site_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("a name occurs twice")
    if pair := alike(names):
        raise ValueError(f"{pair[0]!a} and {pair[1]!a} are almost the same name")
    return names


class Sites(Strict):
    """Where the records are."""

    folder: Path | None = None
    """A folder with one `.csv` or `.parquet` file for each site. The file name without its ending
    is the site's name. `NAME.policy.toml` in this folder is the policy of site `NAME`."""
    table: Path | None = None
    """Instead of a folder: one CSV or Parquet file that is split into sites, as a simulation."""
    site_column: str | None = None
    """With `table`: the column that names each record's site."""
    names: Annotated[tuple[str, ...], AfterValidator(_check_site_names)] | None = Field(
        default=None, min_length=2
    )
    """The names of the sites that take part, at least two. A name without records is an error. A
    file without a name stays out, and `plan` and `run` say so. If it is not set, every file in
    `folder` is a site, also a file that is there by mistake. With `lost = "leave_out"`, their order
    decides which sites are left out together."""
    lost: Literal["stop", "leave_out"] = "stop"
    """What happens if a site of `names` does not answer in time. `"stop"`: the run stops, and goes
    on when the site is back; every sum covers all sites. `"leave_out"`: the run goes on, or begins
    again after the first sum, without the site and its whole *group*. The groups are the first
    `release.min_sites` names, the next so many, and so on; the last group has the rest. So sums of
    several sessions together never show fewer than `release.min_sites` sites, whichever sites the
    coordinator reports as lost. At least `release.min_sites` sites must be left, and with `masked`
    and `threshold_paillier` as many as they need to withstand as many colluding sites. Otherwise
    the run stops."""
    max_rows: int = Field(ge=1, le=2**48)
    """Public upper bound on the number of rows of each site. Without noise, a site with more rows
    refuses. With `[privacy]` no site refuses, and the bound is at least 2^20; a site with even more
    rows cuts its sums at their bounds, which biases the result. Choose a generous bound: twice the
    bound costs only one more bit for each number that is sent."""
    ledgers: Path | None = None
    """Folder of the ledgers, which record all releases. If it is not set: `ledgers` in `folder`, or
    a folder next to `table` with the ending `.ledgers`. For data frames, ledgers are then in
    memory. Jobs on the same records should share one folder."""

    @model_validator(mode="after")
    def _one_source(self) -> Sites:
        if (self.table is None) != (self.site_column is None):
            raise ValueError("table and site_column must be set together")
        if self.folder is not None and self.table is not None:
            raise ValueError("give either folder or table, not both")
        return self


class Release(Strict):
    """Release rules; a required rule that is not set blocks every release.

    See `secagg.privacy.policy.release_rules`.
    """

    min_sites: int | None = Field(default=None, ge=2)
    """Smallest number of sites in a sum. If it is not set, nothing is released."""
    min_records: int | None = Field(default=None, ge=1)
    """Without noise: smallest number of complete records at each site that contributes. With noise
    nobody checks a site's number. If it is not set, nothing is released. Above 1, a site without a
    policy file also has the rule `max_leverage`: no combination of columns may show fewer records.
    """
    min_total_records: int | None = Field(default=None, ge=1)
    """Smallest number of complete records in total; with noise, of the noisy number. If the product
    of `min_sites` and `min_records` is larger, that product applies."""
    min_cell_records: int | None = Field(default=None, ge=1)
    """Without noise: smallest number of records, over all sites, with a level of a binary or
    categorical column, with a pair of levels of two such columns, and in a cell of the method's
    tables. None without records is too small. Levels and pairs are counted in a secure sum before
    anything else is computed. If a number is smaller, the run ends and nobody is told which. If it
    is not set: `min_records`."""
    min_level_sites: int | None = Field(default=None, ge=1)
    """Without noise: smallest number of sites at which a level of a binary or categorical column
    occurs, and smallest number at which a column varies. A level that occurs nowhere is allowed,
    and so is a column that varies nowhere. A column that names the site, or that varies at one site
    only, is refused, because its sums show single sites. If it is not set: `min_sites`."""


class Simulation(Strict):
    """Comparisons that may be shown only if the user of the job holds all the data."""

    site_alone: bool = False
    """Also fit the method to the records of each single site, for comparison. This shows each
    site's own results, so use it only if you hold all the data. The sparse methods refuse this key,
    because they already give each site its own result."""


class Engine(Strict):
    """Where the parties run: all in this process, or each in its own process."""

    name: Literal["memory", "processes"] = "memory"
    """`"memory"`: all parties in one process. `"processes"`: each party in its own process on this
    computer. This needs Linux or another POSIX system, and `sites.folder` or `sites.table`."""
    deadline: float = Field(default=30.0, gt=0, le=86400, allow_inf_nan=False)
    """With `"processes"`: seconds that the parties have for each request of the coordinator. A
    party that does not answer in time drops out."""
    restart: bool = True
    """With `"processes"`: if a party's process ends, start it again from its saved state, within
    the deadline. If false, the party drops out."""


class Job(Strict):
    """A complete job: all keys of a job file, checked."""

    title: str
    """A name for the analysis, which results and reports show."""
    sites: Sites
    """Where the records are."""
    columns: dict[str, Column] = Field(min_length=1)
    """The columns to read, at least one."""
    method: Named
    """What is computed: `name` and the settings of that method."""
    protocol: Named = Named(name="additive")
    """How sums are computed: `name` and the settings of that protocol."""
    release: Release = Release()
    """Rules that a sum must meet before anyone sees it. If `min_sites` or `min_records` is not set,
    nothing is released."""
    privacy: Privacy = Privacy()
    """Differential privacy: the guarantee, and where the noise is added."""
    partial: dict[str, PartialColumn] = Field(default={})
    """Columns that only some sites have. The run leaves them out, and `secagg adapt` adds them; or
    method `sparse_directed` names them in `variables`."""
    public: PublicRecords | None = None
    """Public records, which the coordinator adds to the training of `fedngm`."""
    simulation: Simulation = Simulation()
    """Comparisons that are allowed only if one person holds all the data."""
    engine: Engine = Engine()
    """How messages are carried: within one process or between several."""

    _read_partial = model_validator(mode="before")(with_partial)

    @field_validator("privacy", mode="before")
    @classmethod
    def _place_noise(cls, given: Any, info: ValidationInfo) -> Any:
        """Write the method's own placement into a table with epsilon and without a placement.

        So every party, ledger and report has a job that names it.
        """
        method = info.data.get("method")  # None if it is not valid
        asks = isinstance(given, Mapping) and given.get("epsilon") is not None
        if method is None or not asks or "placement" in given:
            return given
        return {**given, "placement": default_placement(method)}

    @property
    def agreed(self) -> dict[str, Any]:
        """What the parties agree on, as plain data for JSON: all but where things lie.

        Folders and engine may differ between the computers of the parties.
        """
        left_out: Any = {key: True for key in ("partial", "public") if not getattr(self, key)}
        left_out["columns"] = {
            name: {"typical"}
            for name, column in self.columns.items()
            if getattr(column, "typical", None) is None
        }
        return self.model_dump(mode="json", exclude={**_LOCAL, **left_out})

    @property
    def local(self) -> dict[str, Any]:
        """Where things lie on this computer, as plain data for JSON."""
        return self.model_dump(mode="json", include=_LOCAL)


_LOCAL: Any = {"sites": {"folder", "table", "site_column", "ledgers"}, "engine": True}
"""The keys of a job that are not part of the agreement."""


def load_job(path: Path, overrides: dict[str, str] | None = None) -> Job:
    """Return the job in a TOML file. Raises `JobError` with one line.

    overrides: the keys and values given with `--set`, which replace those in the file
    Relative paths in the job are relative to the folder of the job file.
    """
    raw = read_toml(path, JobError)
    for key, value in (overrides or {}).items():
        set_dotted(raw, key, value)
    job = parse_job(raw, str(path))
    paths = {
        key: path.parent / value
        for key in ("folder", "table", "ledgers")
        if (value := getattr(job.sites, key)) is not None
    }
    changes: dict[str, Any] = {"sites": job.sites.model_copy(update=paths)}
    if job.public is not None:
        changes["public"] = job.public.read(path.parent)
    return job.model_copy(update=changes)


def parse_job(raw: dict[str, Any], where: str = "job") -> Job:
    """Return the validated job. Raises `JobError`, which names the wrong key and a similar one."""
    try:
        return Job.model_validate(raw)
    except ValidationError as error:
        raise _one_line(error, where) from None


def set_dotted(raw: dict[str, Any], key: str, value: str) -> None:
    """Set the key `a.b.c` to a TOML value, or to the text itself if it is not TOML.

    Raises `JobError`.
    """
    if "\n" in value or "\r" in value:  # in TOML, the next line could set another key
        raise JobError(f"--set {key}", "contains a line break", "Give one KEY=VALUE at a time.")
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
    first = (unknown or errors)[0]  # a misspelt key explains a missing one
    path = [str(part) for part in first["loc"]]
    if path[0:1] == ["columns"]:
        del path[2:3]  # pydantic adds the kind of a column
    if first["type"] == "extra_forbidden":
        return unknown_key(where, ".".join(path), _known_keys(path[:-1]))
    if first["type"].startswith("union_tag"):
        path, expected = [*path, "type"], "'continuous', 'count', 'binary' or 'categorical'"
        return JobError(where, f"{'.'.join(path)}: must be {expected}")
    return JobError(where, describe(first, ".".join(path)))


def _known_keys(path: list[str]) -> set[str]:
    """Return the keys that the table at `path` may hold."""
    if path[:1] == ["columns"]:
        kinds = (Continuous, Count, Binary, Categorical)
        return {key for kind in kinds for key in kind.model_fields}
    tables: dict[str, type[BaseModel]] = {
        "sites": Sites, "release": Release, "privacy": Privacy, "simulation": Simulation,
        "engine": Engine,
    }  # fmt: skip
    return set((tables[path[0]] if path else Job).model_fields)


def read_job(
    job: Job | Mapping[str, Any] | str | Path, overrides: Mapping[str, str] | None = None
) -> Job:
    """Return the job, given as a job, a mapping, or the path of a job file. Raises `JobError`."""
    if isinstance(job, str | Path):
        return load_job(Path(job), dict(overrides or {}))
    if overrides:
        raise JobError("overrides", "require a job file", "Change the job itself.")
    job = job if isinstance(job, Job) else parse_job(dict(job))
    if job.public is None:
        return job
    return job.model_copy(update={"public": job.public.read(Path())})
