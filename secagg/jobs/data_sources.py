"""Where each site's records come from: files, one table, or data frames in Python.

Finding the sites reads names only: of files, or the site column of one table. The rest is read when
a site first contributes, after the plan has been proved to fit and the release rules have been
checked. A policy that lies in the folder under a name that no site has stops everything: a site
whose rules were passed over would be the last to know.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from secagg.core.validation import unknown_key
from secagg.errors import DataError, JobError
from secagg.jobs.job import Job, Release
from secagg.jobs.registry import METHODS, PROTOCOLS
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.privacy.policy.site_policy import SitePolicy, policy_of, read_policy

if TYPE_CHECKING:
    import pandas as pd

_POLICY = ".policy.toml"
_ENDINGS = (".csv", ".parquet")

Data = Mapping[str, Any]
"""Records given in Python: site name -> DataFrame, or mapping of column -> array."""


@dataclass(frozen=True)
class SiteSource:
    """One site: its name, how to read its table, its policy, and the file of its ledger.

    ledger: None for data given in Python: then it lasts as long as the run
    """

    name: str
    read: Callable[[], pd.DataFrame]
    policy: SitePolicy
    ledger: Path | None = None

    @property
    def dataset(self) -> str:
        """The name under which the ledger keeps what was released of its records."""
        return self.policy.dataset or self.name


def find_sites(job: Job, data: Data | None = None) -> dict[str, SiteSource]:
    """Return the sites of a job, by name. Raises `JobError` or `DataError`."""
    shared = policy_of(as_policy(job.release))
    if data is not None:
        if not isinstance(data, Mapping):
            kind = type(data).__name__
            raise JobError("data", f"a {kind} names no sites", "Give {site name: table, ...}.")
        if len({str(name) for name in data}) != len(data):
            raise JobError("sites", "two sites have the same name")
        sources = {
            str(name): SiteSource(
                str(name), functools.partial(_from_python, str(name), table), shared
            )
            for name, table in data.items()
        }
    elif job.sites.folder is not None:
        sources = _from_folder(job.sites.folder, job.release)
    elif job.sites.table is not None:
        sources = _from_table(job.sites.table, str(job.sites.site_column), shared)
    else:
        raise JobError("sites", "no data", "Set sites.folder, or sites.table with site_column.")
    for name in sources:
        if not (name and name.isprintable()):
            raise JobError("sites", f"{name!r} cannot name a site", "Use printable characters.")
    if len(sources) < 2:
        found = f"{len(sources)} site{'' if len(sources) == 1 else 's'} found"
        raise JobError("sites", f"{found}, and a sum needs at least 2", _where_sites_are(job, data))
    for source in sources.values():
        _check_names(source)
    folder = ledger_folder(job) if data is None else job.sites.ledgers
    if folder is not None:
        sources = {
            n: replace(s, ledger=s.ledger or folder / ledger_name(s.dataset))
            for n, s in sources.items()
        }
    return dict(sorted(sources.items()))


def _where_sites_are(job: Job, data: Data | None) -> str:
    """Return the hint for a job with too few sites."""
    if data is not None:
        return "Give {site name: table, ...}."
    if job.sites.folder is not None:
        return f"A site is one file in {job.sites.folder} that ends in {' or '.join(_ENDINGS)}."
    return f"A site is one value of the column {job.sites.site_column!r}."


def _check_names(source: SiteSource) -> None:
    """Refuse a policy that allows what there is not: it allows less than its owner believes.

    And a data set whose ledger, which holds seeds of noise, would be the coordinator's file.
    """
    if (source.policy.dataset or "").casefold() == "coordinator":
        where, mend = f"{source.name}{_POLICY}", "Give the data set another name."
        raise JobError(where, "dataset: 'coordinator' is the coordinator's own ledger", mend)
    for key, known in (("methods", METHODS), ("protocols", PROTOCOLS)):
        for name in getattr(source.policy, key) or ():
            if name not in known:
                error = unknown_key(f"{source.name}{_POLICY}", name, known)
                raise JobError(error.where, f"{key}: there is no {name!r}", error.mend)


def ledger_folder(job: Job) -> Path | None:
    """Return where the ledgers lie: as the job says, otherwise beside the records."""
    if job.sites.ledgers is not None:
        return job.sites.ledgers
    if job.sites.folder is not None:
        return job.sites.folder / "ledgers"
    return None if job.sites.table is None else job.sites.table.with_suffix(".ledgers")


def ledger_name(dataset: str) -> str:
    """Return the file name of a data set's ledger; its name may hold what file names cannot."""
    return f"{quote(dataset, safe=' ')}.ledger"


def as_policy(release: Release) -> ReleasePolicy:
    """Return the rules of a job's release table."""
    return ReleasePolicy(release.min_sites, release.min_records, release.min_total_records)


def _from_folder(folder: Path, release: Release) -> dict[str, SiteSource]:
    if not folder.is_dir():
        raise JobError(str(folder), "no such folder", "Set sites.folder.")
    shared = policy_of(as_policy(release))
    # Names as they are listed: a file system that ignores case would find A's policy for site a.
    policies = {p.name for p in folder.iterdir() if "policy" in p.name.lower()}
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in _ENDINGS)
    sources: dict[str, SiteSource] = {}
    for path in paths:
        if path.stem in sources:
            raise JobError(str(folder), f"two files for site {path.stem!r}", "Keep one.")
        own = f"{path.stem}{_POLICY}"
        policy = shared
        if own in policies:
            policy = read_policy(folder / own).at_least(as_policy(release))
        # Where the site has rules of its own, whoever asks does not choose where it keeps count.
        ledger = None
        if own in policies:
            ledger = folder / "ledgers" / ledger_name(policy.dataset or path.stem)
        read = functools.partial(read_file, path)
        sources[path.stem] = SiteSource(path.stem, read, policy, ledger)
    for stray in sorted(policies - {f"{name}{_POLICY}" for name in sources}):
        raise JobError(
            str(folder / stray),
            "has 'policy' in its name, and is no site's policy",
            f"Name it exactly SITE{_POLICY} after a site's file, or move it away.",
        )
    return sources


def read_file(path: Path, only: str | None = None) -> pd.DataFrame:
    """Return a CSV or Parquet file as a table of cells. Raises `DataError`.

    only: keep the columns of this name, none or several, and parse no other
    """
    import pandas as pd  # noqa: PLC0415  # half a second that `secagg --help` should not pay

    try:
        if path.suffix.lower() == ".parquet":
            if only is None:
                return pd.read_parquet(path)
            listed = importlib.import_module("pyarrow.parquet").read_schema(path).names
            return pd.read_parquet(path, columns=[name for name in listed if name == only])
        # Cells stay text: which of them are numbers is the job's declaration, not a guess. The
        # header is split off below: given one, pandas takes the first cells of rows that are longer
        # for row labels, which shifts every column, and renames columns that come twice.
        header = [str(name).strip() for name in _read_cells(path, rows=1).iloc[0]]
        wanted = [i for i, name in enumerate(header) if only in (None, name)]
        cells = _read_cells(path, columns=None if only is None else wanted)
    except pd.errors.EmptyDataError:
        raise DataError(str(path), "the file is empty", "Give it a header and records.") from None
    except ImportError:
        raise DataError(
            str(path), "Parquet needs a further package", "pip install 'secagg[parquet]'"
        ) from None
    except UnicodeDecodeError:
        raise DataError(str(path), "is not UTF-8 text", "Save it as UTF-8.") from None
    except OSError as error:
        raise DataError(str(path), f"cannot be read ({error.strerror})") from None
    except ValueError as error:  # as pandas' parser errors are
        what = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        mend = "Are its cells separated by commas, as many in each row as in the header?"
        raise DataError(str(path), f"cannot be read: {what}", mend) from None
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise DataError(
            str(path), f"its cells are not separated by commas ({header[0]!r})", "Use commas."
        )
    names = [header[i] for i in wanted]
    return cells.iloc[1:].set_axis(names, axis="columns").reset_index(drop=True)


def _read_cells(
    path: Path, rows: int | None = None, columns: list[int] | None = None
) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415  # see read_file

    return pd.read_csv(
        path, header=None, dtype=str, keep_default_na=False, skipinitialspace=True,
        nrows=rows, usecols=columns,
    )  # fmt: skip


def _from_table(path: Path, column: str, shared: SitePolicy) -> dict[str, SiteSource]:
    """Split one table by a column: a simulation, so reading that column is no leak."""
    if path.with_name(f"{path.stem}{_POLICY}").exists():
        raise JobError(str(path), "has a site's own policy beside it", "Set sites.folder instead.")

    @functools.cache
    def parts() -> dict[str, pd.DataFrame]:
        return _split(read_file(path), path, column)

    def read(name: str) -> pd.DataFrame:
        if name not in parts():
            raise DataError(str(path), f"site {name!r} is gone", "Was the file changed meanwhile?")
        return parts()[name]

    return {
        name: SiteSource(name, functools.partial(read, name), shared)
        for name in _split(read_file(path, only=column), path, column)
    }


def _split(table: pd.DataFrame, path: Path, column: str) -> dict[str, pd.DataFrame]:
    if list(table.columns).count(column) != 1:
        raise DataError(str(path), f"site_column {column!r} is missing, or is there twice")
    names = table[column].astype(object).where(table[column].notna(), "").astype(str).str.strip()
    return {str(name): part for name, part in table.groupby(names.to_numpy(), sort=True)}


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
