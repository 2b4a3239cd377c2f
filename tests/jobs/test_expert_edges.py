"""Files of experts' edges: what they say, where they are found, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from secagg.errors import DataError, JobError
from secagg.jobs.data_sources import find_sites
from secagg.jobs.expert_edges import read_edges
from secagg.jobs.headers_and_copies import check_files
from secagg.jobs.job import parse_job
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

RAW: dict[str, Any] = {
    "title": "Edges",
    "sites": {"max_rows": 20},
    "columns": {name: {"type": "continuous", "low": 0, "high": 10} for name in ("x", "y")},
    "method": {"name": "moments"},
    "release": {"min_sites": 2, "min_records": 1},
}
EDGES = "column,neighbour\nx,y\n z , x \n\n"


def folder(path: Path, **files: str) -> Path:
    for i, name in enumerate("ab"):
        (path / f"{name}.csv").write_text(f"x,y,z\n1,2,3\n4,5,{i}\n")
    for name, text in files.items():
        (path / f"{name}.edges.csv").write_text(text)
    return path


def test_a_site_with_a_file_has_its_edges_and_the_file_is_no_site(tmp_path: Path) -> None:
    raw = RAW | {"sites": {"max_rows": 20, "folder": str(folder(tmp_path, a=EDGES))}}
    planned = plan_job(parse_job(raw))
    assert planned.public.sites == ("a", "b")
    one, other = (read_records(planned, planned.sources[name]) for name in "ab")
    assert one.expert_edges == (("x", "y"), ("z", "x")) and other.expert_edges is None
    assert any("experts" in remark for remark in one.remarks) and not other.remarks
    assert not check_files(planned.job, planned.sources)


def test_a_file_that_belongs_to_no_site_is_refused(tmp_path: Path) -> None:
    raw = RAW | {"sites": {"max_rows": 20, "folder": str(folder(tmp_path, c=EDGES))}}
    with pytest.raises(JobError) as caught:
        find_sites(parse_job(raw))
    assert caught.value.where.endswith("c.edges.csv")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x,y\n",
        "column,neighbour\nx\n",
        "column,neighbour\nx,y,z\n",
        "column,neighbour\nx,w\n",
        "column,neighbour\nx,x\n",
        "column,neighbour\nx,\ud800\n",
    ],
)
def test_a_malformed_file_is_refused_at_the_site(text: str, tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(DataError) as caught:
        read_edges(path, "a", ["x", "y", "z"])
    assert caught.value.where == "a"


def test_a_file_without_edges_is_an_empty_graph(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("\ufeffcolumn,neighbour\n", encoding="utf-8")
    assert read_edges(path, "a", ["x"]) == ()
    with pytest.raises(DataError):
        read_edges(tmp_path / "missing.csv", "a", ["x"])
