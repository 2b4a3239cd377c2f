"""Where each site's records come from: files, one table, or data frames in Python.

To find the sites, the program reads only the names of files, or only the site column of one table.
A site's records are read when the site first contributes: `secagg.sessions.parties.read_records`
makes scaled records of its table. Before that, the program has checked that no sum can overflow,
and that the release rules are met. If a policy file belongs to no site, the run stops. Otherwise a
misspelt file name would switch off a site's rules without any message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from secagg.contracts.noise import Placement
from secagg.core.validation import did_you_mean, unknown_key
from secagg.errors import JobError
from secagg.jobs.expert_edges import EDGES
from secagg.jobs.job import Job, Release
from secagg.jobs.registry import METHODS, PROTOCOLS
from secagg.jobs.site_tables import (
    FileTable,
    GivenTable,
    SharedTable,
    SharedTablePart,
    SiteTable,
)
from secagg.privacy.accounting.composition import Cap
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.privacy.policy.site_policy import ANY_PROTOCOL, SitePolicy, policy_of, read_policy

if TYPE_CHECKING:
    import pandas as pd

_POLICY = ".policy.toml"
ENDINGS = (".csv", ".parquet")
"""Endings of the files that are sites."""
_NAMED_TABLES = "Give {site name: table, ...}."

Data = Mapping[str, Any]
"""Records given in Python: for each site's name, a DataFrame or a mapping of columns to arrays."""


@dataclass(frozen=True)
class SiteSource:
    """One site: its name, its table, its policy, and the file of its ledger.

    policy: the site's rules for releases
    edges: the file with the graph of the site's experts, if there is one
    ledger: the file in which the site writes down every release. None for data given in Python
        without a folder of ledgers: the ledger then exists only during the run
    """

    name: str
    table: SiteTable
    policy: SitePolicy
    ledger: Path | None = None
    edges: Path | None = None

    def read(self) -> pd.DataFrame:
        """Read the site's table now and return it. Raises `DataError`."""
        return self.table.read()

    @property
    def dataset(self) -> str:
        """The name under which the ledger records the releases of these records."""
        return self.policy.dataset or self.name

    @property
    def caps(self) -> tuple[Cap, ...]:
        """The upper limits of epsilon and delta in the site's policy, for jobs with noise."""
        return self.policy.caps(exact=False)


def find_sites(job: Job, data: Data | None = None) -> dict[str, SiteSource]:
    """Return the sites of a job, by name. Raises `JobError` or `DataError`."""
    shared, noised = policy_of(as_policy(job.release)), noised_columns(job)
    if data is not None:
        if not isinstance(data, Mapping):
            kind = type(data).__name__
            raise JobError("data", f"a {kind} does not name the sites", _NAMED_TABLES)
        if len({str(name) for name in data}) != len(data):
            raise JobError("sites", "two sites have the same name")
        sources = {
            str(name): SiteSource(str(name), GivenTable(str(name), table), shared)
            for name, table in data.items()
        }
    elif job.sites.folder is not None:
        sources = _from_folder(job.sites.folder, job.release, noised)
    elif job.sites.table is not None:
        table = SharedTable(job.sites.table, str(job.sites.site_column), noised)
        sources = _from_table(table, shared)
    else:
        raise JobError("sites", "no data", "Set sites.folder, or sites.table with site_column.")
    if job.sites.names is not None:
        sources = _named(sources, job.sites.names, _where_sites_are(job, data))
    for name in sources:
        if not (name and name.isprintable()):
            raise JobError("sites", f"{name!r} cannot name a site", "Use printable characters.")
    if len(sources) < 2:
        what = f"found {len(sources)}, but a sum needs at least 2 sites"
        raise JobError("sites", what, _where_sites_are(job, data))
    for source in sources.values():
        check_policy(source)
    folder = ledger_folder(job) if data is None else job.sites.ledgers
    if folder is not None:
        sources = {
            n: replace(s, ledger=s.ledger or folder / ledger_name(s.dataset))
            for n, s in sources.items()
        }
    return dict(sorted(sources.items()))


def _named(
    sources: Mapping[str, SiteSource], names: tuple[str, ...], where: str
) -> dict[str, SiteSource]:
    """Return the sites of `sites.names`. Raises `JobError` for a name without records."""
    missing = [name for name in names if name not in sources]
    if missing:
        what = (
            f"no records of {', '.join(map(repr, missing))}; found {', '.join(sources) or 'none'}"
        )
        hint = did_you_mean(missing[0], [name for name in sources if name not in names])
        raise JobError("sites.names", what, f"{hint} {where}".strip())
    return {name: sources[name] for name in names}


def _where_sites_are(job: Job, data: Data | None) -> str:
    """Return the advice for a job with too few sites."""
    if data is not None:
        return _NAMED_TABLES
    if job.sites.folder is not None:
        return f"A site is one file in {job.sites.folder} that ends in {' or '.join(ENDINGS)}."
    return f"A site is one value of the column {job.sites.site_column!r}."


def check_policy(source: SiteSource) -> None:
    """Raise `JobError` if a policy names an unknown method or protocol, which is a mistake.

    Also raise it for a data set called 'coordinator'. The site's ledger, which contains the seeds
    of its noise, would have the name of the coordinator's ledger.
    """
    if (source.policy.dataset or "").casefold() == "coordinator":
        where, advice = f"{source.name}{_POLICY}", "Give the data set another name."
        raise JobError(where, "dataset: 'coordinator' is reserved for its own ledger", advice)
    for key, known in (("methods", METHODS), ("protocols", [*PROTOCOLS, ANY_PROTOCOL])):
        for name in getattr(source.policy, key) or ():
            if name not in known:
                error = unknown_key(f"{source.name}{_POLICY}", name, known)
                raise JobError(error.where, f"{key}: unknown name {name!r}", error.advice)


def ledger_folder(job: Job) -> Path | None:
    """Return the folder of the ledgers, which the job sets or which is next to the data.

    Return None if the job sets no folder and the data are given in Python.
    """
    if job.sites.ledgers is not None:
        return job.sites.ledgers
    if job.sites.folder is not None:
        return job.sites.folder / "ledgers"
    return None if job.sites.table is None else job.sites.table.with_suffix(".ledgers")


def ledger_name(dataset: str) -> str:
    """Return the file name of a data set's ledger, with unsafe characters percent-encoded."""
    return f"{quote(dataset, safe=' ')}.ledger"


def as_policy(release: Release) -> ReleasePolicy:
    """Return the rules of a job's release table."""
    return ReleasePolicy(
        release.min_sites, release.min_records, release.min_total_records,
        release.min_records if release.min_cell_records is None else release.min_cell_records,
        release.min_sites if release.min_level_sites is None else release.min_level_sites,
    )  # fmt: skip


def noised_columns(job: Job) -> tuple[str, ...] | None:
    """Return the columns that a job with noise reads; None for a job without noise."""
    if job.privacy.placement is Placement.NONE:
        return None
    return (*job.columns, *filter(None, [job.privacy.person]))


def _from_folder(
    folder: Path, release: Release, noised: tuple[str, ...] | None
) -> dict[str, SiteSource]:
    if not folder.is_dir():
        raise JobError(str(folder), "no such folder", "Set sites.folder.")
    shared = policy_of(as_policy(release))
    # Compare names from the listing: a file system that ignores case would also find A's policy
    # under the name of site a.
    policies = {p.name for p in folder.iterdir() if "policy" in p.name.lower()}
    tables = sorted(p for p in folder.iterdir() if p.suffix.lower() in ENDINGS)
    paths = [p for p in tables if not p.name.endswith(f".{EDGES}")]
    sources: dict[str, SiteSource] = {}
    for path in paths:
        if path.stem in sources:
            raise JobError(
                str(folder), f"two files for site {path.stem!r}", "Move one of them elsewhere."
            )
        own = f"{path.stem}{_POLICY}"
        # A site with a policy has a fixed ledger file, so that no job can bypass it.
        sources[path.stem] = (
            file_source(path.stem, FileTable(path, noised), release, folder / own)
            if own in policies
            else SiteSource(path.stem, FileTable(path, noised), shared)
        )
    for stray in sorted(policies - {f"{name}{_POLICY}" for name in sources}):
        raise JobError(
            str(folder / stray),
            "has 'policy' in its name, but belongs to no site",
            f"Name it exactly SITE{_POLICY}, where SITE is the name of a site's file, or move it "
            "elsewhere.",
        )
    for path in tables:
        if path not in paths:
            if (name := path.name.removesuffix(f".{EDGES}")) not in sources:
                what = f"is a file of edges, and {name!r} is no site"
                raise JobError(str(path), what, f"Name it SITE.{EDGES}, or move it elsewhere.")
            sources[name] = replace(sources[name], edges=path)
    return sources


def file_source(name: str, table: FileTable, release: Release, policy: Path) -> SiteSource:
    """Return a site with a file of records and its own policy. Raises `JobError`.

    Its ledger lies in `ledgers` beside the policy, or where the policy says.
    """
    own = read_policy(policy).at_least(as_policy(release))
    ledger = policy.parent / "ledgers" / ledger_name(own.dataset or name)
    if own.ledger is not None:
        ledger = policy.parent / own.ledger  # an absolute path stays as it is
    return SiteSource(name, table, own, ledger)


def _from_table(table: SharedTable, shared: SitePolicy) -> dict[str, SiteSource]:
    """Split one table by a column. The job's user holds the whole table, so nothing leaks."""
    path = table.path
    if path.with_name(f"{path.stem}{_POLICY}").exists():
        what = "has a policy file, but a split table has no sites with policies"
        raise JobError(str(path), what, "Set sites.folder instead.")
    return {name: SiteSource(name, SharedTablePart(table, name), shared) for name in table.sites()}
