"""Every failure secagg can name, split by whose fault it is.

An error is an object with fields, not a sentence: `where` (file, column, phase, party), `what`
(is wrong) and `mend` (what to do about it). `line()` is the one line a user sees. `code` is the
only part that may cross the wire: it names the kind of failure and carries no data, because the
text of an error at a hospital may quote a cell of a record.

=====================  =========  ===================================================
class                  exit code  whose fault, and what it means
=====================  =========  ===================================================
`InternalError`        1          ours: a bug in secagg
`UsageError`           2          the user's: job, arguments or data cannot be used
`PolicyRefusal`        3          nobody's: a release rule says no
`ProtocolAbort`        4          a peer's: too many dropouts, tampering, bad messages
`EvidenceError`        6          whoever changed a run folder after it was written
=====================  =========  ===================================================

(5, an audit found leakage over its limit, has no exception: it is a finding, not a failure.)
"""

from __future__ import annotations

from typing import ClassVar


class SecaggError(Exception):
    """Base of all errors below; `where`, `what`, `mend` as in the module's text."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "internal"

    def __init__(self, where: str, what: str, mend: str = "") -> None:
        super().__init__(where, what, mend)
        self.where = where
        self.what = what
        self.mend = mend

    def line(self) -> str:
        """Return the one line that a user reads: where, what, how to mend it."""
        text = f"{self.where}: {self.what}"
        return f"{text}. {self.mend}" if self.mend else text

    def __str__(self) -> str:
        return self.line()


class InternalError(SecaggError):
    """A promise secagg makes to itself was broken: our bug."""


class UsageError(SecaggError):
    """The job, an argument or a file cannot be used as it stands."""

    exit_code = 2
    code = "usage"


class JobError(UsageError):
    """The job file is wrong: an unknown key, a wrong type, two settings that disagree."""

    code = "job"


class DataError(UsageError):
    """A site's table does not hold what the job declares. Its text stays at the site."""

    code = "data"


class OverflowRefusal(UsageError):
    """Bounds, sites and resolution together do not fit any ring that the protocol offers."""

    code = "overflow"


class CapabilityError(UsageError):
    """The job asks a protocol for something that it cannot do."""

    code = "capability"


class PolicyRefusal(SecaggError):
    """A release rule said no: too few sites, too few records, a changed cohort."""

    exit_code = 3
    code = "policy"


class ProtocolAbort(SecaggError):
    """The protocol could not finish: parties missing, or messages that cannot be trusted."""

    exit_code = 4
    code = "abort"


class PeerError(ProtocolAbort):
    """A message from another party is malformed, forged, stale or out of order."""

    code = "peer"


class EvidenceError(SecaggError):
    """A run folder is not what was written: a line or a file was changed, dropped or swapped."""

    exit_code = 6
    code = "evidence"

    def __init__(self, where: str, what: str, mend: str = "") -> None:
        super().__init__(where, what, mend or "Do not rely on this folder; get it from its source.")
