"""The tables of a report: plain rows made of the facts of a run, ready for the template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from secagg.reports.dp_claims import PrivacyClaims
from secagg.reports.numbers import any_setting, declared, flat, power_of_two, whole
from secagg.reports.results import Block, usable
from secagg.reports.svg import graph

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Lane:
    """One role in the picture of who saw what, and its messages to and from the coordinator."""

    role: str
    parties: int
    sees: str
    requests: tuple[Mapping[str, Any], ...]
    replies: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Bound:
    """One field's proof of fit; `largest` is the largest sum that can occur, in steps.

    tail: the largest noise of one site, in steps; clipped: None where that is not told
    """

    name: str
    kind: str
    values: int
    bound: str
    fraction_bits: int
    tail: str
    largest: str
    sum_bits: int
    clipped: int | None


@dataclass(frozen=True)
class StageTable:
    """A stage with its fields; `fits`: the proof, computed again from the numbers shown."""

    name: str
    sees: str
    sites: int
    ring_bits: int
    max_rounds: int
    releases: int
    values: int
    bounds: tuple[Bound, ...]
    fits: bool


def numbers_released(facts: Facts, claims: PrivacyClaims) -> int:
    """Return how many numbers all opened sums tell together."""
    return sum(_numbers(s, claims) * claims.sums.get(s["stage"], 0) for s in facts["plan"])


def _numbers(stage: Mapping[str, Any], claims: PrivacyClaims) -> int:
    """Return how many numbers a sum tells: with noise, clip counts are zeros and tell nothing."""
    fields = [f for f in stage["fields"] if not (claims.noised and f["name"] == "clipped")]
    return sum(int(field["values"]) for field in fields)


def lanes(facts: Facts, claims: PrivacyClaims) -> list[Lane]:
    """Return every role but the coordinator, in the order of the facts: sites first."""

    def messages(role: str, kind: str) -> tuple[Mapping[str, Any], ...]:
        return tuple(p for p in facts["phases"] if (p["role"], p["kind"]) == (role, kind))

    rows = [row for row in facts["traffic"] if row["role"] != "coordinator"]
    return [
        Lane(
            row["role"], row["parties"], claims.sees[row["role"]],
            messages(row["role"], "request"), messages(row["role"], "reply"),
        )
        for row in rows
    ]  # fmt: skip


def stages(facts: Facts, summary: Mapping[str, Any], claims: PrivacyClaims) -> list[StageTable]:
    """Return the proof of fit of every stage, worked out from bounds, sites and resolution."""
    found = []
    for stage in facts["plan"]:
        told = summary["contributions_clipped"]
        clipped = None if claims.noised else told.get(stage["stage"], {})
        bounds, fits = [], True
        for field in stage["fields"]:
            step = Fraction(2) ** field["fraction_bits"]
            one = round(Fraction(field["bound"]) * step) + field["noise_tail"]
            largest = stage["sites"] * one
            fits = fits and largest < 2 ** (stage["ring_bits"] - 1)
            fits = fits and largest.bit_length() + 1 == field["sum_bits"]
            bounds.append(
                Bound(
                    field["name"], field["kind"], field["values"], declared(field["bound"]),
                    field["fraction_bits"], whole(field["noise_tail"]), whole(largest),
                    field["sum_bits"], None if clipped is None else clipped.get(field["name"], 0),
                )
            )  # fmt: skip
        found.append(
            StageTable(
                stage["stage"], stage["sees"], stage["sites"], stage["ring_bits"],
                stage["max_rounds"], claims.sums.get(stage["stage"], 0), _numbers(stage, claims),
                tuple(bounds), fits,
            )
        )  # fmt: skip
    return found


def releases(facts: Facts, repeated: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what each release was decided by; rounds in a row that are alike make one line.

    repeated: the releases, by round, that an earlier session had made with the same noise
    """
    found: list[dict[str, Any]] = []
    for release in facts["releases"]:
        line = {
            "stage": release["stage"],
            "sites": len(release["contributors"]),
            "strictest": max(release["thresholds"].values()),
            "again": repeated[release["round"]]["session"][:8]
            if release["round"] in repeated
            else "",
        }
        at, seq = release["round"], release["seq"] + 1
        if found and found[-1].items() >= line.items() and found[-1]["last"] == at - 1:
            found[-1] |= {"last": at, "number": found[-1]["number"] + 1, "last_line": seq}
        else:
            ends = {"first": at, "last": at, "number": 1, "first_line": seq, "last_line": seq}
            found.append(line | ends)
    return found


def policies(facts: Facts) -> list[tuple[str, int, str]]:
    """Return, for each site, in how many releases it took part and the thresholds it signed."""
    found = []
    for site in facts["cohort"]:
        signed = [r["thresholds"][site] for r in facts["releases"] if site in r["contributors"]]
        least, most = min(signed), max(signed)
        found.append((site, len(signed), str(least) if least == most else f"{least} to {most}"))
    return found


def coordinator_key(facts: Facts) -> str:
    """Return the key that a site's policy may name as that of a coordinator it answers."""
    (key,) = (p["verify_key"] for p in facts["roster"] if p["role"] == "coordinator")
    return str(key)


def columns(
    facts: Facts, summary: Mapping[str, Any], claims: PrivacyClaims
) -> list[tuple[str, str, str, int | None]]:
    """Return each declared column: name, type, public bounds or levels, values outside them.

    The last is None where it was not counted.
    """
    found = []
    for name, column in facts["job"]["columns"].items():
        if column["type"] == "continuous":
            text = (
                f"{declared(column['low'])} to {declared(column['high'])} {column['unit']}".strip()
            )
            if column["transform"] != "none":
                text += f", then {column['transform']}"
        else:
            text = ", ".join(column["levels"])
        outside = None if claims.noised else int(summary["values_outside_bounds"][name])
        found.append((name, column["type"], text, outside))
    return found


def settings(facts: Facts, claims: PrivacyClaims) -> list[tuple[str, str]]:
    """Return every setting under the dotted name that `--set` takes, defaults included.

    Columns have a table of their own; what is unset is left out.
    """
    job = {key: value for key, value in facts["job"].items() if key != "columns"}
    for part in ("method", "protocol"):
        job[part] = {"name": facts[part]["name"], **facts[part]["settings"]}
    in_force = {"method.fraction_bits": _bits_in_force(claims)} if claims.noised else {}
    return [(name, in_force.get(name) or any_setting(value)) for name, value in flat(job)]


def _bits_in_force(claims: PrivacyClaims) -> str:
    """Return the resolution that noise is drawn at, in place of the one that was set."""
    step = claims.guarantee["mechanisms"][-1]["step"]
    bits = step.removeprefix("2^-")
    return f"{bits}, so steps of {power_of_two(-int(bits))}: noise sets it, whatever the job says"


def graphs_alone(block: Block) -> list[dict[str, Any]]:
    """Return, for each site by itself, how many edges it finds, how many agree, and its score."""
    pooled = {(e.source, e.target, e.directed) for e in _found(block.summary)}
    rows = []
    for site, own in block.alone.items():
        edges = None
        if "failed" not in own:
            edges = {(e.source, e.target, e.directed) for e in _found(own)}
        rows.append(
            {
                "site": site,
                "usable": usable(own),
                "edges": None if edges is None else len(edges),
                "common": None if edges is None else len(edges & pooled),
                "score": own.get("score"),
            }
        )
    return rows


def _found(summary: Mapping[str, Any]) -> list[graph.Edge]:
    return [edge for edge in graph.judged(summary) if edge.verdict != "missing"]
