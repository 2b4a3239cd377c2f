"""The file of an experiment: what it means, and what is refused."""

from pathlib import Path

import pytest

from secagg.errors import JobError, UsageError
from secagg.experiments.sweep import points, read_sweep

START = 'title = "A study"\njob = "job.toml"\n'
AXES = '[axes]\n"release.min_records" = [2, 4]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(
        'title = "A job"\n[sites]\nfolder = "data"\nmax_rows = 50\n'
        '[columns]\nage = { type = "continuous", low = 0, high = 100 }\n'
        '[method]\nname = "moments"\nanalyses = [{ kind = "describe" }]\n'
        "[release]\nmin_sites = 2\nmin_records = 3\n"
    )
    return tmp_path


def sweep_of(folder: Path, text: str) -> Path:
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def test_every_combination_is_a_point(folder: Path) -> None:
    text = START + AXES + '"protocol.name" = ["plain", "masked"]\n'
    text += '[[lines]]\nname = "few"\n"sites.max_rows" = 9\n[[lines]]\nname = "many"\n'
    found = points(read_sweep(sweep_of(folder, text)))
    assert [(p.line, p.across, p.job.sites.max_rows, p.job.protocol.name) for p in found] == [
        ("few, name plain", 2.0, 9, "plain"), ("few, name plain", 4.0, 9, "plain"),
        ("few, name masked", 2.0, 9, "masked"), ("few, name masked", 4.0, 9, "masked"),
        ("many, name plain", 2.0, 50, "plain"), ("many, name plain", 4.0, 50, "plain"),
        ("many, name masked", 2.0, 50, "masked"), ("many, name masked", 4.0, 50, "masked"),
    ]  # fmt: skip
    assert {p.job.release.min_records for p in found} == {2, 4}
    assert {p.job.sites.folder for p in found} == {folder / "data"}


def test_a_line_replaces_a_whole_table_and_keys_are_set_first(folder: Path) -> None:
    text = START + '[keys]\n"release.min_sites" = 5\n' + AXES
    text += '[[lines]]\nname = "four"\n"release.min_sites" = 4\n[lines.method]\nname = "moments"\n'
    text += 'centre = "site"\nanalyses = [{ kind = "describe" }]\n'
    (first, *_) = points(read_sweep(sweep_of(folder, text)))
    assert first.job.release.min_sites == 4
    assert first.job.method.model_extra["centre"] == "site"


def test_another_method_places_its_noise_itself(folder: Path) -> None:
    """Only where the job's own method did; the line of `one_step` was refused with "sum"."""
    job = (folder / "job.toml").read_text() + "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n"
    text = START + AXES + '[[lines]]\nname = "own"\n[[lines]]\nname = "other"\n[lines.method]\n'
    text += 'name = "one_step"\noutcome = "age"\npredictors = ["dose"]\n'
    job = job.replace("[method]", 'dose = { type = "continuous", low = 0, high = 9 }\n[method]')
    for stated, wanted in (("", ["sum", "round"]), ('placement = "site"\n', ["site", "site"])):
        (folder / "job.toml").write_text(job + stated)
        found = points(read_sweep(sweep_of(folder, text)))
        assert [p.job.privacy.placement.value for p in found[::2]] == wanted


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", ""),
        ("title =", ""),
        (START, "axes"),
        (START + "[axes]\n", "axes"),
        (START + '[axes]\n"a.b" = []\n', "axes"),
        (START + '[axes]\n"a.b" = [1, 1]\n', "axes"),
        (START + '[axes]\n"a.b" = ["x"]\n', "axes"),
        (START + '[axes]\n"a.b" = [true]\n', "axes"),
        (START + "repeats = 3\n" + AXES, "repeat"),
        (START + "repeat = 1\n" + AXES, "repeat"),
        (START + AXES + '[goal]\nmetrics = "error"\nbelow = 1\n', "metric"),
        (START + AXES + '[[lines]]\nname = "a"\n[[lines]]\nname = "a"\n', "lines"),
        (START + AXES + '[[lines]]\nname = "a"\n"records.sites" = 2\n', "records.sites"),
        (START + AXES + '"records.sites" = [2, 3]\n', "records.sites"),
        (START + '[axes]\n"a.b" = [1, 1.0]\n', "axes"),
        (START + AXES + '[[lines]]\nname = "a\\u001b[31m"\n', "printable"),
        (START + '[axes]\n"a.b" = [1, nan]\n', "axes"),
        (START + '[axes]\n"a.b" = [1, 1' + 400 * "0" + "]\n", "axes"),
        (START + AXES + '[[lines]]\nname = "a"\n"sites.folder" = "b"\n', "sites.folder"),
        (START + AXES + '"engine.name" = ["memory"]\n', "engine"),
        (START + AXES + '[goal]\nmetric = "auc"\nbelow = 1\n', "above"),
        (START + AXES + '[goal]\nmetric = "auc"\nabove = 1\n', "above"),
        (START + AXES + '[goal]\nmetric = "error"\nabove = 0.5\n', "below"),
        (START + AXES + '[goal]\nmetric = "error"\n', "below"),
        (START + AXES + '[goal]\nmetric = "eror"\nbelow = 1\n', "metric"),
        (START + AXES + '[goal]\nmetric = "error"\nbelow = inf\n', "below"),
        (START + AXES + '[attacks]\nnames = ["tracing"]\nat = [3]\n', "attacks.at"),
        (START + AXES + '[attacks]\nnames = ["tracing"]\nrounds = [0]\n', "attacks.rounds"),
        (START + AXES + '[attacks]\nname = ["tracing"]\n', "names"),
    ],
)
def test_a_wrong_file_is_refused_by_a_line_that_names_the_key(
    folder: Path, text: str, where: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_sweep(sweep_of(folder, text))
    assert caught.value.where.startswith(str(folder)) and where in caught.value.line()
    assert len(caught.value.line().splitlines()) == 1


def test_a_wrong_key_of_the_job_names_the_point(folder: Path) -> None:
    text = START + AXES + '[[lines]]\nname = "odd"\n"release.min_site" = 2\n'
    with pytest.raises(JobError) as caught:
        points(read_sweep(sweep_of(folder, text)))
    assert "odd" in caught.value.where and "min_sites" in caught.value.line()


def test_a_missing_file_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_sweep(tmp_path / "none.toml")
