"""Four hospitals and two aggregators over NVFLARE, with mutual TLS and a process for each party."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import secagg
from secagg.deploy.nvflare_job import job_files
from secagg.deploy.nvflare_kit import RUN_FOLDER
from secagg.evidence.integrity import verify_folder
from secagg.jobs.job import Job, load_job

EXAMPLES = Path(__file__).parents[2] / "examples"
HEART = EXAMPLES / "heart-disease"
RECORDS = {path.stem: path for path in sorted((HEART / "data").glob("*.csv"))}
SITES = sorted(RECORDS)

pytestmark = [
    pytest.mark.nvflare,
    # NVFLARE's administrator leaves connections open.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sys.path.insert(0, str(EXAMPLES / "nvflare"))
    try:
        from consortium import Consortium
        from homes import running
    finally:
        sys.path.pop(0)
    folder = tmp_path_factory.mktemp("nvflare")
    # NVFLARE imports torch if it can, which takes each of its processes some seconds.
    (folder / "torch.py").write_text("raise ImportError")
    consortium = Consortium.make(folder / "c", RECORDS, aggregators=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        with running(consortium):
            yield consortium


def heart(**changes: str) -> Job:
    names = {"sites.names": json.dumps(SITES), "simulation.site_alone": "false"}
    return load_job(HEART / "logistic.toml", names | changes)


def test_a_job_has_the_same_bits_and_one_that_nobody_approved_fails(
    made: Any, tmp_path: Path
) -> None:
    job = heart()  # additive, over two aggregators
    made.approve(job)
    settings = made.homes["coordinator"].folder / "site.toml"
    before = settings.read_text()
    settings.write_text(before + "download = true\n")
    submitted = made.submit(job, "same")
    unapproved = made.submit(heart(title="Unapproved"), "refused")
    assert made.wait(submitted) == "FINISHED:COMPLETED"
    settings.write_text(before)
    out = made.run_folder("same")
    (downloaded,) = downloaded_runs(made, submitted, tmp_path)
    assert verify_folder(downloaded) == verify_folder(out)
    assert (downloaded / "result.json").read_bytes() == (out / "result.json").read_bytes()
    sites = job.sites.model_copy(update={"ledgers": tmp_path / "ledgers"})
    secagg.run(job.model_copy(update={"sites": sites}), out=tmp_path / "memory")
    for name in ("result.json", "arrays.npz"):
        assert (out / name).read_bytes() == (tmp_path / "memory" / name).read_bytes(), name
    for name, home in made.homes.items():
        assert (
            name in ("coordinator", "aggregator_1", "aggregator_2")
            or (home.folder / "ledgers" / f"{name}.ledger").is_file()
        )
    assert made.wait(unapproved) != "FINISHED:COMPLETED"
    assert not made.run_folder("refused").exists()
    assert len(list((made.homes["hungary"].folder / "waiting").iterdir())) == 1
    log = (made.homes["coordinator"].folder / "log.txt").read_text()
    assert "refuses (policy)" in log


def test_a_job_with_code_is_refused(made: Any, tmp_path: Path) -> None:
    job = heart()
    made.approve(job)
    out = tmp_path / "code"
    for path, content in job_files(json.dumps(job.agreed), "code", SITES).items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(json.dumps(content))
    (out / "app" / "custom").mkdir()
    (out / "app" / "custom" / "more.py").write_text("print('here')\n")
    try:
        status = made.wait(str(made.admin.submit_job(str(out))))
    except Exception as error:  # of NVFLARE, which may refuse at once
        status = str(error)
    assert "COMPLETED" not in status and "has not ended" not in status, status
    assert not made.run_folder("code").exists()


def test_a_client_that_is_killed_goes_on_when_the_job_is_submitted_again(
    made: Any, tmp_path: Path
) -> None:
    names = {"sites.names": json.dumps(SITES), "engine.deadline": "10"}
    job = load_job(HEART / "sparse.toml", names | {"method.rounds": "60"})
    made.approve(job)
    submitted = made.submit(job, "killed")
    log = made.run_folder("killed.partial") / "log.jsonl"
    wait_until(lambda: log.exists() and log.read_bytes().count(b'"release"') > 5)
    made.kill("hungary")
    made.end(submitted)
    made.start_party("hungary")
    made.wait_for_clients()
    submitted = made.submit(job, "killed")
    assert made.wait(submitted) == "FINISHED:COMPLETED"
    assert downloaded_runs(made, submitted, tmp_path) == []  # unless the coordinator allows it
    verify_folder(made.run_folder("killed"))
    events = [
        json.loads(line)["event"] for line in (made.run_folder("killed") / "log.jsonl").open()
    ]
    assert events.count("resumed") == 1


def downloaded_runs(made: Any, submitted: str, folder: Path) -> list[Path]:
    """Return the folders of runs in what an administrator downloads of a job."""
    return list(Path(made.admin.download_job_result(submitted, str(folder))).rglob(RUN_FOLDER))


def wait_until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until
        time.sleep(0.02)
