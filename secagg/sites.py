"""Where each site's records come from: files, one table, or data frames in Python.

Finding the sites reads names only; a site's file is opened when the site first contributes, after
the plan has been proved to fit and the release rules have been checked.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from secagg.errors import DataError, JobError
from secagg.job import Job, Release
from secagg.privacy.gate import ReleasePolicy
from secagg.settings import describe, unknown_key

if TYPE_CHECKING:
    import pandas as pd

Data = Mapping[str, Any]
"""Records given in Python: site name -> DataFrame, or mapping of column -> array."""


@dataclass(frozen=True)
class SiteSource:
    """One site: its name, how to read its table, and its own release policy if it has one."""

    name: str
    read: Callable[[], pd.DataFrame]
    policy: ReleasePolicy


def find_sites(job: Job, data: Data | None = None) -> dict[str, SiteSource]:
    """Return the sites of a job, by name. Raises `JobError` or `DataError`."""
    shared = as_policy(job.release)
    if data is not None:
        sources = {
            str(name): SiteSource(
                str(name), functools.partial(_from_python, str(name), table), shared
            )
            for name, table in data.items()
        }
    elif job.sites.folder is not None:
        sources = _from_folder(job.sites.folder, shared)
    elif job.sites.table is not None:
        sources = _from_table(job.sites.table, str(job.sites.site_column), shared)
    else:
        raise JobError("sites", "no data", "Set sites.folder, or sites.table with site_column.")
    if len(sources) < 2:
        raise JobError("sites", f"{len(sources)} site found, and a sum needs at least 2")
    return dict(sorted(sources.items()))


def as_policy(release: Release) -> ReleasePolicy:
    """Return the rules of a job's release table."""
    return ReleasePolicy(release.min_sites, release.min_records, release.min_total_records)


def _from_folder(folder: Path, shared: ReleasePolicy) -> dict[str, SiteSource]:
    if not folder.is_dir():
        raise JobError(str(folder), "no such folder", "Set sites.folder.")
    paths = sorted(p for p in folder.iterdir() if p.suffix in (".csv", ".parquet"))
    sources: dict[str, SiteSource] = {}
    for path in paths:
        if path.stem in sources:
            raise JobError(str(folder), f"two files for site {path.stem!r}", "Keep one.")
        own = path.with_suffix(".policy.toml")
        policy = _read_policy(own) if own.exists() else shared
        sources[path.stem] = SiteSource(path.stem, functools.partial(read_file, path), policy)
    return sources


def _read_policy(path: Path) -> ReleasePolicy:
    """Read a site's own rules; the job's do not fill in what they leave out."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        return as_policy(Release.model_validate(raw))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise JobError(str(path), f"cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise unknown_key(str(path), key, Release.model_fields) from None
        raise JobError(str(path), describe(first, key)) from None


def read_file(path: Path) -> pd.DataFrame:
    """Return a CSV or Parquet file as a table of cells. Raises `DataError`."""
    import pandas as pd  # noqa: PLC0415  # half a second that `secagg --help` should not pay

    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        # Cells stay text: which of them are numbers is the job's declaration, not a guess.
        return pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True)
    except pd.errors.EmptyDataError:
        raise DataError(str(path), "the file is empty", "Give it a header and records.") from None
    except ImportError:
        raise DataError(
            str(path), "Parquet needs a further package", "pip install 'secagg[parquet]'"
        ) from None
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise DataError(str(path), f"cannot be read: {str(error).splitlines()[0]}") from None


def _from_table(path: Path, column: str, shared: ReleasePolicy) -> dict[str, SiteSource]:
    """Split one table by a column: a simulation, so reading it to find the sites is no leak."""
    table = read_file(path)
    if column not in table.columns:
        raise DataError(str(path), f"site_column {column!r} is missing")
    parts = {str(name): part for name, part in table.groupby(column, sort=True)}
    return {
        name: SiteSource(name, functools.partial(_same, part), shared)
        for name, part in parts.items()
    }


def _same(table: pd.DataFrame) -> pd.DataFrame:
    return table


def _from_python(name: str, table: Any) -> pd.DataFrame:
    """Return a DataFrame, or one made of a mapping of equally long columns."""
    import pandas as pd  # noqa: PLC0415  # see read_file

    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, Mapping):
        try:
            return pd.DataFrame({key: np.asarray(values) for key, values in table.items()})
        except ValueError as error:
            raise DataError(name, f"columns do not make a table: {error}") from None
    raise DataError(name, f"a {type(table).__name__} is not a table", "Give a pandas DataFrame.")
