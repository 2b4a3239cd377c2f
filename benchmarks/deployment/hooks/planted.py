"""An exception that quotes a record, planted into the code of a party.

=============  ====================================================================================
hello          at every message of the engine
open           when the party checks whether the job is approved
records        when it reads its records
contribution   when it encodes its contribution
home           before it has a home, and so a log
through        in a published method that lets it through: the control, for what NVFLARE then sends
kept           the same, and the coordinator's code lets the answer's text through, too: the control
               for what NVFLARE's server then keeps
=============  ====================================================================================

Each time, the file "fired" gets a line.
"""

import os
import sys
from pathlib import Path

CANARY = 987654.321


def fail(*_, **__):
    """Raise an exception with the value in its text, and in the variables of its traceback."""
    record = [CANARY]
    with (Path(os.environ["SECAGG_HOOKS"]) / "fired").open("a") as file:
        file.write("fired\n")
    raise ValueError(f"cannot use the record {record}: {record[0]!r}")


class _Told(Exception):
    """The text of the error that is being handled, for NVFLARE to log."""

    def __init__(self, code):
        super().__init__(f"{code}: {sys.exc_info()[1]}")


def plant(victim, place, party):
    """Plant it, if this process is the victim's."""
    # ruff: noqa: PLC0415
    if place == "kept" and party == "coordinator":
        from secagg.sessions.engines import remote

        # what a coordinator would do that reports an unforeseen error of a call with its text
        def answer_or_raise(self, name, message, until, limit):
            return remote.encoding.loads(self._call(name, message, 60.0), 8)

        remote.RemoteEngine._answer = answer_or_raise
        from secagg.deploy import noted_run

        assert noted_run.RunFailed  # else this control would do nothing
        noted_run.RunFailed = _Told
    if party != victim:
        return
    if place in ("home", "through", "kept"):
        from nvflare.collab import collab

        from secagg.deploy import nvflare_parties

        if place == "home":
            nvflare_parties._home = fail
        else:
            answer = collab.publish(lambda self, message: fail())
            answer.__name__ = "answer"
            nvflare_parties.PartyObject.answer = answer
        return
    from secagg.sessions import site_steps
    from secagg.sessions.engines import crash_safe_party, site_node

    match place:
        case "hello":
            site_node.PartyNode._answered = fail
        case "open":
            site_node.check_approved = fail
        case "records":
            crash_safe_party.read_records = fail
        case "contribution":
            site_steps.encode = fail
