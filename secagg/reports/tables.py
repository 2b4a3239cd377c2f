"""The tables of a report: plain rows from the facts of a run, for the template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.evidence.numbers import any_setting, declared, flat, integer, power_of_two
from secagg.reports.names import log_names
from secagg.reports.results import Block, usable
from secagg.reports.svg import graph

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Lane:
    """One role in the message diagram, and its messages to and from the coordinator."""

    role: str
    parties: int
    sees: str
    requests: tuple[Mapping[str, Any], ...]
    replies: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Bound:
    """One field's overflow check; `largest` is the largest possible sum, in steps.

    tail: the largest noise of one site, in steps; clipped: None if the run does not count it
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
    """A stage with its fields; `fits`: the overflow check, computed again."""

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
    """Return how many numbers all opened sums contain."""
    return sum(_numbers(s, claims) * claims.sums.get(s["stage"], 0) for s in facts["plan"])


def _numbers(stage: Mapping[str, Any], claims: PrivacyClaims) -> int:
    """Return how many numbers a sum contains, without the clip counts of a noised run: zeros."""
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
    """Return the overflow check of every stage, from bounds, sites and resolution."""
    shown = []
    for stage in facts["plan"]:
        clip_counts = summary["contributions_clipped"]
        clipped = None if claims.noised else clip_counts.get(stage["stage"], {})
        bounds, fits = [], True
        for field in stage["fields"]:
            step = Fraction(2) ** field["fraction_bits"]
            contribution = round(Fraction(field["bound"]) * step) + field["noise_tail"]
            largest = stage["sites"] * contribution
            fits = fits and largest < 2 ** (stage["ring_bits"] - 1)
            fits = fits and largest.bit_length() + 1 == field["sum_bits"]
            bounds.append(
                Bound(
                    field["name"], field["kind"], field["values"], declared(field["bound"]),
                    field["fraction_bits"], integer(field["noise_tail"]), integer(largest),
                    field["sum_bits"], None if clipped is None else clipped.get(field["name"], 0),
                )
            )  # fmt: skip
        shown.append(
            StageTable(
                stage["stage"], stage["sees"], stage["sites"], stage["ring_bits"],
                stage["max_rounds"], claims.sums.get(stage["stage"], 0), _numbers(stage, claims),
                tuple(bounds), fits,
            )
        )  # fmt: skip
    return shown


def releases(facts: Facts, repeated: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the basis of each release decision; equal decisions in successive rounds share a line.

    repeated: by round, the releases that an earlier session made with the same noise
    """
    lines: list[dict[str, Any]] = []
    for release in facts["releases"]:
        round_, seq = release["round"], release["seq"] + 1
        line = {
            "stage": release["stage"],
            "sites": len(release["contributors"]),
            "strictest": max(release["thresholds"].values()),
            "again": repeated[round_]["session"][:8] if round_ in repeated else "",
        }
        if lines and lines[-1].items() >= line.items() and lines[-1]["last"] == round_ - 1:
            lines[-1] |= {"last": round_, "number": lines[-1]["number"] + 1, "last_line": seq}
        else:
            ends = {"first": round_, "last": round_, "first_line": seq, "last_line": seq}
            lines.append(line | ends | {"number": 1})
    return lines


def thresholds(facts: Facts) -> list[tuple[str, int, str]]:
    """Return, for each site, its number of releases and the thresholds that it signed."""
    rows = []
    for site in facts["cohort"]:
        signed = [r["thresholds"][site] for r in facts["releases"] if site in r["contributors"]]
        low, high = min(signed), max(signed)
        rows.append((site, len(signed), str(low) if low == high else f"{low} to {high}"))
    return rows


def coordinator_key(facts: Facts) -> str:
    """Return the coordinator's public key, which a site's policy may name."""
    (key,) = (p["verify_key"] for p in facts["roster"] if p["role"] == "coordinator")
    return str(key)


def columns(
    facts: Facts, summary: Mapping[str, Any], claims: PrivacyClaims
) -> list[tuple[str, str, str, int | None]]:
    """Return each declared column: name, type, public bounds or levels, values outside them.

    The last is None if the run does not count them.
    """
    rows, logs = [], log_names(facts["job"]["columns"])
    for name, column in facts["job"]["columns"].items():
        if "levels" not in column:
            low, high = declared(column.get("low", 0)), declared(column["high"])
            text = f"{low} to {high} {column['unit']}".strip()
            if name in logs:
                text += f"; analysed as {logs[name]}, the natural logarithm"
        else:
            text = ", ".join(column["levels"])
        outside = None if claims.noised else int(summary["values_outside_bounds"][name])
        rows.append((name, column["type"], text, outside))
    return rows


def settings(facts: Facts, claims: PrivacyClaims) -> list[tuple[str, str]]:
    """Return every setting, with defaults, by the dotted name of `--set`.

    Not included are settings that are not set, and those of [privacy] that have no effect.
    Columns have a separate table.
    """
    job = {key: value for key, value in facts["job"].items() if key != "columns"}
    for part in ("method", "protocol"):
        job[part] = {"name": facts[part]["name"], **facts[part]["settings"]}
    unused = _unused(job["privacy"])
    job["privacy"] = {key: value for key, value in job["privacy"].items() if key not in unused}
    actual = {"method.fraction_bits": _noise_resolution(claims)} if claims.noised else {}
    everything = [*flat(job), *flat(facts.get("local", {}))]
    return [(name, actual.get(name) or any_setting(value)) for name, value in everything]


def _unused(privacy: Mapping[str, Any]) -> set[str]:
    """Return the keys of [privacy] whose defaults have no effect in this run."""
    if privacy["placement"] == "none":
        return set(privacy) - {"placement"}
    of_persons = {"records_per_person", "sites_per_person", "person_pinned"}
    unused = set() if privacy["person"] else of_persons
    return unused if privacy["placement"] in ("sum", "round") else unused | {"colluding"}


def _noise_resolution(claims: PrivacyClaims) -> str:
    """Return the resolution of the noise, which replaces that of the job."""
    bits = claims.guarantee["mechanisms"][-1]["step"].removeprefix("2^-")
    return f"{bits}, so steps of {power_of_two(-int(bits))}: the noise replaces the job's setting"


def graphs_alone(block: Block) -> list[dict[str, Any]]:
    """Return, for each site alone, its number of edges, those in common with all, its score."""
    pooled = _edges(block.summary)
    rows = []
    for site, own in block.alone.items():
        edges = None if "failed" in own else _edges(own)
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


def _edges(summary: Mapping[str, Any]) -> set[tuple[str, str, bool]]:
    edges = [edge for edge in graph.judged(summary) if edge.verdict != "missing"]
    return {(edge.source, edge.target, edge.directed) for edge in edges}
