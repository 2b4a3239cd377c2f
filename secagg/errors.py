"""The errors of secagg, one class for each kind of failure.

An error has three fields: `where` (file, column, phase or party), `what` (what is wrong) and
`advice` (how to fix it). `line()` joins them into the one line that a user sees. Only `code` may be
sent to another party: it names the kind of failure and carries no data. The other fields stay at
the site, because they may quote a cell of a record.

=====================  =========  ===========================================================
class                  exit code  meaning
=====================  =========  ===========================================================
`InternalError`        1          a bug in secagg
`UsageError`           2          the job, the arguments or the data cannot be used
`PolicyRefusal`        3          a release rule does not allow the release
`ProtocolAbort`        4          too many dropouts, tampering, or invalid messages
`EvidenceError`        6          a run folder was changed after it was written
=====================  =========  ===========================================================

Exit code 5 means that an audit found leakage over its limit. That is a result, not an error, so it
has no class here.
"""

from __future__ import annotations

from typing import ClassVar


class SecaggError(Exception):
    """Base class of all errors; the module describes `where`, `what` and `advice`."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "internal"

    def __init__(self, where: str, what: str, advice: str = "") -> None:
        super().__init__(where, what, advice)
        self.where = where
        self.what = what
        self.advice = advice

    def line(self) -> str:
        """Return the one line that a user reads: where, what, how to fix it."""
        text = f"{self.where}: {self.what}"
        return f"{text}. {self.advice}" if self.advice else text

    def __str__(self) -> str:
        return self.line()


class InternalError(SecaggError):
    """An internal error: a bug in secagg."""


class UsageError(SecaggError):
    """The job, an argument or a file cannot be used."""

    exit_code = 2
    code = "usage"


class JobError(UsageError):
    """The job file is invalid: an unknown key, a wrong type, or two settings that conflict."""

    code = "job"


class DataError(UsageError):
    """A site's table does not match what the job declares. The text stays at the site."""

    code = "data"


class OverflowRefusal(UsageError):
    """The sums could overflow: no ring of the protocol fits these bounds, sites and resolution."""

    code = "overflow"


class CapabilityError(UsageError):
    """The job asks a protocol for something that the protocol cannot do."""

    code = "capability"


class PolicyRefusal(SecaggError):
    """A release rule forbids the release: too few sites, too few records, or a changed cohort."""

    exit_code = 3
    code = "policy"


class ProtocolAbort(SecaggError):
    """The protocol could not finish: parties are missing, or messages are invalid."""

    exit_code = 4
    code = "abort"


class PeerError(ProtocolAbort):
    """A message from another party is malformed, forged, outdated or out of order."""

    code = "peer"


class EvidenceError(SecaggError):
    """A run folder was altered: a line or a file was changed, deleted or swapped."""

    exit_code = 6
    code = "evidence"

    def __init__(self, where: str, what: str, advice: str = "") -> None:
        altered = "Do not rely on this folder; get the original from the person who ran the job."
        super().__init__(where, what, advice or altered)
