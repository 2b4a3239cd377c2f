"""Public records in a job: a CSV file of whose loss the coordinator adds a term.

Chajewska and Shrivastava (2023), equation 3. The records become part of the job when the job file
is read. So all parties agree on them, a site's officer can read them before approving, and
`secagg verify` computes the same result. They are public: nothing protects them.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, model_validator

from secagg.errors import JobError

MAX_CELLS: Final = 100_000  # every party gets them with the job


class PublicRecords(BaseModel):
    """The records, or the file with them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Path | None = None
    """A CSV file with the columns of the job, at most 100,000 cells. Its records become part of the
    job, which all parties can read."""
    records: dict[str, tuple[str, ...]] | None = None
    """Instead of a file: for each column its cells, as text."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.records is None):
            raise ValueError("give either file or records")
        lengths = {len(cells) for cells in (self.records or {}).values()}
        if self.records is not None and (len(lengths) != 1 or 0 in lengths):
            raise ValueError("records needs columns of equal length, with at least one cell")
        if sum(map(len, (self.records or {}).values())) > MAX_CELLS:
            raise ValueError(f"more than {MAX_CELLS:,} cells")
        return self

    def read(self, folder: Path) -> PublicRecords:
        """Return the records of the file, if there is one. Raises `JobError`.

        folder: to which a relative path is relative
        """
        if self.file is None:
            return self
        path = folder / self.file
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                lines = [line for line in csv.reader(file) if line]
        except (OSError, ValueError, csv.Error) as error:
            raise JobError("public.file", f"{path} cannot be read: {error}") from None
        names = [name.strip() for name in lines[0]] if lines else []
        if len(set(names)) != len(names) or any(len(line) != len(names) for line in lines):
            what = f"{path}: a column occurs twice, or a line has more or fewer cells"
            raise JobError("public.file", what, "Correct the file.")
        columns = zip(*([cell.strip() for cell in line] for line in lines[1:]), strict=True)
        try:
            return PublicRecords(records=dict(zip(names, map(tuple, columns), strict=True)))
        except ValueError:
            what = f"{path} has no record, or more than {MAX_CELLS:,} cells"
            raise JobError("public.file", what) from None
