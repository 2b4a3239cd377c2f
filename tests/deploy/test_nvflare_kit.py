"""The settings of an NVFLARE kit; the defaults here are those of NVFLARE 2.9.0, shortened."""

import json
import os
import re
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.runs.jobs import SITES, small_job

from secagg.core.identity import COORDINATOR, Role
from secagg.core.randomness import system_random
from secagg.deploy.nvflare_job import CLASSES, job_files, write_job_folder
from secagg.deploy.nvflare_kit import check_kit, harden, remove_old_jobs
from secagg.errors import PolicyRefusal, UsageError
from secagg.sessions.homes.home import Home

RESOURCES = {
    "format_version": 2,
    "class_list_enforcement_mode": "audit",
    "class_allow_list": ["nvflare.app_common.*"],
    "allow_log_streaming": True,
    "snapshot_persistor": {"args": {"storage": {"root_dir": "/tmp/nvflare/snapshot-storage"}}},
    "components": [
        {"id": "site_log_streamer", "path": "nvflare.app_common.logging.SiteLogStreamer"},
        {"id": "job_manager", "args": {"uri_root": "/tmp/nvflare/jobs-storage"}},
    ],
}
RULES = {
    "format_version": "1.0",
    "permissions": {
        "project_admin": "any",
        "org_admin": "o:site",
        "lead": {"submit_job": "any", "byoc": "any"},
        "member": {"view": "any"},
    },
}


def kit_of(folder: Path, file: str, started: Any) -> Path:
    """Make a kit with this start file."""
    local = folder / "local"
    local.mkdir(parents=True)
    (folder / "startup").mkdir()
    (folder / "startup" / file).write_text(json.dumps(started))
    for name, content in (("resources", RESOURCES), ("authorization", RULES), ("log_config", {})):
        (local / f"{name}.json.default").write_text(json.dumps(content))
    return folder


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    return kit_of(tmp_path / "kit", "fed_server.json", {"servers": []})


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "home", COORDINATOR, Role.COORDINATOR, system_random)


def read(kit: Path, name: str) -> Any:
    return json.loads((kit / "local" / name).read_bytes())


def test_a_kit_is_set_up_for_a_home(kit: Path, home: Home) -> None:
    with pytest.raises(PolicyRefusal):
        check_kit(kit, home)
    for _ in range(2):  # the second time, there is nothing left to change
        harden(kit, home)
        check_kit(kit, home)
    resources = read(kit, "resources.json")
    assert resources["class_allow_list"] == list(CLASSES)
    assert [part["id"] for part in resources["components"]] == ["job_manager"]
    assert "/tmp" not in json.dumps(resources).replace(str(home.folder), "")
    assert "any" not in [r["byoc"] for r in read(kit, "authorization.json")["permissions"].values()]
    permissions = read(kit, "authorization.json")["permissions"]
    assert {permissions["org_admin"][right] for right in ("submit_job", "download_job")} == {
        "o:site"
    }
    assert permissions["project_admin"]["view"] == "any"
    assert json.loads((kit / "local" / "resources.json.default").read_text()) == RESOURCES


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "classes": lambda resources, rules: resources["class_allow_list"].append("os.system"),
    "enforcement": lambda resources, rules: resources.update(class_list_enforcement_mode="audit"),
    "logs": lambda resources, rules: resources.update(allow_log_streaming=True),
    "byoc": lambda resources, rules: rules["permissions"]["lead"].update(byoc="any"),
    "any": lambda resources, rules: rules["permissions"].update(lead="any"),
    "no rule": lambda resources, rules: rules["permissions"]["member"].pop("byoc"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_setting_that_was_changed_back_is_found(kit: Path, home: Home, change: str) -> None:
    harden(kit, home)
    resources, rules = read(kit, "resources.json"), read(kit, "authorization.json")
    CHANGES[change](resources, rules)
    (kit / "local" / "resources.json").write_text(json.dumps(resources))
    (kit / "local" / "authorization.json").write_text(json.dumps(rules))
    with pytest.raises(PolicyRefusal):
        check_kit(kit, home)


def test_a_kit_of_another_home_is_found(kit: Path, home: Home, tmp_path: Path) -> None:
    harden(kit, home)
    other = Home.create(tmp_path / "b", COORDINATOR, Role.COORDINATOR, system_random)
    with pytest.raises(PolicyRefusal):
        check_kit(kit, other)


def test_what_is_no_kit_is_refused(tmp_path: Path, home: Home) -> None:
    with pytest.raises(UsageError):
        harden(tmp_path, home)


def test_another_partys_kit_is_left_alone(tmp_path: Path, kit: Path, home: Home) -> None:
    records = tmp_path / "north.csv"
    records.touch()
    north = Home.create(tmp_path / "north", "north", Role.SITE, system_random, records)
    own = kit_of(tmp_path / "own", "fed_client.json", {"client": {"fqsn": "relay.north"}})
    harden(own, north)
    check_kit(own, north)
    other = kit_of(tmp_path / "other", "fed_client.json", {"client": {"fqsn": "south"}})
    for of_another, for_home in ((other, north), (other, home), (kit, north)):
        for use in (harden, check_kit):
            with pytest.raises(UsageError) as caught:
                use(of_another, for_home)
            assert caught.value.where == str(of_another) and for_home.name in caught.value.what
        assert not (of_another / "local" / "secagg.home").exists()
    with pytest.raises(UsageError):
        harden(kit_of(tmp_path / "admin", "fed_admin.json", {"admin": {}}), north)


@pytest.mark.parametrize("name", ["a b", "", "x" * 64, "-a"])
def test_names_that_the_engine_refuses_write_no_folder(tmp_path: Path, name: str) -> None:
    for job_name, parties in ((name, SITES), ("run", [*SITES, name])):
        with pytest.raises(UsageError):
            write_job_folder(tmp_path / "out", "{}", job_name, parties)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("lost", "least", "mandatory"),
    [("stop", 6, {"a", "b", "c", "d", "aggregator_1", "aggregator_2"}),
     ("leave_out", 4, {"aggregator_1", "aggregator_2"})],
)  # fmt: skip
def test_nvflare_waits_only_for_the_sites_that_must_be_left(
    lost: str, least: int, mandatory: set[str]
) -> None:
    job = small_job(
        sites={"max_rows": 9, "names": list("abcd"), "lost": lost},
        release={"min_sites": 2, "min_records": 1}, protocol={"name": "additive"},
    )  # fmt: skip
    parties = ["aggregator_1", "aggregator_2", *"abcd"]
    meta = job_files(json.dumps(job.agreed), "run", parties)["meta.json"]
    assert meta["min_clients"] == least and set(meta["mandatory_clients"]) == mandatory


def test_only_folders_of_old_jobs_are_removed(kit: Path, home: Home, tmp_path: Path) -> None:
    now, old = datetime.now(UTC), 40 * 86400.0
    named = "0b9c4a1e-0000-4000-8000-{:012x}"
    gone, used, fresh, link = (kit / named.format(i) for i in range(4))
    for folder in (gone, used, fresh, kit / "transfer"):
        (folder / "app").mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    for path in (gone / "app", gone, used, kit / "transfer" / "app", kit / "transfer"):
        os.utime(path, (now.timestamp() - old,) * 2)
    with pytest.raises(UsageError):
        remove_old_jobs(kit, home, 0.5, now)
    assert remove_old_jobs(kit, home, 30, now) == [gone]
    left = {path.name for path in kit.iterdir()}
    assert {used.name, fresh.name, link.name, "transfer", "startup", "local"} <= left


def test_the_locks_pin_all_that_a_site_installs() -> None:
    """The commands of the page need hashes of everything, and the two locks must agree."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "how-to" / "deploy.md").read_text("utf-8")
    pins = {}
    for name in ("run", "nvflare"):
        assert f"pip install --require-hashes -r requirements/{name}.txt" in page
        lock = (root / "requirements" / f"{name}.txt").read_text("utf-8")
        entries = [e for e in re.split(r"\n(?=\S)", lock.strip()) if not e.startswith("#")]
        assert all("==" in e.split()[0] and "--hash=sha256:" in e for e in entries)
        pins[name] = dict(e.split()[0].partition(";")[0].lower().split("==") for e in entries)
    assert all(
        pins["run"][name] == pin for name, pin in pins["nvflare"].items() if name in pins["run"]
    )
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    for each in (*project["dependencies"], *project["optional-dependencies"]["nvflare"]):
        assert re.split(r"[>=]", each)[0].lower() in pins["run"] | pins["nvflare"]
