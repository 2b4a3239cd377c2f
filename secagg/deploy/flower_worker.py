"""The worker of a party on Flower: takes tasks from its SuperNode, or from the SuperLink.

    python -m secagg.deploy.flower_worker --home H --address 127.0.0.1:9094 --secret FILE

Flower's own worker ("SuperExec") starts a program for each task, which unpacks the app bundle that
the submitter of the run sent, and runs its code. With `--isolation process`, Flower starts none and
waits for a worker that has the secret. This one runs the installed secagg. It reads nothing of a
bundle but, at the coordinator, the run's configuration, and loads no code from it. It also stays,
so that no program has to start for each message.

It uses parts of Flower that are not public and may change, so the version is pinned.

If a run ends while a message is on its way, Flower leaves a task whose message never arrives, and
its own functions wait for it for more than an hour. This worker gives up after two minutes, since
the messages of later runs wait behind it.

Threat model: who submits a run, or operates the SuperLink.

Not protected: a party whose SuperNode or SuperLink runs without `--isolation process`.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from flwr.common.config import get_fused_config_from_fab
from flwr.common.constant import SubStatus
from flwr.common.serde import fab_from_proto, run_from_proto
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message

from secagg.core.identity import Role
from secagg.deploy.flower_parties import answer, coordinate
from secagg.deploy.noted_run import RunFailed
from secagg.sessions.homes.home import Home

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
_PAUSE = 0.1
"""Seconds between two looks for a task."""
_PULL_SECONDS = 120.0
"""Seconds in which all of a message must have arrived; less than parties usually have to answer."""


class Worker:
    """Does the tasks of one party, one after the other.

    address: of the SuperNode's or the SuperLink's Runtime API, as host:port
    secret: that of `--superexec-auth-secret-file`; authority: certificates, or None without TLS
    """

    def __init__(self, home: Home, address: str, secret: bytes, authority: bytes | None) -> None:
        self._home, self._address, self._authority = home, address, authority
        self._signing = SuperExecAuthHttpInterceptor(
            master_secret=secret, protected_methods=[_ACQUIRE]
        )

    def serve(self) -> None:
        """Take tasks until the process ends."""
        leads = self._home.settings.role is Role.COORDINATOR
        do = self._lead if leads else self._answer
        kind = TaskType.SERVER_APP if leads else TaskType.CLIENT_APP
        client = self._client(self._signing)
        while True:
            try:
                found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
                if found.token:
                    do(found.token)
            except httpx.TransportError:  # Flower is not there, or not yet
                time.sleep(1)
            except Exception:  # the task then expires, and the coordinator asks again
                self._home.note(traceback.format_exc())
                time.sleep(1)
            time.sleep(_PAUSE)

    def _answer(self, token: str) -> None:
        client = self._client(RuntimeTokenHttpInterceptor(token))
        client.PullObject = _until_late(client.PullObject)
        with closing(client), _kept_alive(client):
            message, context, _, _ = pull_task_input(client)
            push_message(client, answer(self._home, message), context)
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED))

    def _lead(self, token: str) -> None:
        grid = HttpGrid(self._address, self._authority is None, self._authority, token=token)
        client = grid._runtime_client
        with _kept_alive(client):
            found = client.PullTaskInput(PullTaskInputRequest())
            run = run_from_proto(found.run)
            TaskIdentity.task_id, TaskIdentity.run_id = found.task_id, run.run_id
            TaskIdentity.node_id = found.context.node_id  # of the messages that are made here
            grid.set_run(run)
            status, details = SubStatus.FAILED, "see the coordinator's log"
            try:
                fab = fab_from_proto(found.fab)
                coordinate(self._home, grid, get_fused_config_from_fab(fab.content, run))
                status, details = SubStatus.COMPLETED, ""
            except RunFailed as error:
                details = f"{type(error).__name__}({error})"
            except Exception:  # such as a bundle without a job
                self._home.note(traceback.format_exc())
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        grid.close()

    def _client(self, interceptor: object) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self._address, insecure=self._authority is None,
            root_certificates=self._authority,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="secagg"), interceptor],
        )  # fmt: skip


def _until_late(pull: Callable[..., Any]) -> Callable[..., Any]:
    """Return `pull`, which raises `TimeoutError` once it is too late for the message to arrive."""
    until = time.monotonic() + _PULL_SECONDS

    def pulled(*arguments: Any) -> Any:
        if time.monotonic() > until:
            raise TimeoutError("the message does not arrive; its run has probably ended")
        return pull(*arguments)

    return pulled


@contextmanager
def _kept_alive(client: RuntimeHttpClient) -> Iterator[None]:
    """Tell Flower meanwhile that a task is being done."""

    def beat() -> bool:
        with suppress(httpx.HTTPError):
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    sender = HeartbeatSender(beat)
    sender.start()
    try:
        yield
    finally:
        sender.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m secagg.deploy.flower_worker")
    parser.add_argument("--home", type=Path, required=True, help="the party's home")
    parser.add_argument("--address", required=True, help="of the SuperNode or SuperLink")
    parser.add_argument("--secret", type=Path, required=True, help="shared with it")
    parser.add_argument("--root-certificates", type=Path, help="if it uses TLS, as a SuperLink")
    given = parser.parse_args()
    authority = given.root_certificates.read_bytes() if given.root_certificates else None
    Worker(Home.open(given.home), given.address, given.secret.read_bytes(), authority).serve()


if __name__ == "__main__":
    main()
