"""`secagg verify`: check a run folder, the sites' signatures in it, and that the result follows.

The checks, in this order:

1. run.json has exactly the bytes that secagg writes.
2. The hash chain of the log holds line by line, and no line is missing at the end
   (`secagg.core.hash_chain_log`).
3. run.json and every other file match the digests in the log, and there is no other file.
   The folder `transcript` may be missing.
4. The session's name is the digest of roster, nonce and agreement, so the signatures belong to this
   job, these bounds and these rules. The roster has the job's parties, and no others.
5. Each site of the run signed its consent to this session before the first release.
6. In each release, every named site signed its contribution with its key in the roster; there are
   at least as many sites as the strictest threshold; and the sites are the same in every release.
7. Every site countersigned the log up to the report, the result, and the list of all requests that
   it answered (`secagg.evidence.log_end`, `secagg.sessions.countersignatures`).
8. What run.json states of method, protocol, guarantee and expected error follows from the job
   (`secagg.evidence.planned_facts`).
9. The result follows, bit for bit, from the released sums (`secagg.evidence.recomputation`).

What each check excludes:

* Checks 1 to 3 find accidents and careless changes only. A person who can write the folder can
  compute all digests anew.
* Checks 4 to 6 bind job, rules, bounds and requests to the sites' keys, but neither sums nor the
  result.
* Check 7 binds the rest: without the keys of all sites that countersigned, nobody can change a
  line, the result or the report after the run. `Verified.unsigned` names the sites without a
  countersignature. They may have dropped out at the last moment. Or a forger removed their
  countersignatures. So a folder in which one is missing passes only with `head`.
  Countersignatures cover neither later lines of the log nor the time in the line `countersigned`.
  `Verified.unsigned_lines` counts the later lines; only `head` shows that they are genuine.
* Check 8 detects a coordinator that states a guarantee or a protocol that its job does not have. It
  is left out if this version of secagg plans the job differently.
* Check 9 detects a coordinator that computes a false result from true sums. It is left out if the
  sums are not in the folder, or if this computer would compute other bits. `Verified.unchecked`
  names what was left out. A folder with a check left out is not called intact.

The log of a failed run has no countersignature. A person who can write the folder can cut back the
log of a successful run and add a line that says that it failed. Only `head` detects that.

Not detected: (a) a coordinator that logs false sums during the run and computes its result from
them, or that writes false facts that only it knows: what it says of the ledgers, the engine, the
traffic and, in a simulation, the sites; (b) an owner of a folder who writes a whole new run with
new keys. To detect (b), compare the keys in the roster with those of the sites, or keep the final
head elsewhere and pass it as `head`. `secagg run` prints it at its end, and a run between computers
notes it in log.txt of the coordinator's home. Ask for it over another channel: run.json contains
it, too, but a person who writes the folder anew also writes this copy. The head in report.html
does not serve: it is the head before the page was written, so it does not bind the page.

A folder of an earlier version of secagg has neither digests of sums nor countersignatures: only
checks 1 to 6 apply, and a person who can write it can forge its result. `Verified.evidence` is then
1. Nobody can make a newer folder look like that, because the version of the evidence is part of the
session's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.contracts import Result
from secagg.core.identity import Role
from secagg.errors import EvidenceError, PeerError, UsageError
from secagg.evidence.log_end import LogEnd, check_countersignatures, read_end, unsigned_lines
from secagg.evidence.planned_facts import Checked, check_claims
from secagg.evidence.recomputation import check_sums
from secagg.evidence.recomputation import recompute as recompute_result
from secagg.evidence.released_sums import SUMS_FILE
from secagg.evidence.run_files import facts_digest, release_counts
from secagg.evidence.run_folder import MALFORMED_ERRORS, RunFolder
from secagg.evidence.transcript_file import MESSAGES_FILE, TRANSCRIPT
from secagg.jobs.job import Job, parse_job
from secagg.jobs.registry import make_protocol
from secagg.sessions.attestations import check_consent, read_attestations
from secagg.sessions.planned_job import may_be_sites, roster_fault, session_name

_RESULT = ("arrays.npz", "result.json")
_FILES = ("arrays.npz", "report.html", "result.json")
_RECORDS = ("log.jsonl", "run.json", SUMS_FILE)
_AGREEMENT_KEYS = ("secagg", "evidence", "job", "method", "protocol", "plan", "tolerance")
"""The keys of the log's first line that form the `secagg.sessions.planned_job.agreement`."""

_DIGEST = re.compile("[0-9a-f]{64}")
_HEAD_ADVICE = (
    "The run printed the final head at its end, or noted it in the coordinator's log.txt."
)


@dataclass(frozen=True)
class Verified:
    """What was checked, for display.

    evidence: version of the evidence; 1 has no countersignatures
        (`secagg.sessions.countersignatures.EVIDENCE`)
    countersigned, unsigned: the sites of the run with and without a valid countersignature
    claims_checked: whether the facts of check 8 are those of the job; if that was not tried,
        claims_not_checked says why
    recomputed: whether the result follows from the released sums; if that was not tried,
        not_recomputed says why
    failed: the error code of a run that failed and left only a log; None for a finished run
    unsigned_lines: lines of the log that the countersignatures do not cover, without the last one
    """

    lines: int
    head: str
    files: tuple[str, ...]
    releases: int
    signatures: int
    evidence: int
    countersigned: tuple[str, ...] = ()
    unsigned: tuple[str, ...] = ()
    claims_checked: bool = False
    claims_not_checked: str = ""
    recomputed: bool = False
    not_recomputed: str = ""
    failed: str | None = None
    unsigned_lines: int = 0

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What of a finished run was not computed again, in words."""
        parts = ((self.claims_checked, "the claims of privacy"), (self.recomputed, "the result"))
        return tuple(part for done, part in parts if not done and self.failed is None)


def verify_folder(
    folder: Path | RunFolder, head: str | None = None, *, recompute: bool = True
) -> Verified:
    """Check a run folder.

    folder: its path, or an open `RunFolder`, so that the caller later uses the very bytes that
        were checked
    head: the log's last hash, 64 hexadecimal digits, from a copy kept elsewhere
    recompute: whether to compute the result again, which takes about as long as in the run
    Raises `EvidenceError` that names the wrong line or file; `UsageError` if the folder is not that
    of a run that has ended, or `head` cannot be a final head.
    """
    head = None if head is None else head.lower()
    if head is not None and not _DIGEST.fullmatch(head):
        what = f"{head!r} is not a head: a head has 64 hexadecimal digits"
        raise UsageError("--head", what, _HEAD_ADVICE)
    run = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
    if run.failed:
        return _verify_failed(run, head)
    facts, entries = run.facts, run.events
    _check_length(facts["log"], entries)
    with run.well_formed("log or run.json"):
        evidence = entries[0].get("evidence", 1)
        end = read_end(entries, evidence > 1)
        _check_head(entries, end.result, head)
        _check_facts(run, end.result)
        files = _check_files(run, end)
        _check_session(run)
        _check_parties(run)
        cohort = run.cohort
    signatures = _check_signatures(run)
    with run.well_formed("log or run.json"):
        consents = [entry for entry in entries if entry["event"] == "consent"]
        if facts["consented"] != sorted({site for entry in consents for site in entry["claims"]}):
            raise EvidenceError("run.json", "'consented' differs from the consents in the log")
        signed = check_countersignatures(run, end)
        uncovered = unsigned_lines(entries, end)
    unsigned = tuple(sorted(set(cohort) - set(signed)))
    if evidence > 1 and unsigned and head is None:
        what = f"{', '.join(unsigned)} did not countersign the log, so its end could be rewritten"
        raise EvidenceError("log.jsonl", what, f"Pass it: --head. {_HEAD_ADVICE}")
    with run.well_formed("log or run.json"):
        claims = check_claims(run)
    recomputed = Checked(False, "the folder was written by an earlier version of secagg")
    if evidence > 1:
        recomputed = Checked(False, "this was not requested")
        with run.well_formed("log, run.json or sums"):
            if recompute:
                recomputed = recompute_result(run, claims)
            elif run.has_sums:
                check_sums(run)
    return Verified(
        len(entries), entries[-1]["hash"], files, len(run.releases), signatures + len(signed),
        evidence, signed, unsigned, claims.done, claims.why, recomputed.done, recomputed.why,
        unsigned_lines=uncovered,
    )  # fmt: skip


def checked_result(run: RunFolder) -> tuple[Job, Result]:
    """Return a run's job and result, if the log has their digests.

    These are checks 1 and 2 of the module, and check 3 for the result's files only. They exclude
    damaged and exchanged files before a result is used, and take no time. Against forgers use
    `verify_folder`.
    Raises `EvidenceError`.
    """
    try:
        facts, entries = run.facts, run.events
        _check_length(facts["log"], entries)
        with run.well_formed("log or run.json"):
            bound = read_end(entries, entries[0].get("evidence", 1) > 1).result
            _check_facts(run, bound)
            for name in _RESULT:
                _check_file(run, name, bound["files"])
        return run.job, run.result
    except EvidenceError as error:
        advice = f"Restore the file from the run, then check it: secagg verify {run.path}"
        raise EvidenceError(error.where, error.what, advice) from error


def _verify_failed(run: RunFolder, head: str | None) -> Verified:
    """Check the log of a run that failed after a release; it ends with the event `failed`."""
    entries, releases = run.events, run.releases
    if not releases or entries[-1].get("event") != "failed":
        raise EvidenceError(str(run.path / "run.json"), "is missing", "Is this a run folder?")
    _check_head(entries, {}, head)
    with run.well_formed("log"):
        evidence = entries[0].get("evidence", 1)
        _check_session(run)
        _check_parties(run)
        cohort = run.cohort
    signatures = _check_signatures(run)
    code = str(entries[-1].get("code"))
    return Verified(
        len(entries), entries[-1]["hash"], (), len(releases), signatures, evidence,
        unsigned=tuple(cohort), not_recomputed="the run has no result", failed=code,
    )  # fmt: skip


def _check_length(log_facts: Mapping[str, Any], entries: list[dict[str, Any]]) -> None:
    lines = log_facts["lines"]
    if len(entries) < lines:
        raise EvidenceError(
            f"log.jsonl line {len(entries) + 1}",
            f"the log is cut off: the run wrote {lines} lines, {len(entries)} are left",
        )
    if len(entries) > lines:
        raise EvidenceError(f"log.jsonl line {lines + 1}", "lines were added after the run ended")
    if not entries or entries[-1]["hash"] != log_facts["head"]:
        raise EvidenceError("log.jsonl", "its head differs from the one in run.json")


def _check_head(
    entries: Sequence[Mapping[str, Any]], result: Mapping[str, Any], head: str | None
) -> None:
    """Compare the log's head with the user's copy.

    result: the event of that name. Its head is a usage error: no run ends with that line, so the
        user took the head from report.html. Any other earlier line may have been the last one
        before lines were added
    """
    if head is None or head == entries[-1]["hash"]:
        return
    if head == result.get("hash"):
        what = "is the head in report.html, from before the report was written; it does not bind it"
        raise UsageError("--head", what, _HEAD_ADVICE)
    if head in [entry["hash"] for entry in entries]:
        raise EvidenceError("log.jsonl", "lines were added after the head that you gave")
    raise EvidenceError("log.jsonl", "its head is not the one that you gave")


def _check_facts(run: RunFolder, result: Mapping[str, Any]) -> None:
    facts, opening = run.facts, run.events[0]
    for key in ("session", "nonce", "secagg", "job", "roster", "plan", "randomness"):
        if facts[key] != opening[key]:
            raise EvidenceError("run.json", f"{key!r} differs from line 1 of the log")
    for key in ("method", "protocol"):
        if any(facts[key][part] != opening[key][part] for part in ("name", "settings")):
            raise EvidenceError("run.json", f"{key!r} differs from line 1 of the log")
    if facts["release_counts"] != release_counts(run.releases):
        raise EvidenceError("run.json", "'release_counts' differ from the releases in the log")
    if facts_digest(facts) != result["facts"]:
        raise EvidenceError("run.json", "was changed after the run")


def _check_files(run: RunFolder, end: LogEnd) -> tuple[str, ...]:
    folder = run.path
    written = {**end.result["files"], **end.report["files"]}
    known = {*_FILES, *_RECORDS, *({TRANSCRIPT} if MESSAGES_FILE in written else ())}
    for path in sorted(folder.iterdir()):
        if path.name not in known:
            raise EvidenceError(path.name, "was added: a run does not write such a file")
    _check_transcript(run, written)
    drawn = end.countersigned is None or "why" not in end.report
    for name in _FILES:
        if name == "report.html" and not drawn and name not in written:
            if run.has(name):
                raise EvidenceError(name, "was added: the run could not draw a report")
            continue
        _check_file(run, name, written)
    return tuple(name for name in _FILES if name in written)


def _check_file(run: RunFolder, name: str, written: Mapping[str, str]) -> None:
    if not run.has(name):
        raise EvidenceError(name, "is missing")
    if run.digest(name) != written[name]:
        raise EvidenceError(name, "was changed after the run")


def _check_transcript(run: RunFolder, written: Mapping[str, str]) -> None:
    """Check the messages, unless they were taken from the folder: nobody else needs them."""
    kept, place = run.has(MESSAGES_FILE), run.path / TRANSCRIPT
    if not kept and not place.exists():
        return
    if not place.is_dir():
        raise EvidenceError(TRANSCRIPT, "is no folder: it was changed after the run")
    for path in sorted(place.iterdir()):
        if path != run.path / MESSAGES_FILE:
            where = f"{TRANSCRIPT}/{path.name}"
            raise EvidenceError(where, "was added: a run does not write such a file")
    if not kept:
        raise EvidenceError(MESSAGES_FILE, "is missing", f"Or remove {TRANSCRIPT}/, too.")
    _check_file(run, MESSAGES_FILE, written)


def _check_session(run: RunFolder) -> None:
    """Compare the session's name, which every signature covers, with its digest."""
    opening = run.events[0]
    agreement = {key: opening[key] for key in _AGREEMENT_KEYS if key in opening}
    session = session_name(run.roster, bytes.fromhex(opening["nonce"]), agreement)
    if session.hex() != opening["session"]:
        raise EvidenceError(
            "log.jsonl line 1", "the session's name does not match this roster, job and bounds"
        )


def _check_parties(run: RunFolder) -> None:
    """Check that the roster has exactly the job's parties, as every party of a session does."""
    try:
        job = parse_job(run.events[0]["job"])
        protocol = make_protocol(job.protocol)
    except UsageError:  # of another version
        return
    roster = run.roster
    sites, where = roster.with_role(Role.SITE), "log.jsonl line 1"
    if job.sites.names is not None and not may_be_sites(sites, job):
        raise EvidenceError(where, "the sites of the roster are not those of the job")
    if fault := roster_fault(roster, sites, protocol):
        raise EvidenceError(where, f"the roster {fault}")


def _check_signatures(run: RunFolder) -> int:
    """Check every signature in the log, and return how many there are."""
    entries, releases = run.events, run.releases
    if entries[0].get("evidence", 1) > 1:
        for release in releases:
            if not _DIGEST.fullmatch(str(release.get("sum"))):
                raise EvidenceError(
                    f"log.jsonl line {release['seq'] + 1}", "the digest of its sum is missing"
                )
    no_consent: dict[str, Any] = {"seq": 0}
    consent = next((entry for entry in entries if entry.get("event") == "consent"), no_consent)
    where = f"log.jsonl line {consent['seq'] + 1}"
    try:
        if consent["seq"] > releases[0]["seq"] or not set(run.cohort) <= set(consent["claims"]):
            raise EvidenceError(where, "not every site consented before the first release")
        for site, parts in consent["claims"].items():
            claim = [bytes.fromhex(part) for part in parts]
            check_consent(site, claim, sorted(consent["claims"]), run.roster, run.session_bytes)
    except (PeerError, *MALFORMED_ERRORS):
        raise EvidenceError(where, "a site's signature of its consent is not valid") from None
    signed = sum(_check_release(entry, run) for entry in releases)
    return len(consent["claims"]) + signed


def _check_release(entry: Mapping[str, Any], run: RunFolder) -> int:
    where = f"log.jsonl line {entry['seq'] + 1}"
    try:
        sites = entry["contributors"]
        if set(entry["claims"]) != set(sites):
            raise ValueError
        claims = {
            site: [bytes.fromhex(part) for part in parts] for site, parts in entry["claims"].items()
        }
        thresholds = read_attestations(
            claims, entry["stage"], entry["round"], run.roster, run.session_bytes
        )
    except (PeerError, *MALFORMED_ERRORS):
        raise EvidenceError(
            where, "a site's signature is not valid, or is for another release"
        ) from None
    if entry.get("thresholds") != thresholds:
        raise EvidenceError(where, "its thresholds differ from those that the sites signed")
    if len(set(sites)) != len(sites) or len(sites) < max(thresholds.values(), default=1):
        raise EvidenceError(where, "the release covers fewer sites than a threshold requires")
    if sites != run.cohort:
        raise EvidenceError(where, "the release covers other sites than the rest of the run")
    return len(thresholds)
