"""What can be said about the sites' files before a run, on the computer that runs the job.

`check_headers` compares the columns that the job needs with the columns that each table has. Names
of columns are public, so no record is read, and all mistakes at all sites are in one error.

`check_files` finds files that are probably there by mistake: a file that no site uses, or a copy
of another site's file. A copy counts its records twice. It also makes a sum over k sites one over
k - 1, and once such a sum is released, no sum without the copy is possible: the difference of the
two sums would be one site. So it has to be found before the first release. If every file in the
folder is a site, a copy is an error. If the job lists the sites, it is only a remark. Under
differential privacy it is always a remark: one record decides whether two files are copies, and no
record may decide whether a run begins.

Who sees this: the person who starts the run on these files, on the screen. It is in no message, log
or file of the run, because it tells something about records. A party that has only its own file
cannot find a copy of it elsewhere.

==============================================  ================================================
case                                            copy
==============================================  ================================================
two files with the same bytes                   the same content
at least 90 % of a file's records in another    nearly the same content, in any order
  one; both have nearly only different records
fewer than 10 records, but not the same bytes   none: they may be equal by chance
few columns with few values each                none, for the same reason
the same records with columns in another order  none: records are compared as text
CSV and Parquet files with the same records     none
files of more than 64 MiB together              only the same bytes are found
==============================================  ================================================
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from secagg.contracts.noise import Placement
from secagg.errors import DataError
from secagg.jobs.columns import header_faults
from secagg.jobs.data_sources import ENDINGS, SiteSource
from secagg.jobs.expert_edges import EDGES
from secagg.jobs.job import Job
from secagg.jobs.partial_columns import lacked_by
from secagg.jobs.site_tables import FileTable, SharedTablePart, is_parquet

_OTHER_TABLES = (
    ".xlsx", ".xls", ".ods", ".tsv", ".tab", ".txt", ".dat", ".gz", ".zip", ".feather", ".sav",
    ".dta", ".sas7bdat", ".rds",
)  # fmt: skip
"""Endings of files that may hold records, but are not read."""

_NEARLY_ALL = 0.9
"""Share of the records of a file that must be in another one. So many records must also differ from
each other within each file: if 90 % of n records that are drawn from m equally likely ones differ,
n is about 0.2 m, so the chance that another record is among them is below 0.2. Of 10 such records,
9 are then among them with a probability below 5e-6."""
_MIN_RECORDS = 10
_MAX_BYTES = 64 * 2**20
"""Largest size of all files together for which single records are compared."""


# --- headers -------------------------------------------------------------------------------------


def check_headers(job: Job, sources: Mapping[str, SiteSource]) -> None:
    """Check that each site's table has each column of the job once.

    Raises `DataError`, which names all missing and repeated columns at all sites.
    """
    needed = dict.fromkeys((*job.columns, *filter(None, [job.privacy.person])))
    wrong: dict[str, list[str]] = defaultdict(list)  # from a mistake to where it is
    advice: dict[str, None] = {}  # each text once, in order
    headers: dict[tuple[str, ...], str] = {}
    unreadable: list[DataError] = []
    for name, source in sources.items():
        table = source.table
        if isinstance(table, FileTable) and table.path.is_fifo():
            continue  # a pipe can be read only once; its site finds a wrong header
        where = str(table.table.path) if isinstance(table, SharedTablePart) else name
        try:
            header = table.header()
        except DataError as error:
            unreadable.append(error)
            continue
        lacked = lacked_by(job, name)
        faults = header_faults(header, [c for c in needed if c not in lacked])
        for what, hint in faults.items():
            wrong[what].append(where)
            shown = f"{where} has the columns {', '.join(header)}."
            advice[hint or headers.setdefault(tuple(header), shown)] = None
    alone = len(sources) == 1  # the others are not known
    some = any("missing" in what and (alone or len(wrong[what]) < len(sources)) for what in wrong)
    if some and _from_whole_folder(job, sources):
        listed = "Every CSV or Parquet file in sites.folder is a site"
        advice[f"({listed}; sites.names lists those that take part.)"] = None
    if wrong or unreadable:
        raise _header_error(wrong, unreadable, list(advice))


def _header_error(
    wrong: Mapping[str, list[str]], unreadable: Sequence[DataError], advice: Sequence[str]
) -> DataError:
    """Return one error for all wrong headers, and for all files whose header cannot be read."""
    if len(unreadable) == 1 and not wrong:
        return unreadable[0]
    places = list(dict.fromkeys(place for where in wrong.values() for place in where))
    if len(places) == 1 and not unreadable:
        return DataError(places[0], "; ".join(wrong), " ".join(advice))
    texts = [f"{what} at {', '.join(where)}" for what, where in wrong.items()]
    texts += [f"{error.where} {error.what}" for error in unreadable]
    more = dict.fromkeys(error.advice for error in unreadable if error.advice)
    return DataError("sites", "; ".join(texts), " ".join([*advice, *more]))


def _from_whole_folder(job: Job, sources: Mapping[str, SiteSource]) -> bool:
    files = all(isinstance(source.table, FileTable) for source in sources.values())
    return files and job.sites.names is None


# --- files ---------------------------------------------------------------------------------------


def check_files(
    job: Job, sources: Mapping[str, SiteSource], *, before_run: bool = False
) -> list[str]:
    """Return remarks about the files of a folder that are probably there by mistake.

    before_run: whether nothing is going to be sent, so that an error reveals nothing
    A file that cannot be read gets no remark; the run names the error.
    Raises `DataError` if a file is a copy of another one, the job does not list the sites, and it
    has no noise, or nothing is sent.
    """
    paths = [s.table.path for s in sources.values() if isinstance(s.table, FileTable)]
    if not paths:
        return []
    readable = [path for path in paths if not path.is_fifo()]
    empty, copies = _compare(readable)
    may_stop = before_run or job.privacy.placement is Placement.NONE
    if copies and may_stop and _from_whole_folder(job, sources):
        advice = (
            "Every CSV or Parquet file in sites.folder is a site, and a site that is in the sum "
            "twice counts twice. Move the copy away, or list the sites in sites.names."
        )
        raise DataError("sites.folder", "; ".join(copies), advice)
    counted = [f"{text}. A site that is in the sum twice counts twice" for text in copies]
    return [*_unused(paths), *empty, *counted]


def _unused(paths: Sequence[Path]) -> Iterator[str]:
    used = {path.name for path in paths}
    files = sorted(p.name for p in paths[0].parent.iterdir() if p.is_file())
    skipped = (".", "~$")
    rest = [n for n in files if n not in used and not n.startswith(skipped)]
    rest = [n for n in rest if not n.endswith(f".{EDGES}")]
    if unnamed := [n for n in rest if n.lower().endswith(ENDINGS)]:
        yield f"{_list(unnamed)}: not in sites.names, so not a site of this run"
    if ignored := [n for n in rest if n.lower().endswith(_OTHER_TABLES)]:
        yield f"{_list(ignored)}: ignored, because only {' and '.join(ENDINGS)} files are sites"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _compare(paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Return a text for each file without records, and for each pair with the same content."""
    empty: list[str] = []
    copies: list[str] = []
    sizes = {path: path.stat().st_size for path in paths}
    same_size = Counter(sizes.values())
    small = sum(sizes.values()) <= _MAX_BYTES
    digests: dict[Path, bytes] = {}
    records: dict[Path, frozenset[bytes]] = {}
    for path in paths:
        if not small and same_size[sizes[path]] < 2:
            continue
        try:
            digests[path] = _digest(path)
            rows = _rows(path) if small and not is_parquet(path) else None
        except OSError:
            continue
        if rows is not None and not rows and sizes[path]:
            empty.append(f"{path.name}: has a header, but no records")
            del digests[path]
        elif rows is not None and _mostly_different(rows):
            records[path] = frozenset(rows)
    for first, second in combinations(paths, 2):
        both = f"{first.name} and {second.name}"
        if first in digests and digests[first] == digests.get(second):
            copies.append(f"{both} have the same content")
        elif first in records and second in records:
            smaller = min(len(records[first]), len(records[second]))
            if len(records[first] & records[second]) >= _NEARLY_ALL * smaller:
                copies.append(f"{both} have nearly all records of the smaller one in common")
    return empty, copies


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _rows(path: Path) -> list[bytes]:
    """Return a digest of each line after the header; empty lines do not count."""
    lines = (line.strip() for line in path.read_bytes().splitlines())
    rows = [hashlib.blake2b(line, digest_size=16).digest() for line in lines if line]
    return rows[1:]


def _mostly_different(rows: Iterable[bytes]) -> bool:
    rows = list(rows)
    return len(rows) >= _MIN_RECORDS and len(set(rows)) >= _NEARLY_ALL * len(rows)
