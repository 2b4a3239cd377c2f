"""The facts of a run besides its result: who took part, what was proved, who saw what.

Files: result.json (numbers and names), arrays.npz (the same numbers as arrays), run.json (the facts
below, the log's head), log.jsonl (hash chain, with the digests of all other files), report.html.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from secagg.core.arithmetic import arithmetic_fingerprint
from secagg.core.identity import COORDINATOR, Role
from secagg.evidence.planned_facts import planned_facts
from secagg.evidence.run_files import log_facts, release_counts
from secagg.evidence.session_result import versions
from secagg.runs import budgets, ledger_facts
from secagg.sessions.coordinator_state import CoordinatorState
from secagg.sessions.engines.memory import MemoryEngine
from secagg.sessions.engines.remote import RemoteEngine
from secagg.sessions.planned_job import agreement
from secagg.sessions.session import Session
from secagg.sessions.session_ledgers import ALL_SITES, open_ledger

SCHEMA = 3


def opening(session: Session, *, replayable: bool) -> dict[str, Any]:
    """Return the log's first event: what the parties agreed before any record was read."""
    return {
        "event": "session",
        "session": session.session.hex(),
        "nonce": session.nonce.hex(),
        "roster": roster_facts(session),
        **agreement(session.planned),
        "randomness": "REPLAYABLE: protects nothing" if replayable else "operating system",
    }


def roster_facts(session: Session) -> list[dict[str, str]]:
    """Return names, roles and public keys."""
    return [
        {"name": p.name, "role": p.role.value, "verify_key": p.verify_key.hex(),
         "seal_key": p.seal_key.hex()}
        for p in session.roster.parties.values()
    ]  # fmt: skip


def facts(
    session: Session,
    state: CoordinatorState,
    events: Sequence[Mapping[str, Any]],
    times: tuple[str, str],
) -> dict[str, Any]:
    """Return all facts of a finished run: those of run.json and of the log (`log_facts`)."""
    logged = log_facts(events)
    planned = session.planned
    return {
        "schema": SCHEMA,
        "started": times[0],
        "finished": times[1],
        **{k: v for k, v in events[0].items() if k not in ("event", "seq", "prev", "hash", "time")},
        "job": planned.job.agreed,  # with the order of columns, unlike in the log
        # Over a federated engine each party has its own: the job's are not used.
        "local": {} if isinstance(session.engine, RemoteEngine) else planned.job.local,
        **planned_facts(planned, events[0], len(state.cohort)),
        "rounds": state.round,
        "cohort": list(state.cohort),
        "consented": sorted({s for e in events if e["event"] == "consent" for s in e["claims"]}),
        "release_counts": release_counts(logged["releases"]),
        "ledger": ledger_section(session),
        "sites": site_facts(session),
        "traffic": traffic_by_role(session),
        "phases": traffic_by_phase(session),
        "engine": engine_facts(session, events),
        "versions": versions(),
        "arithmetic": arithmetic_fingerprint(),
        **logged,
    }


def ledger_section(session: Session) -> dict[str, Any]:
    """Return whether ledgers are kept in files, and the coordinator's account of all runs."""
    path = None if session.ledger is None else session.ledger.path
    if path is None:
        return {"kept": False, "coordinator": None, "spent": None}
    with closing(open_ledger(path)) as ledger:
        delta = session.planned.job.privacy.delta
        spent = ledger_facts.spent_budget(ledger, ALL_SITES, session.session.hex(), delta)
    return {"kept": True, "coordinator": budgets.show(path)[0], "spent": spent}


def site_facts(session: Session) -> list[dict[str, Any]] | None:
    """Return each site's data set, rules and ledger, if all sites run in this process.

    Otherwise None: these are private to the site, and the coordinator knows only what it signed.
    """
    if not isinstance(session.engine, MemoryEngine):
        return None
    return ledger_facts.of_sites(session.planned, session.session.hex())


def engine_facts(session: Session, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return where the parties ran, in how many processes, and how often the run was resumed.

    With a federated engine also the fingerprint of the pinned roster that all parties compared.
    """
    one_process = isinstance(session.engine, MemoryEngine)
    found = {
        "name": session.engine.name,
        "processes": 1 if one_process else len(session.roster.parties),
        "resumed": sum(event["event"] == "resumed" for event in events),
    }
    if isinstance(session.engine, RemoteEngine):
        found["pinned_roster"] = session.engine.pinned
    return found


def traffic_by_role(session: Session) -> list[dict[str, Any]]:
    """Return messages and bytes that each role sent and received, from the transcript."""
    roles = {name: party.role.value for name, party in session.roster.parties.items()}
    table: dict[str, dict[str, Any]] = {
        role.value: {"role": role.value, "parties": len(session.roster.with_role(role)),
                     "sent": 0, "sent_bytes": 0, "received": 0, "received_bytes": 0}
        for role in Role if session.roster.with_role(role)
    }  # fmt: skip
    for delivery in session.engine.transcript:
        sender, recipient = table[roles[delivery.sender]], table[roles[delivery.recipient]]
        sender["sent"] += 1
        sender["sent_bytes"] += delivery.size
        recipient["received"] += 1
        recipient["received_bytes"] += delivery.size
    return list(table.values())


def traffic_by_phase(session: Session) -> list[dict[str, Any]]:
    """Return the number of messages and bytes for each phase and direction."""
    table: dict[tuple[str, str], dict[str, Any]] = {}
    for delivery in session.engine.transcript:
        request = delivery.sender == COORDINATOR
        party = delivery.recipient if request else delivery.sender
        role = session.roster.parties[party].role.value
        key = (delivery.phase, "request" if request else "reply")
        row = table.setdefault(
            key, {"phase": key[0], "kind": key[1], "role": role, "messages": 0, "bytes": 0}
        )
        row["messages"] += 1
        row["bytes"] += delivery.size
    return list(table.values())


def processor_seconds(session: Session, here: float) -> dict[str, float]:
    """Return the processor seconds: in total, of all sites, and of all aggregators.

    here: those of this process. The start-up of other processes is not counted.

    Rounded to 0.1 s: a site's processor time grows with its number of rows, so more digits would
    reveal rows that no released sum counts. Under differential privacy no time is given.
    """
    if session.planned.private is not None:
        return {}
    parties = session.engine.seconds
    elsewhere = 0.0 if isinstance(session.engine, MemoryEngine) else sum(parties.values())
    spent = {"total": here + elsewhere}
    for name, seconds in parties.items():
        role = session.roster.parties[name].role.value
        spent[role] = spent.get(role, 0.0) + seconds
    return {who: round(seconds, 1) for who, seconds in spent.items()}
