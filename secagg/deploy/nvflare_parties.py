"""The two objects of a job on NVIDIA FLARE (2.9, Collab API): a party's, and the coordinator's.

NVFLARE carries bytes between `PartyNode` at each client and `lead` at the server, under its own
mutual TLS. A job has no code: it names the two classes here, which every party installed with
secagg, and which its kit's allow list must have (`secagg.deploy.nvflare_kit`).

Where a party's home is, each kit says for itself, in the file `secagg.home` of its `local` folder.

Threat model: that of `secagg.sessions.engines.site_node`. An exception in a published method would
be sent to the server with its text and traceback, so `PartyObject.answer` raises none.

Not protected: the operator of the NVFLARE server runs the coordinator's process, and can read the
coordinator's key and home. That operator is the coordinator, for every promise of secagg. With
`download` in the coordinator's site.toml, every administrator whom NVFLARE lets download jobs gets
the folder of each finished run, with the released sums.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from nvflare.collab import collab

from secagg.core import canonical_encoding
from secagg.core.identity import COORDINATOR
from secagg.core.printable import printable
from secagg.deploy.noted_run import AGAIN, run_noted
from secagg.deploy.nvflare_kit import HOME_FILE, RUN_FOLDER
from secagg.errors import UsageError
from secagg.sessions.engines.site_node import PartyNode
from secagg.sessions.homes.home import Home

_ABORT_SECONDS = 0.2
_HOMES = "SECAGG_HOMES"
"""Environment variable for NVFLARE's simulator, whose parties share a workspace: the folder in
which each party's home has its name."""


class PartyObject:
    """What runs at a client."""

    def __init__(self) -> None:
        self._node: PartyNode | None = None
        self._making = threading.Lock()

    @collab.publish
    def answer(self, message: bytes) -> bytes:
        """Return the party's answer to one message; never raises an exception."""
        try:
            with self._making:
                if self._node is None:
                    self._node = PartyNode(_home(collab.site_name))
            return self._node.answer(message)
        except UsageError as error:  # without a home there is no log but the client's own output
            sys.stderr.write(f"secagg: {printable(error.line())}\n")
        except Exception:  # its text may quote anything
            sys.stderr.write("secagg: an internal error, without a home to note it in\n")
        return canonical_encoding.dumps(["refused", "usage"])


class LeadObject:
    """What runs at the server.

    job: the job as JSON; name: of the run, in the coordinator's home
    """

    def __init__(self, job: str, name: str) -> None:
        self.job, self.name = job, name

    @collab.main
    def run(self) -> str:
        """Run the job. Raises `RunFailed` if it fails, so that NVFLARE's job fails."""
        clients = {client.name: client for client in collab.clients}

        def call(party: str, message: bytes, seconds: float) -> bytes:
            return bytes(clients[party](timeout=seconds).answer(message))

        home, ended = _home(COORDINATOR), threading.Event()
        watching = (collab.context.is_aborted, ended, home, self.name)
        threading.Thread(target=note_abort, args=watching, daemon=True).start()
        try:
            run_noted(home, self.job, call, "nvflare", self.name)
        finally:
            ended.set()
        if home.settings.download:
            self._copy(home)
        return "done"

    def _copy(self, home: Home) -> None:
        """Copy the folder of the finished run into the job's workspace, which NVFLARE then packs.

        The run is complete and stays in the home, so an error here goes to the log only.
        """
        workspace = collab.workspace.get_run_dir(collab.fl_ctx.get_job_id())
        try:
            shutil.copytree(home.folder / "runs" / self.name, Path(workspace) / RUN_FOLDER)
        except OSError as error:
            home.note(f"{self.name}: cannot be downloaded ({error})")


def note_abort(aborted: Callable[[], bool], ended: threading.Event, home: Home, name: str) -> None:
    """Wait until a run has ended; if NVFLARE aborts its job before, note that in the log.

    NVFLARE aborts a job when a client has died or an administrator asks for it. It ends the process
    soon after, so the run itself may write nothing.
    """
    while not ended.wait(_ABORT_SECONDS):
        if aborted():
            home.note(
                f"{name}: NVFLARE ended the job (a client was lost, or it was aborted). {AGAIN}"
            )
            return


def _home(name: str) -> Home:
    """Return the home that this party's kit names. Raises `UsageError` if it is another party's."""
    if _HOMES in os.environ:
        place = Path(os.environ[_HOMES]) / name
    else:
        path = Path(collab.workspace.get_site_config_dir()) / HOME_FILE
        try:
            place = Path(path.read_text(encoding="utf-8").strip())
        except OSError:
            raise UsageError(str(path), "is missing", "Run: secagg site kit.") from None
    home = Home.open(place)
    if home.name != name:
        raise UsageError(str(place), f"is the home of {home.name}, and this client is {name}")
    return home
