"""Recompute the result of a run from the sums that it released.

After the sums are open, a method uses no random numbers and no records: every message to the sites,
and the result, is a function of the sums (`secagg.contracts.Method`). So `recompute` repeats the
coordinator's part, and compares

1. each sum in sums.bin with its digest in the log;
2. each request, computed from the sums before it, with the digest that the sites signed when they
   contributed;
3. result.json and arrays.npz with the result, bit for bit. `simulation` in result.json is left out:
   each site's own estimates do not follow from the sums.

If a method's messages depend on all earlier sums, the second check binds every sum but the last to
the sites' signatures. Not checked: that a sum in the file is the one that was opened, if no
later message depends on it. A coordinator that recorded a false sum in the log from the beginning,
and computed its result from that, is not detected here.

Floating-point bits depend on the versions of the libraries and on the processor. run.json names the
versions and has a fingerprint of the arithmetic (`secagg.core.arithmetic`). If a version or the
fingerprint differs here, nothing is recomputed, because a difference of the results would prove
nothing. `Checked.why` then says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from secagg.contracts import Result
from secagg.core.arithmetic import arithmetic_fingerprint
from secagg.core.identity import COORDINATOR, Identity, Role
from secagg.core.randomness import system_random
from secagg.core.threads import single_threaded_blas
from secagg.errors import EvidenceError, SecaggError
from secagg.evidence.log_end import asked_in
from secagg.evidence.planned_facts import Checked
from secagg.evidence.released_sums import SUMS_FILE
from secagg.evidence.run_files import json_bytes
from secagg.evidence.run_folder import MALFORMED_ERRORS, RunFolder
from secagg.evidence.session_result import result_of, versions
from secagg.sessions.attestations import digest_request
from secagg.sessions.coordinator_state import CoordinatorState, Status
from secagg.sessions.countersignatures import extend_requests, sum_digest
from secagg.sessions.parties import make_coordinator
from secagg.sessions.rounds import COHORT

_UNLESS = "Or its arithmetic differs from this computer's: verify it on the computer of the run."


def recompute(run: RunFolder, claims: Checked) -> Checked:
    """Recompute the result of a run whose log has valid signatures, where this is possible.

    claims: from `secagg.evidence.planned_facts.check_claims`: if they can be checked, the job has
        the same plan here
    Raises `EvidenceError` if a sum is not the one in the log, or another result follows.
    """
    if not run.has_sums:
        return Checked(False, f"{SUMS_FILE} is not in the folder")
    check_sums(run)
    if why := _other_software(run.facts):
        return Checked(False, why)
    if not claims.done:
        return claims
    try:
        with single_threaded_blas():
            state = _replay(run)
            result = result_of(run.planned, state)
    except EvidenceError:
        raise
    except (SecaggError, ArithmeticError, *MALFORMED_ERRORS) as error:
        raise EvidenceError(SUMS_FILE, "no result follows from its sums", _UNLESS) from error
    _compare(result, run.result)
    return Checked(True)


def check_sums(run: RunFolder) -> None:
    """Raise `EvidenceError` if the sums in the folder are not those of the log."""
    sums, releases = run.sums, run.releases
    if len(sums) != len(releases):
        what = f"has {len(sums)} sums, and the log has {len(releases)} releases"
        raise EvidenceError(SUMS_FILE, what)
    for item, event in zip(sums, releases, strict=True):
        digest = sum_digest(run.session_bytes, item.round, item.stage, item.salt, item.total)
        if (item.round, item.stage, digest.hex()) != (event["round"], event["stage"], event["sum"]):
            line = event["seq"] + 1
            raise EvidenceError(
                SUMS_FILE, f"a sum differs from its digest in log.jsonl line {line}"
            )


def _other_software(facts: Mapping[str, Any]) -> str:
    """Return what differs here from where the run was computed; nothing if all is equal."""
    here = versions()
    other = sorted(name for name in here | facts["versions"]
                   if here.get(name) != facts["versions"].get(name))  # fmt: skip
    if other:
        return f"the run used other versions of {', '.join(other)}"
    if facts["arithmetic"] != arithmetic_fingerprint():
        return "this computer rounds floating-point numbers differently"
    return ""


def _replay(run: RunFolder) -> CoordinatorState:
    """Return the coordinator's state after all sums."""
    planned = run.planned
    consent = next(event for event in run.events if event["event"] == "consent")
    nobody = Identity(COORDINATOR, Role.COORDINATOR, b"", b"")  # it signs nothing
    coordinator = make_coordinator(planned, nobody, run.roster, run.session_bytes, system_random)
    method = planned.method.initial_state(planned.public)
    state = CoordinatorState(
        Status.RELEASED, tuple(sorted(consent["claims"])), method, stage=COHORT
    )
    for item, event in zip(run.sums, run.releases, strict=True):
        if (item.round, item.stage) != (state.round, state.stage):
            raise EvidenceError(SUMS_FILE, f"round {state.round} has the sum of another stage")
        assert state.stage is not None  # as the comparison shows
        asked = digest_request(
            state.stage, state.cohort, state.records, state.message, state.requests
        )
        if asked_in(event, run) != asked:
            what = f"the request of round {item.round} does not follow from the sums before it"
            raise EvidenceError(SUMS_FILE, what, _UNLESS)
        sites = tuple(event["contributors"])
        requests = extend_requests(state.requests, asked)
        state = replace(state, total=item.total, contributors=sites, requests=requests)
        state = coordinator.absorb(state)
    if state.stage is not None:
        raise EvidenceError(SUMS_FILE, "the method needs more sums than the log has")
    return state


def _compare(result: Result, found: Result) -> None:
    expected = json.loads(json_bytes(result.summary))
    shown = {key: value for key, value in found.summary.items() if key != "simulation"}
    if expected != shown:
        keys = sorted(k for k in expected | shown if expected.get(k) != shown.get(k))
        what = f"{', '.join(map(repr, keys))} do not follow from the released sums"
        raise EvidenceError("result.json", what, _UNLESS)
    arrays = {name: np.asarray(array) for name, array in result.arrays.items()}
    if set(arrays) != set(found.arrays) or not all(
        (array.dtype, array.shape, array.tobytes()) == (other.dtype, other.shape, other.tobytes())
        for name, array in arrays.items()
        for other in [found.arrays[name]]
    ):
        raise EvidenceError("arrays.npz", "does not follow from the released sums", _UNLESS)
