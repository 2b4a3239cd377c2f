"""A consortium on one computer: Flower with a home and processes for each party.

Real consortia have each party on a computer of its own (docs/how-to/deploy.md). Here one script
plays all of them: it makes homes, certificates and keys of the nodes, and starts and stops the
SuperLink and a SuperNode for each party.

It needs the extra `flower`, in an environment of its own.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

sys.path.append(str(Path(__file__).parents[1] / "nvflare"))
from homes import approve_everywhere, free_port, make_homes

from secagg.core.identity import COORDINATOR
from secagg.core.private_files import write_private
from secagg.core.randomness import system_random
from secagg.deploy.flower_job import write_app_folder
from secagg.jobs.job import Job, parse_job
from secagg.sessions.homes.home import Home

_START_SECONDS = 120.0
_STOP_SECONDS = 15.0


@dataclass
class Consortium:
    """Homes, certificates and node keys of all parties, and the processes that run."""

    folder: Path
    homes: dict[str, Home]
    port: int
    ports: dict[str, int] = field(default_factory=dict)
    processes: dict[str, list[subprocess.Popen[bytes]]] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, records: Mapping[str, Path]) -> Consortium:
        """Make homes, certificates and keys. folder: a new one; records: each site's file."""
        folder.mkdir(mode=0o700)
        made = cls(folder, make_homes(folder / "homes", records), free_port())
        made.ports[COORDINATOR] = made.port
        for name in (*made.homes, "user"):
            (folder / name).mkdir(mode=0o700)
            write_private(folder / name / "secret", system_random(32))
        _write_certificates(folder)
        for name in made.nodes:
            key = ec.generate_private_key(ec.SECP384R1())
            write_private(folder / name / "node", _private(key, PrivateFormat.OpenSSH))
            public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
            write_private(folder / name / "node.pub", public)
        connection = {"address": f"127.0.0.1:{made.port}", "root-certificates": f"{folder}/ca.crt"}
        lines = ["[superlink]", 'default = "here"', "[superlink.here]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in connection.items()]
        (folder / "user" / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return made

    @property
    def nodes(self) -> list[str]:
        """The parties that have a SuperNode."""
        return [name for name in self.homes if name != COORDINATOR]

    def approve(self, job: Job) -> None:
        """Let every party that the job names approve it."""
        approve_everywhere(self.homes, job)

    def start(self) -> None:
        """Start the SuperLink, register the keys of all nodes, and start the SuperNodes."""
        certificates = [
            "--ssl-ca-certfile", f"{self.folder}/ca.crt",
            "--ssl-certfile", f"{self.folder}/server.crt",
            "--ssl-keyfile", f"{self.folder}/server.key",
        ]  # fmt: skip
        self._start(
            COORDINATOR, "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port),
            *certificates, "--enable-supernode-auth", *self._isolated(COORDINATOR),
        )  # fmt: skip
        self.start_worker(COORDINATOR)
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if time.monotonic() > until:
                raise TimeoutError("the SuperLink does not answer")
            time.sleep(0.5)
        for name in self.nodes:
            self.flwr("supernode", "register", f"{self.folder}/{name}/node.pub", "here")
            self.start_node(name)

    def start_node(self, name: str) -> None:
        """Start a party's SuperNode and worker, and return at once."""
        self.ports[name] = free_port()
        self._start(
            name, "flower-supernode", "--superlink", f"127.0.0.1:{self.port}",
            "--root-certificates", f"{self.folder}/ca.crt", "--port", str(self.ports[name]),
            "--auth-supernode-private-key", f"{self.folder}/{name}/node", *self._isolated(name),
        )  # fmt: skip
        self.start_worker(name)

    def start_worker(self, name: str) -> None:
        """Start a party's worker, and return at once."""
        words = ["--home", str(self.homes[name].folder), "--secret", f"{self.folder}/{name}/secret"]
        if name == COORDINATOR:
            words += ["--root-certificates", f"{self.folder}/ca.crt"]
        address = f"127.0.0.1:{self.ports[name]}"
        self._start(
            name, "python", "-m", "secagg.deploy.flower_worker", "--address", address, *words,
        )  # fmt: skip

    def _isolated(self, name: str) -> list[str]:
        """Return the arguments with which Flower runs no code of an app bundle."""
        secret = self.folder / name / "secret"
        return ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]

    def flwr(self, *words: str) -> dict[str, Any]:
        """Call Flower's command line as its user; return what it prints."""
        done = subprocess.run(
            [_program("flwr"), *words, "--format", "json"],
            check=True, stdout=subprocess.PIPE, env=self._environment("user"), cwd=self.folder,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def submit(self, job: Job, name: str) -> str:
        """Submit a job, and return Flower's name for it."""
        agreed = parse_job({**job.agreed, "engine": {"deadline": job.engine.deadline}})
        out = self.folder / f"app-{name}-{time.time_ns()}"
        write_app_folder(out, agreed.model_dump_json(), name)
        return str(self.flwr("run", str(out), "here")["run-id"])

    def wait(self, submitted: str, seconds: float) -> str:
        """Wait until a run has ended; return its status in Flower. Raises `TimeoutError`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for name, started in self.processes.items():
                for process in started:
                    if process.poll() is not None:  # the folder is often deleted before one looks
                        printed = (self.folder / f"{name}.out").read_text(errors="replace")
                        what = f"{name}: {process.args} has ended ({process.returncode})"
                        raise RuntimeError(f"{what}:\n{printed[-4000:]}")
            status = str(self.flwr("ls", "here", "--run-id", submitted)["runs"][0]["status"])
            if status.startswith("finished"):
                return status
            time.sleep(2)
        raise TimeoutError(f"run {submitted} has not ended")

    def run_folder(self, name: str) -> Path:
        """Return the folder of a run, in the coordinator's home."""
        return self.homes[COORDINATOR].folder / "runs" / name

    def processes_of(self, name: str) -> list[psutil.Process]:
        """Return the processes that were started for a party, and all that these started."""
        found = []
        for started in self.processes.get(name, ()):
            with suppress(psutil.NoSuchProcess):
                top = psutil.Process(started.pid)
                found += [top, *top.children(recursive=True)]
        return found

    def stop(self) -> None:
        """End all processes."""
        found = [process for name in self.processes for process in self.processes_of(name)]
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(found, _STOP_SECONDS)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for started in (each for all_of in self.processes.values() for each in all_of):
            started.wait()
        self.processes.clear()

    def _answers(self) -> bool:
        try:
            self.flwr("ls", "here")
        except subprocess.CalledProcessError:
            return False
        return True

    def _start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            started = subprocess.Popen(
                [_program(words[0]), *words[1:]], stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, env=self._environment(name), cwd=self.folder / name,
                start_new_session=True,
            )  # fmt: skip
        self.processes.setdefault(name, []).append(started)

    def _environment(self, name: str) -> dict[str, str]:
        programs = Path(sys.executable).parent
        return {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": f"{self.folder}/{name}",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
        }


def _program(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _private(key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def _write_certificates(folder: Path) -> None:
    """Write ca.crt, server.crt and server.key: an authority for this consortium only."""
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    here: Sequence[x509.GeneralName] = [
        x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]  # fmt: skip
    top = _certificate("consortium", authority, "consortium", authority)
    top = top.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    leaf = _certificate("localhost", server, "consortium", authority)
    leaf = leaf.add_extension(x509.SubjectAlternativeName(here), critical=False)
    for name, builder in {"ca.crt": top, "server.crt": leaf}.items():
        signed = builder.sign(authority, hashes.SHA256())
        (folder / name).write_bytes(signed.public_bytes(Encoding.PEM))
    write_private(folder / "server.key", _private(server, PrivateFormat.PKCS8))


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, by: str, signer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, by)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(identifier, critical=False)
    )
