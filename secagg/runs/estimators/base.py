"""What estimators share: their parameters, and how they make and run a job.

An estimator writes a job and runs it: with `secagg.run`, or without a protocol with
`secagg.runs.simulate`, which has the same result. So you can try out a study before you run it over
real sites. All tables are in this process, and nothing is protected from its user.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Self

from secagg.contracts import Result
from secagg.core.randomness import RandomBytes, replayable_random, system_random
from secagg.errors import UsageError
from secagg.jobs.job import Job, parse_job
from secagg.runs.estimators.tables import BOUNDS_READ_NOTE, Tables, columns_of
from secagg.runs.run import run
from secagg.runs.simulate import simulate_sites


class Estimator:
    """The parameters of an estimator, and how it runs its job.

    columns: as in a job's [columns]; None reads them from the tables, with a note in the result
    protocol: for instance "masked", or a table as in a job's [protocol]; None simulates
    seed: None draws from the operating system; a number makes the result reproducible
    """

    columns: Mapping[str, Any] | None
    protocol: str | Mapping[str, Any] | None
    seed: int | None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` has no effect."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> Self:
        """Set parameters. Raises `UsageError` for an unknown one."""
        for name, value in params.items():
            if name not in self.get_params():
                raise UsageError(type(self).__name__, f"has no parameter {name!r}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items() if v is not None)
        return f"{type(self).__name__}({inner})"

    def _check_fitted(self) -> None:
        if not hasattr(self, "result_"):
            raise UsageError(type(self).__name__, "is not fitted", "Call fit_sites first.")

    def _random(self) -> RandomBytes:
        return system_random if self.seed is None else replayable_random(self.seed)

    def _job_of(
        self, tables: Tables, title: str, method: Mapping[str, Any], names: list[str] | None
    ) -> Job:
        """Return the job. names: the columns to declare if they are read from the tables."""
        if len(tables) < 2:
            raise UsageError("fit_sites", "the tables of at least two sites are required")
        columns = dict(self.columns or columns_of(tables, names))
        protocol = self.protocol or "plain"
        named = {"name": protocol} if isinstance(protocol, str) else dict(protocol)
        max_rows = max(len(table) for table in tables.values())
        return parse_job(
            {
                "title": title,
                "sites": {"max_rows": max(max_rows, 1)},
                "columns": columns,
                "method": method,
                "protocol": named,
                "release": {"min_sites": 2, "min_records": 1},
            }
        )

    def _fit(self, job: Job, tables: Tables) -> tuple[Result, dict[str, Result]]:
        """Return the job's result and the sites' own, by a simulation if there is no protocol."""
        if self.protocol is None:
            result, own = simulate_sites(job, tables, random=self._random())
        else:
            finished = run(job, tables, random=self._random())
            result, own = finished.result, dict(finished.own)
        if not self.columns:
            result.summary["notes"].append(BOUNDS_READ_NOTE)
        return result, own
