"""A consortium on one computer: NVFLARE with a process, a startup kit and a home for each party.

Real consortia have each party on a computer of its own, and each party draws its own keys there
(docs/how-to/deploy.md). Here one script plays all of them, for the demo, the test and the
measurements. It provisions kits with mutual TLS, makes homes, pins the roster, and starts and stops
the processes.

It needs the extra `nvflare`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from homes import approve_everywhere, free_port, make_homes, parties_of
from nvflare.fuel.flare_api.flare_api import new_secure_session

from secagg.core.identity import COORDINATOR
from secagg.core.private_files import open_private
from secagg.deploy.nvflare_job import write_job_folder
from secagg.deploy.nvflare_kit import harden
from secagg.jobs.job import Job, parse_job
from secagg.sessions.homes.home import Home

ADMIN = "admin@consortium.example"
_START_SECONDS = 60.0
_STOP_SECONDS = 15.0


@dataclass
class Consortium:
    """Homes and kits of all parties, and the processes that run.

    users: the user identifier of each party's processes, for which this process needs to be root
    prefix: a command that starts a party's command, such as strace
    """

    folder: Path
    homes: dict[str, Home]
    port: int
    users: Mapping[str, int] = field(default_factory=dict)
    prefix: Mapping[str, Sequence[str]] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _admin: Any = None

    @classmethod
    def make(cls, folder: Path, records: Mapping[str, Path], aggregators: int = 0) -> Consortium:
        """Make homes and kits. folder: a new one; records: each site's file, by its name."""
        folder.mkdir(mode=0o700)
        made = cls(folder, make_homes(folder / "homes", records, aggregators), free_port())
        made.install_kits()
        return made

    def install_kits(self) -> None:
        """Provision startup kits for the homes, in place of earlier ones."""
        shutil.rmtree(self.folder / "kits", ignore_errors=True)
        self._provision()
        for name, home in self.homes.items():
            harden(self.kit(name), home)

    def kit(self, name: str) -> Path:
        """Return a party's startup kit."""
        party = "server" if name == COORDINATOR else name
        return self.folder / "kits" / "consortium" / "prod_00" / party

    def give_to_users(self, users: Mapping[str, int]) -> None:
        """Give each party's home and kit to a user of its own, and to nobody else. Needs root.

        The administrator's kit, and the provisioner's keys of all certificates, stay this user's.
        """
        for name, user in users.items():
            for top in (self.homes[name].folder, self.kit(name)):
                for path in (top, *top.rglob("*")):
                    os.chown(path, user, user)
                top.chmod(0o700)
                for parent in top.parents:
                    if parent.is_relative_to(self.folder):
                        parent.chmod(0o711)
        for own in (self.kit(ADMIN), self.kit(ADMIN).parent.parent / "state"):
            own.chmod(0o700)
        self.users = users

    def approve(self, job: Job) -> None:
        """Let every party that the job names approve it."""
        approve_everywhere(self.homes, job)

    def start(self) -> None:
        """Start the server and all clients, and wait until all are connected."""
        for name in self.homes:
            self.start_party(name)
        self.wait_for_clients()

    def start_party(self, name: str) -> None:
        """Start one party's process with its kit's own script, and return at once."""
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.kit(name) / "transfer"),  # FLARE writes jobs there, readable for all
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles its modules
        with open_private(self.folder / f"{name}.out", os.O_APPEND) as output:
            start = ["bash", str(self.kit(name) / "startup" / "sub_start.sh"), "--once"]
            user = self.users.get(name)
            self.processes[name] = subprocess.Popen(
                [*self.prefix.get(name, ()), *start],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
                cwd=self.kit(name), start_new_session=True,
                user=user, group=user, extra_groups=None if user is None else [],
            )  # fmt: skip

    def wait_for_clients(self) -> None:
        """Wait until every client is connected. Raises `TimeoutError`."""
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            with suppress(Exception):  # NVFLARE's own, until the server is up
                found = self.admin.get_system_info()
                if {client.name for client in found.client_info} >= set(self.homes) - {COORDINATOR}:
                    return
            time.sleep(0.3)
        raise TimeoutError("not all parties are connected")

    @property
    def admin(self) -> Any:
        """The administrator's session with the server."""
        if self._admin is None:
            self._admin = new_secure_session(ADMIN, str(self.kit(ADMIN)))
        return self._admin

    def submit(self, job: Job, name: str, parties: Sequence[str] = ()) -> str:
        """Submit a job, and return NVFLARE's name for it.

        parties: the clients that take part, if not those that the job names
        """
        agreed = parse_job({**job.agreed, "engine": {"deadline": job.engine.deadline}})
        out = self.folder / "jobs" / f"{name}-{time.time_ns()}"
        write_job_folder(out, agreed.model_dump_json(), name, parties or parties_of(job))
        return str(self.admin.submit_job(str(out)))

    def wait(
        self, submitted: str, seconds: float = 120.0, meanwhile: Callable[[], None] = lambda: None
    ) -> str:
        """Wait until a job has ended; return its status in NVFLARE. Raises `TimeoutError`.

        meanwhile: called several times a second, and once at the end
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            meanwhile()
            status = str(self.admin.get_job_meta(submitted).get("status"))
            if status.startswith("FINISHED"):
                meanwhile()
                return status
            time.sleep(0.3)
        raise TimeoutError(f"job {submitted} has not ended")

    def end(self, submitted: str) -> None:
        """End a job in NVFLARE, which does not notice by itself that a client has died."""
        with suppress(Exception):  # NVFLARE's own: it has just ended
            self.admin.abort_job(submitted)

    def run_folder(self, name: str) -> Path:
        """Return the folder of a run, in the coordinator's home."""
        return self.homes[COORDINATOR].folder / "runs" / name

    def forget_admin(self) -> None:
        """Close the administrator's session, if there is one; the next use opens another."""
        if self._admin is not None:
            with suppress(Exception):
                self._admin.close()
            self._admin = None

    def stop(self) -> None:
        """End all processes, with their job processes."""
        self.forget_admin()
        for name in self.processes:
            self.kill(name, signal.SIGTERM)
        until = time.monotonic() + _STOP_SECONDS
        for name, process in self.processes.items():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.1))
            self.kill(name)
        self.processes.clear()

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a party's process, and to the processes of its jobs."""
        for process in self.processes_of(name):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def processes_of(self, name: str) -> list[psutil.Process]:
        """Return all processes that run from a party's kit."""
        kit = f"{self.kit(name)}"
        found = psutil.process_iter(["cmdline"])
        return [p for p in found if any(kit in part for part in p.info["cmdline"] or ())]

    def _provision(self) -> None:
        clients = [name for name in self.homes if name != COORDINATOR]
        project = {
            "api_version": 3, "name": "consortium", "description": "secagg",
            "participants": [
                {"name": "server", "type": "server", "org": "consortium",
                 "fed_learn_port": self.port, "admin_port": self.port,
                 "default_host": "localhost"},
                {"name": ADMIN, "type": "admin", "org": "consortium", "role": "project_admin"},
                *({"name": name, "type": "client", "org": name} for name in clients),
            ],
            "builders": [
                {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder",
                 "args": {"template_file": ["master_template.yml"]}},
                {"path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
                 "args": {"config_folder": "config", "scheme": "tcp"}},
                {"path": "secagg.deploy.nvflare_certificates.CertBuilder"},
                {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
            ],
        }  # fmt: skip
        path = self.folder / "project.yml"
        path.write_text(json.dumps(project, indent=1), encoding="utf-8")  # JSON is YAML
        subprocess.run(
            [sys.executable, "-m", "nvflare.lighter.provision", "-p", str(path),
             "-w", str(self.folder / "kits")],
            check=True, stdout=subprocess.DEVNULL, cwd=self.folder,
        )  # fmt: skip
        started = self.kit(COORDINATOR) / "startup" / "fed_server.json"
        content = json.loads(started.read_bytes())
        content["servers"][0]["service"]["target"] = f"localhost:{self.port}"  # and no other host
        content["servers"][0]["admin_server"] = "localhost"
        started.write_text(json.dumps(content, indent=1), encoding="utf-8")
