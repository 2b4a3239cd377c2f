"""What `secagg verify` found, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from secagg.cli.printing import print_json, say
from secagg.compliance.measured_folder import verify_measurement
from secagg.compliance.report_folder import VerifiedReport, verify_report
from secagg.compliance.signatures import Signed
from secagg.evidence.integrity import Verified
from secagg.evidence.numbers import counted

_NOTED = " (a run between computers: that the coordinator's log.txt has)"


def show_verified(folder: Path, found: Verified, with_head: bool) -> None:
    """Print what was checked, and what that does not exclude.

    with_head: whether the user passed the log's head
    """
    say(
        f"{counted(found.lines, 'log line')}, {counted(len(found.files), 'file')}, "
        f"{counted(found.releases, 'release')}, "
        f"{counted(found.signatures, 'valid signature')}"
    )
    for line in (_end_of_log(found, with_head), _claims(found), _result(found)):
        if line:
            say(line)
    say(f"head {found.head}")
    if found.evidence > 1 and found.failed is None and not with_head:
        say(
            "To detect a whole run written anew with other keys, use --head with the log head that "
            f"the run printed{_NOTED}."
        )
    say(f"{folder}: {_verdict(found, with_head)}")


def _verdict(found: Verified, with_head: bool) -> str:
    if found.failed is not None:
        return f"the run failed ({found.failed}) and has no result. Its log is consistent"
    if with_head or (found.evidence > 1 and not found.unsigned and not found.unsigned_lines):
        left_out = " and ".join(found.unchecked)
        return f"consistent, but not checked: {left_out}" if left_out else "intact"
    return "consistent, but nothing shows that it was not rewritten"


def _end_of_log(found: Verified, with_head: bool) -> str:
    if found.failed is not None:
        return (
            ""
            if with_head
            else "No site countersigns the log of a run that failed. So this may also be a "
            "successful run whose log was cut back."
        )
    if found.evidence == 1:
        return (
            "An earlier version of secagg wrote this folder, without countersignatures of the "
            "sites. Whoever can write to the folder can forge its result."
            + ("" if with_head else f" Use --head with the log head that the run printed{_NOTED}.")
        )
    if found.unsigned:
        return f"Not countersigned by {', '.join(found.unsigned)}; the head is the one you gave."
    signed = f"Log and result are countersigned by all {len(found.countersigned)} sites"
    if found.unsigned_lines and not with_head:
        lines = counted(found.unsigned_lines, "log line")
        return (
            f"{signed}, but {lines} beside the countersignatures could have been added. Use --head "
            f"with the log head that the run printed{_NOTED}."
        )
    return f"{signed}."


def _claims(found: Verified) -> str:
    if found.claims_checked:
        return "The claims of privacy rest on facts that follow from the job."
    return "" if found.failed else f"The claims were not checked: {found.claims_not_checked}."


def _result(found: Verified) -> str:
    if found.recomputed:
        return "The result was recomputed from the released sums: all bits are equal."
    if found.failed is not None:
        return ""
    return f"The result was not recomputed: {found.not_recomputed}."


def show_measured(folder: Path, again: Sequence[Path] | None, *, as_json: bool) -> None:
    """Check a report, an audit or an experiment, and print what was checked and who signed it."""
    if (folder / "report.json").exists():
        checked = verify_report(folder, again)
        if as_json:
            print_json(asdict(checked))
        else:
            _show_report(folder, checked)
        return
    found = verify_measurement(folder, again)
    if as_json:
        print_json(asdict(found))
        return
    _show_signed(found.signed, "no roster is at hand")
    say(found.again or _UNREPEATED)
    say(
        f"{folder}: {found.file} of “{found.title}” holds together: what it says follows from its "
        "numbers"
    )


_UNREPEATED = "not run again: the numbers themselves are as stated (see --again)"


def _show_report(folder: Path, checked: VerifiedReport) -> None:
    _show_signed(checked.signed, "no roster of these runs has it")
    for line in checked.again:
        say(line)
    if unchecked := (*checked.runs_not_checked, *checked.unchecked):
        say(f"not checked: {', '.join(unchecked)}")
    if not checked.signed:
        say("not signed: anybody who can write the folder could have made it anew")
    runs = "consistent" if checked.runs_not_checked else "intact"
    say(
        f"{folder}: {counted(checked.runs, 'run')} {runs}; {checked.statements} statements follow "
        f"from {counted(checked.files, 'file')} of evidence"
    )


def _show_signed(signed: Sequence[Signed], unknown: str) -> None:
    for each in signed:
        whose = "a roster of these runs has it" if each.known else unknown
        say(f"signed as {each.name}, key {each.key} ({whose})")
    if signed:
        say(
            "compare each key with the party's own: a person who makes a whole run also writes its "
            "roster"
        )
