"""The networks of one site after `secagg adapt`: personalised, or with columns of its own.

Not protected: the result may contain the values of single records of this site in recognisable
form. It belongs to the site. No noise is added here, even if the run itself had noise.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import EvidenceError, UsageError
from secagg.evidence.run_folder import BAD_ARCHIVE_ERRORS, MALFORMED_ERRORS
from secagg.jobs.job import Job, parse_job
from secagg.runs.networks.finished_ngm import FinishedNgmRun


@dataclass(frozen=True, repr=False, eq=False)
class SiteNetworks:
    """A run's networks as they are at one site.

    job: the run's, with the columns of the model; result: in the form of a run of `fedngm`
    targets: the columns that `predictions` estimates; all that a table lacks, if there is none
    records: of the site; remarks: about them
    details: further entries of the summary
    """

    job: Job
    session: str
    result: Result
    targets: tuple[str, ...]
    records: int
    remarks: tuple[str, ...]
    details: dict[str, Any]

    def __repr__(self) -> str:
        return f"SiteNetworks({self.job.title!r}, records: {self.records})"

    @property
    def model(self) -> FinishedNgmRun:
        """The model of all columns, for queries, predictions and samples."""
        return FinishedNgmRun.of(self.job, self.result)

    def arrays_file(self) -> bytes:
        """Return the networks of all columns as an NPZ file, like arrays.npz of a run."""
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **self.result.arrays)
        return file.getvalue()

    def summary(self) -> dict[str, Any]:
        """Return plain data for JSON; with the arrays, `read_site_networks` restores the model.

        `arrays` is the SHA-256 of `arrays_file`: the networks of another result do not fit.
        """
        return {
            "title": self.job.title,
            "session": self.session,
            "records_here": self.records,
            **self.details,
            "remarks": list(self.remarks),
            "logarithms": [],
            **self.result.summary,
            "arrays": hashlib.sha256(self.arrays_file()).hexdigest(),
            "job": self.job.model_dump(mode="json"),
        }

    def predictions(
        self, table: pd.DataFrame, random: RandomBytes = system_random
    ) -> dict[str, Array]:
        """Return estimates of `targets` for each record, given its other cells.

        Keys: NAME_mean and NAME_sd of a continuous column, NAME=LEVEL for a level's probability.
        Cells may be missing. Raises `DataError` for a table that does not fit, `UsageError` if it
        lacks no column and `targets` names none.
        """
        model, found = self.model, dict[str, Array]()
        lacking = [name for name in model.cells.names if name not in map(str, table.columns)]
        if not (targets := list(self.targets) or lacking):
            what = "has all columns of the model, so none is to predict"
            raise UsageError("the records to predict", what, "Leave out those to predict.")
        for name, answer in model.predict(table, targets, random=random).items():
            link = "_" if list(answer.estimates) == ["mean", "sd"] else "="
            for part, values in answer.estimates.items():
                found[f"{name}{link}{part}"] = values.to_numpy()
        return found


def read_site_networks(path: str | Path) -> FinishedNgmRun:
    """Return the model that `secagg adapt --out` wrote: JSON, and arrays in an NPZ file beside it.

    Raises `EvidenceError` if a file is missing or malformed, or if the two are not of one result.
    """
    path = Path(path)
    networks = path.with_suffix(".npz")
    try:
        summary, content = json.loads(path.read_bytes()), networks.read_bytes()
        if hashlib.sha256(content).hexdigest() != summary["arrays"]:
            what = f"does not have the networks of {path.name}"
            raise EvidenceError(str(networks), what, "Repeat secagg adapt.")
    except OSError as error:
        raise EvidenceError(str(path), f"cannot be read ({error.strerror})") from None
    except MALFORMED_ERRORS as error:
        raise EvidenceError(str(path), "is malformed") from error
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            found = dict(arrays)
    except (*MALFORMED_ERRORS, *BAD_ARCHIVE_ERRORS) as error:
        raise EvidenceError(str(networks), "is malformed") from error
    try:
        return FinishedNgmRun.of(parse_job(summary["job"]), Result(summary, found))
    except (UsageError, *MALFORMED_ERRORS) as error:
        raise EvidenceError(str(path), "is malformed") from error
