"""A sweep: the TOML file of an experiment. It names a job, and the keys of the job that it changes.

```toml
title = "What privacy costs: maximum heart rate at four hospitals"
job = "linear.toml"            # beside this file
repeat = 20                    # runs at each point of a curve

[keys]                         # changed in every run
"release.min_sites" = 3

[axes]                         # every combination is a point; the first axis is the horizontal one
"privacy.epsilon" = [0.5, 1, 2, 4, 8]

[[lines]]                      # a curve: keys that change together
name = "noise at each site"
"privacy.placement" = "site"
```

A key is written as in `--set`: the names of its tables and its own, with dots. A value replaces the
whole value in the job, also if it is a table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from secagg.core.validation import describe, read_toml, unknown_key
from secagg.errors import JobError, UsageError
from secagg.jobs.job import Job, load_job, parse_job
from secagg.jobs.registry import default_placement
from secagg.reports.experiments.metrics import MORE_IS_BETTER

_RECORDS = "records."
_PLACES = ("sites.folder", "sites.table", "sites.site_column", "sites.ledgers", "engine")
"""Keys that cannot differ between runs: all use the same records, in one process."""
MAX_POINTS = 10_000
_LARGEST = 1e300


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Line(BaseModel):
    """A curve: its name, and the keys of the job that it sets."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(min_length=1)

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of the job that this line sets."""
        return dict(self.model_extra or {})


class Measure(_Table):
    """What is measured."""

    analysis: Annotated[int, Field(ge=1)] | str | None = None
    """The analysis that is measured, by its kind or its position from 1; needed if the job has
    several."""
    truth: Literal["records", "job"] = "records"
    """What counts as the truth. `"records"`: what the job finds in all records without noise.
    `"job"`: the graph that the job's method names in its setting `truth`."""

    def position(self, kinds: Sequence[str]) -> int:
        """Return which of a job's analyses is measured, from 0, by their kinds.

        Raises `UsageError` if several have the kind, or none has it.
        """
        if len(kinds) == 1:
            return 0
        if isinstance(self.analysis, int) and self.analysis <= len(kinds):
            return self.analysis - 1
        if kinds.count(str(self.analysis)) == 1:
            return kinds.index(str(self.analysis))
        listed = ", ".join(f"{place} ({kind})" for place, kind in enumerate(kinds, 1))
        raise UsageError(
            "measure.analysis",
            "names no single analysis of the job",
            f"Name a kind that the job has once, or a position: {listed}.",
        )

    def settings_in(self, job: Job) -> Mapping[str, Any]:
        """Return the settings of the analysis that is measured; as for `position`."""
        settings = job.method.model_extra or {}
        analyses: list[dict[str, Any]] = settings.get("analyses", [settings])
        return analyses[self.position([str(each.get("kind", "")) for each in analyses])]


class Records(_Table):
    """Which records the runs use. A key may be the first axis: `"records.sites" = [2, 4, 8]`."""

    draw: Literal["bootstrap", "same"] = "bootstrap"
    """`"bootstrap"`: each run draws the records of each site anew from its records, with
    replacement; so errors include those of sampling, and the records that were not drawn test the
    predictions. `"same"`: each run uses the records as they are, and only noise differs."""
    sites: int = Field(default=0, ge=0, le=1000)
    """Deal all records out at random to so many sites of nearly equal size; 0 for the job's."""
    simulate: Literal["", "regression", "graph"] = ""
    """Simulate records in place of the job's, whose truth is known
    (`secagg.experiments.simulators`). Then `sites` is their number, 4 if it is 0."""
    each: int = Field(default=500, ge=10, le=10**6)
    """Number of simulated records of each site."""
    edges: int = Field(default=0, ge=0)
    """Number of edges of a simulated graph; 0 for one for each column."""
    causes_first: bool = False
    """Whether the columns of a simulated graph stand in the job after their causes."""
    spread: float = Field(default=0.0, ge=0)
    """Standard deviation of the differences of simulated slopes between sites."""


class Goal(_Table):
    """What is good enough: the largest value of a metric, or the smallest of a share.

    The page then recommends an epsilon.
    """

    metric: Literal[
        "error", "width", "pip_error", "unexplained", "shd", "fdr", "neg_log_pl",
        "coverage", "auc", "tpr",
    ]  # fmt: skip
    below: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """For a metric that is better if it is smaller."""
    above: float | None = Field(default=None, ge=0, lt=1)
    """For a share that is better if it is larger."""
    share: float = Field(default=0.9, gt=0, lt=1)
    """The share of runs that must reach it."""

    @model_validator(mode="after")
    def _check(self) -> Goal:
        wanted = "above" if self.metric in MORE_IS_BETTER else "below"
        other = {"above": "below", "below": "above"}[wanted]
        if getattr(self, wanted) is None or getattr(self, other) is not None:
            raise ValueError(f"a goal of {self.metric} has `{wanted}`, and not `{other}`")
        return self

    def loss(self, value: float) -> float:
        """Return the metric as a number that is better if it is smaller."""
        return value if self.above is None else 1.0 - value

    @property
    def limit(self) -> float:
        """What `loss` must be below."""
        return self.below if self.below is not None else 1.0 - (self.above or 0.0)


class Attacks(_Table):
    """The attacks of `secagg audit` on one run at each point of each curve."""

    names: tuple[str, ...] = Field(min_length=1)
    set_aside: float = Field(default=0.5, gt=0, lt=1)
    at: tuple[float, ...] = ()
    """Places on the horizontal axis at which they are tried; all, if there are none."""
    rounds: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = ()
    """Also after so many sums of the method, for attacks that read sums only."""


class Sweep(_Table):
    """An experiment."""

    title: str = Field(min_length=1)
    """The heading of its page."""
    job: Path
    """The job file, relative to the folder of this file. It must describe records at hand."""
    repeat: int = Field(default=20, ge=2, le=10_000)
    """Number of runs at each point of each curve."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Of the records and the noise of the first run; the next run has the next seed."""
    public: bool = False
    """Whether the records are public or simulated, so that a choice made by looking at them costs
    nothing."""
    measure: Measure = Measure()
    records: Records = Records()
    keys: Mapping[str, Any] = {}
    """Keys of the job that are changed in every run."""
    axes: Annotated[Mapping[str, tuple[Any, ...]], Field(min_length=1)]
    """Keys of the job with their values. Every combination is a point. The first axis is the
    horizontal one, so its values are numbers."""
    lines: tuple[Line, ...] = ()
    goal: Goal | None = None
    attacks: Attacks | None = None
    file: str = ""
    """The name of the file, which is not a key of it."""

    @model_validator(mode="after")
    def _check(self) -> Sweep:
        for key, values in self.axes.items():
            if not values or len(set(map(repr, values))) < len(values):
                raise ValueError(f"axes.{key} must be a list of different values")
        if any(isinstance(v, bool) or not isinstance(v, int | float) for v in self.across_values):
            raise ValueError(f"axes.{self.across}, the first axis, must be a list of numbers")
        places = [v for v in self.across_values if -_LARGEST < v < _LARGEST]
        if len(set(places)) < len(self.across_values):  # 1 and 1.0 are one place
            raise ValueError(f"axes.{self.across} must be a list of different finite numbers")
        for key in (*self.axes, *(key for line in self.lines for key in line.keys)):
            if key == "sites" or key.startswith(_PLACES):
                raise ValueError(f"{key} cannot differ between the runs of an experiment")
        for key in (*list(self.axes)[1:], *(key for line in self.lines for key in line.keys)):
            if key.startswith(_RECORDS):  # baselines are computed along the first axis only
                raise ValueError(f"{key} can be the first axis only")
        wanted = self.attacks.at if self.attacks else ()
        if not set(wanted) <= set(map(float, self.across_values)):
            raise ValueError(f"attacks.at must be values of axes.{self.across}")
        names = [line.name for line in self.lines]
        if not all(text.isprintable() for text in (self.title, *names)):
            raise ValueError("title and names of lines must have printable characters only")
        if len(set(names)) < len(names):
            raise ValueError("lines must have different names")
        return self

    @property
    def across(self) -> str:
        """The key of the horizontal axis."""
        return next(iter(self.axes))

    @property
    def across_values(self) -> tuple[Any, ...]:
        """The values of the horizontal axis."""
        return self.axes[self.across]


@dataclass(frozen=True)
class Point:
    """One point of one curve. line: name of the curve; across: its place on the horizontal axis."""

    line: str
    across: float
    job: Job
    records: Records


def read_sweep(path: Path) -> Sweep:
    """Return the sweep in a file, with the path of its job. Raises `UsageError` of one line."""
    raw = read_toml(path)
    if "file" in raw:
        raise UsageError(str(path), *unknown_key("", "file", _known_keys(())).args[1:])
    try:
        sweep = Sweep.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = _known_keys(tuple(map(str, first["loc"][:-1])))
            raise UsageError(str(path), *unknown_key("", key, known).args[1:]) from None
        raise UsageError(str(path), describe(first, key or "sweep")) from None
    return sweep.model_copy(update={"job": path.parent / sweep.job, "file": path.name})


def _known_keys(place: tuple[str, ...]) -> set[str]:
    tables: dict[tuple[str, ...], type[BaseModel]] = {
        ("measure",): Measure, ("records",): Records, ("goal",): Goal, ("attacks",): Attacks,
    }  # fmt: skip
    return set(tables.get(place, Sweep).model_fields) - {"file"}


def points(sweep: Sweep) -> list[Point]:
    """Return every point with its job. Raises `JobError` if a key or a value is wrong."""
    base, found = load_job(sweep.job), list[Point]()
    number = math.prod(map(len, sweep.axes.values())) * max(1, len(sweep.lines))
    if number > MAX_POINTS:
        raise UsageError("axes", f"has {number} points, and the limit is {MAX_POINTS}")
    for line, keys in _lines(sweep):
        for value in sweep.across_values:
            where = f"{line or sweep.title}, {sweep.across} = {value}"
            job, records = _changed(sweep, base, {**sweep.keys, **keys, sweep.across: value}, where)
            found.append(Point(line, float(value), job, records))
    return found


def _lines(sweep: Sweep) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the keys of each curve: each line with each value of the other axes."""
    others = [[(key, value) for value in values] for key, values in list(sweep.axes.items())[1:]]
    for line in sweep.lines or (None,):
        for settings in itertools.product(*others):
            names = [line.name] if line else []
            names += [f"{key.rpartition('.')[2]} {value}" for key, value in settings]
            yield ", ".join(names), {**(line.keys if line else {}), **dict(settings)}


def _changed(sweep: Sweep, base: Job, keys: Mapping[str, Any], where: str) -> tuple[Job, Records]:
    """Return job and records with these keys changed."""
    of_records = {k: v for k, v in keys.items() if k.startswith(_RECORDS)}
    job = changed(base, {k: v for k, v in keys.items() if k not in of_records}, where)
    raw = sweep.records.model_dump() | {k.removeprefix(_RECORDS): v for k, v in of_records.items()}
    try:
        return job, Records.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(where, describe(first, f"records.{first['loc'][0]}")) from None


def changed(base: Job, keys: Mapping[str, Any], where: str) -> Job:
    """Return the job with these keys changed. where: names the point in a `JobError`.

    Another method places its noise itself, if the job's own method did.
    """
    raw = base.model_dump(mode="python", exclude_unset=True)
    other = {"method", "method.name"} & set(keys) and base.privacy.epsilon is not None
    if other and base.privacy.placement is default_placement(base.method):
        raw["privacy"].pop("placement", None)
    for key, value in keys.items():
        *parents, last = key.split(".")
        table = raw
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise JobError(where, f"{key}: {parent!r} is not a table")
        table[last] = deepcopy(value)
    return parse_job(raw, where)
