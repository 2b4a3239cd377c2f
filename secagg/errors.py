"""The errors of secagg, one class for each kind of failure.

"Error" here means a failure of the program, not a statistical error. An error has three fields:
`where` (file, column, phase or party), `what` (the problem) and `advice` (how to fix the problem).
`line()` joins them into the one line that a user sees. Only the `code` of an error may be sent to
another party. The code names the kind of failure and contains no data. The three fields stay at
the site, because they may quote a value from a record.

=====================  =========  ===========================================================
class                  exit code  meaning
=====================  =========  ===========================================================
`InternalError`        1          a bug in secagg
`UsageError`           2          the job, the arguments or the data cannot be used
`PolicyRefusal`        3          a release rule does not allow the release
`ProtocolAbort`        4          too many parties missing, or a message is invalid or forged
`EvidenceError`        6          a run, report, audit or experiment was changed, or contradicts
                                  itself
`UnusableResult`       7          the run is finished, but a result must not be used
=====================  =========  ===========================================================

Exit code 5 means that an audit measured more leakage than its limit. This is a result of the audit
and not an error, so there is no class for it.
"""

from __future__ import annotations

from typing import ClassVar


class SecaggError(Exception):
    """Base class of all errors. The module's text explains `where`, `what` and `advice`."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "internal"

    def __init__(self, where: str, what: str, advice: str = "") -> None:
        super().__init__(where, what, advice)
        self.where = where
        self.what = what
        self.advice = advice

    def line(self) -> str:
        """Return the line that a user sees: `where`, `what` and `advice`, joined."""
        text = f"{self.where}: {self.what}"
        stop = "" if text.endswith("?") else "."
        return f"{text}{stop} {self.advice}" if self.advice else text

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
    """A site's table does not match the job. The text of the error stays at the site."""

    code = "data"


class OverflowRefusal(UsageError):
    """A sum could be too large for the whole numbers (at most 128 bits) of the protocol.

    The size depends on the bounds of the columns, the number of sites and the fraction bits.
    """

    code = "overflow"


class CapabilityError(UsageError):
    """The job asks a protocol for something that the protocol cannot do."""

    code = "capability"


class PolicyRefusal(SecaggError):
    """A release rule forbids the release of a sum.

    For example, too few sites or records take part, or other sites than in an earlier sum.
    """

    exit_code = 3
    code = "policy"


class RecordsRefusal(PolicyRefusal):
    """A site's records do not allow its contribution.

    A site sends this one code for every reason that depends on its records: a rule, a cell, a bound
    that the method guarantees. Different codes would tell the reasons apart. The reason itself is
    an error of another class, which stays at the site.
    """

    code = "records"


class ProtocolAbort(SecaggError):
    """The protocol could not finish: parties are missing, or messages are invalid."""

    exit_code = 4
    code = "abort"


class PeerError(ProtocolAbort):
    """A message from another party is malformed, forged, outdated or out of order."""

    code = "peer"


class SitesLost(ProtocolAbort):
    """Sites dropped out, and no further sum of this session may be without them.

    sites: their names
    forbidden: why the rules forbid a run without these sites; empty if they do not
    released: whether the session has released a sum
    """

    def __init__(
        self, where: str, sites: tuple[str, ...], forbidden: str, *, released: bool = True
    ) -> None:
        why = "dropped out before the first release"
        if released:
            why = (
                "dropped out after the first release; a sum over the other sites, subtracted from "
                "an earlier one, is a sum over those that dropped out"
            )
        super().__init__(
            where, f"{', '.join(sites)} {why}",
            "Start a new run with the same sites, not without these.",
        )  # fmt: skip
        self.sites, self.forbidden = sites, forbidden


class EvidenceError(SecaggError):
    """A file of a run was altered: a line or a file was changed, deleted or exchanged."""

    exit_code = 6
    code = "evidence"

    def __init__(self, where: str, what: str, advice: str = "") -> None:
        altered = "Do not rely on this folder; get the original from the person who ran the job."
        super().__init__(where, what, advice or altered)


class UnusableResult(SecaggError):
    """A run is finished and its folder is written, but a result must not be used.

    For example, a search did not converge. The command line reports this after the result.
    """

    exit_code = 7
    code = "unusable"
