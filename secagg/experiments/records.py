"""The records of an experiment: read once, drawn anew for each run, and measured.

Each run of seed s uses the same records on every curve, so curves are compared in pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from secagg.contracts import PublicFacts
from secagg.core.arrays import Array
from secagg.experiments.simulators import Simulated, simulate_graph, simulate_regression
from secagg.experiments.sweep import Records
from secagg.jobs.data_sources import find_sites
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import Job
from secagg.jobs.privacy import Privacy

Tables = Mapping[str, pd.DataFrame]


def read_tables(job: Job) -> dict[str, pd.DataFrame]:
    """Return the table of each site. Raises `DataError`."""
    return {name: source.read() for name, source in find_sites(job, None).items()}


def digest_of(tables: Tables) -> str:
    """Return a digest of names and cells."""
    digest = hashlib.sha256()
    for name in sorted(tables):
        digest.update(name.encode() + b"\0" + tables[name].to_csv(index=False).encode() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class Drawn:
    """The records of one run.

    test: records that take no part; empty if there are none
    simulated: with the truth, if the records are simulated
    """

    tables: dict[str, pd.DataFrame]
    test: dict[str, pd.DataFrame]
    simulated: Simulated | None = None


def draw(job: Job, outcome: str, records: Records, tables: Tables, seed: int) -> Drawn:
    """Return the records of the run with this seed.

    tables: of the job's sites, which simulations do not use; outcome: of a simulated regression
    """
    sites = records.sites
    if records.simulate == "regression":
        made = simulate_regression(job, outcome, sites or 4, records.each, records.spread, seed)
        return Drawn(made.tables, made.test, made)
    if records.simulate == "graph":
        made = simulate_graph(
            job, sites or 4, records.each, records.edges, seed, causes_first=records.causes_first
        )
        return Drawn(made.tables, made.test, made)
    drawn, others = dict(tables), dict[str, pd.DataFrame]()
    if records.draw == "bootstrap":
        drawn, others = bootstrap(tables, seed)
    if sites:
        drawn = deal(drawn, sites, seed)
    return Drawn(drawn, others)


def deal(tables: Tables, sites: int, seed: int) -> dict[str, pd.DataFrame]:
    """Return all records, dealt out at random to so many sites of nearly equal size."""
    whole = pd.concat([tables[name] for name in sorted(tables)])
    order = np.random.default_rng([seed, sites]).permutation(len(whole))
    return {
        f"site_{i}": whole.iloc[part].reset_index(drop=True)
        for i, part in enumerate(np.array_split(order, sites), start=1)
    }


def bootstrap(tables: Tables, seed: int) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
    """Return each site's records drawn with replacement, and those that were not drawn."""
    rng = np.random.default_rng(seed)
    drawn, others = dict[str, pd.DataFrame](), dict[str, pd.DataFrame]()
    for name in sorted(tables):
        table = tables[name]
        rows = rng.integers(0, len(table), len(table))
        drawn[name] = table.iloc[rows].reset_index(drop=True)
        others[name] = table.drop(index=table.index[np.unique(rows)]).reset_index(drop=True)
    return drawn, others


@dataclass(frozen=True)
class Design:
    """The complete records of some tables as variables of the design matrix, in own units."""

    names: tuple[str, ...]
    values: Array
    """shape (records, variables)"""

    @classmethod
    def of(cls, job: Job, tables: Tables) -> Design:
        """Read the tables as a job without noise reads them."""
        public: PublicFacts = public_facts(job.model_copy(update={"privacy": Privacy()}), ())
        read = [read_rows(job.columns, table, public, name) for name, table in tables.items()]
        half = np.array([variable.half_range for variable in public.variables])
        middle = np.array([variable.midpoint for variable in public.variables])
        names = tuple(variable.name for variable in public.variables)
        return cls(names, np.concatenate([each.values for each in read]) * half + middle)

    def column(self, name: str) -> Array:
        """Return one variable."""
        column: Array = self.values[:, self.names.index(name)]
        return column

    @cached_property
    def deviations(self) -> dict[str, float]:
        """Each variable's standard deviation."""
        return dict(zip(self.names, self.values.std(axis=0).tolist(), strict=True))
