"""Four hospitals over Flower's own programs, with TLS and a worker for each party.

Flower is in an environment of its own (examples/flower/README.md), so CI skips these tests.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import secagg
from secagg.deploy.flower_job import app_file
from secagg.evidence.integrity import verify_folder
from secagg.jobs.job import Job, load_job

EXAMPLES = Path(__file__).parents[2] / "examples"
HEART = EXAMPLES / "heart-disease"
RECORDS = {path.stem: path for path in sorted((HEART / "data").glob("*.csv"))}
DONE = "finished:completed"

pytestmark = [
    pytest.mark.flower,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of what Flower imports
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sys.path.insert(0, str(EXAMPLES / "flower"))
    try:
        from consortium import Consortium
        from homes import running
    finally:
        sys.path.pop(0)
    consortium = Consortium.make(tmp_path_factory.mktemp("flower") / "c", RECORDS)
    with running(consortium):
        yield consortium


def heart(title: str) -> Job:
    return load_job(HEART / "logistic.toml", {
        "protocol": '{ name = "masked" }', "sites.names": json.dumps(list(RECORDS)),
        "simulation.site_alone": "false", "engine.deadline": "300", "title": title,
    })  # fmt: skip


def check_same_bits(made: Any, job: Job, name: str, folder: Path) -> None:
    out = made.run_folder(name)
    verify_folder(out)
    sites = job.sites.model_copy(update={"ledgers": folder / "ledgers"})
    secagg.run(job.model_copy(update={"sites": sites}), out=folder / "memory")
    for each in ("result.json", "arrays.npz"):
        assert (out / each).read_bytes() == (folder / "memory" / each).read_bytes(), each


def restart_worker(made: Any, party: str) -> None:
    worker = made.processes[party].pop()
    assert "secagg.deploy.flower_worker" in worker.args
    worker.kill()
    worker.wait()
    made.start_worker(party)


def wait_for_sums(made: Any, name: str, number: int) -> None:
    """Wait until an unfinished run has released some sums."""
    log = made.run_folder(f"{name}.partial") / "log.jsonl"
    wait_until(lambda: log.exists() and log.read_bytes().count(b'"release"') >= number)


def test_a_worker_of_a_site_that_is_killed_changes_no_bit(made: Any, tmp_path: Path) -> None:
    job = heart("site killed")
    made.approve(job)
    submitted = made.submit(job, "site")
    wait_for_sums(made, "site", 2)
    restart_worker(made, "hungary")
    assert made.wait(submitted, 300) == DONE
    check_same_bits(made, job, "site", tmp_path)


def test_a_run_whose_coordinator_is_killed_goes_on_when_it_is_submitted_again(
    made: Any, tmp_path: Path
) -> None:
    job = heart("coordinator killed")
    made.approve(job)
    made.submit(job, "lead")
    wait_for_sums(made, "lead", 2)
    restart_worker(made, "coordinator")
    assert made.wait(made.submit(job, "lead"), 400) == DONE
    check_same_bits(made, job, "lead", tmp_path)
    lines = (made.run_folder("lead") / "log.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events.count("resumed") == 1


def test_an_unapproved_job_fails_and_no_code_of_a_bundle_runs(made: Any, tmp_path: Path) -> None:
    job, app, mark = heart("nobody approved"), tmp_path / "app", tmp_path / "ran"
    (app / "planted").mkdir(parents=True)
    (app / "planted" / "__init__.py").write_text(f"open({str(mark)!r}, 'w')\nAPP = None\n")
    text = app_file(json.dumps(job.agreed), "refused")
    assert text.count("secagg.deploy.flower_job:APP") == 2
    text = text.replace("secagg.deploy.flower_job:APP", "planted:APP")
    (app / "pyproject.toml").write_text(text)
    submitted = str(made.flwr("run", str(app), "here")["run-id"])
    assert made.wait(submitted, 120) == "finished:failed"
    assert not mark.exists()
    assert not made.run_folder("refused").exists()
    assert "refuses (policy)" in (made.homes["coordinator"].folder / "log.txt").read_text()


def test_a_message_that_never_arrives_does_not_block_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower leaves such a task if a run ends while the SuperNode takes its message."""
    from flwr.proto.message_pb2 import PullObjectResponse
    from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
    from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, pull_objects

    from secagg.core.identity import Role
    from secagg.core.randomness import system_random
    from secagg.deploy import flower_worker
    from secagg.sessions.homes.home import Home

    def pull_task_input(client: Any) -> Any:  # the part of Flower's that waits
        pull = make_pull_object_fn_protobuf(client.PullObject, None, 1)
        pull_objects(["0" * 64], pull, max_tries_per_object=8, initial_backoff=0.1)

    home = Home.create(tmp_path / "home", "coordinator", Role.COORDINATOR, system_random)
    client, closed = flower_worker.RuntimeHttpClient, []
    never = PullObjectResponse(object_found=True, object_available=False)
    monkeypatch.setattr(client, "PullObject", lambda self, request: never)
    monkeypatch.setattr(client, "close", lambda self: closed.append(1))
    monkeypatch.setattr(flower_worker, "pull_task_input", pull_task_input)
    monkeypatch.setattr(flower_worker, "_PULL_SECONDS", 0.2)
    worker = flower_worker.Worker(home, "127.0.0.1:1", b"s" * 32, None)
    with pytest.raises(TimeoutError):
        worker._answer("token")
    assert len(closed) == 1
    monkeypatch.setattr(flower_worker, "_PULL_SECONDS", 1e6)
    with pytest.raises(ObjectPullError):  # Flower's own limit, which is 500 tries
        worker._answer("token")


def wait_until(done: Callable[[], bool], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until
        time.sleep(0.02)
