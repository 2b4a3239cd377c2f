"""Drawing of a learned graph; if the truth is known, each edge is marked by its verdict.

Variables stand on an ellipse, evenly spaced in height, so labels never overlap; their order keeps
edges short. Kinds of edges differ in line style and colour. Undirected edges are double lines. Ends
at a node are spread, so every arrow head clearly belongs to its own edge. Edges of a Markov random
field are single lines, marked by their sign; dependencies without a sign are single lines too.
Verdicts are those of `secagg.models.graphs.metrics`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from markupsafe import Markup

from secagg.evidence.numbers import listing
from secagg.reports.svg import elements

Verdict = Literal[
    "found", "true", "reversed", "extra", "missing", "positive", "negative", "dependent"
]  # fmt: skip
SIGNS: tuple[Verdict, ...] = ("positive", "negative", "found")
"""Kinds of edges without a verdict: by sign; the last one is an undecided sign."""
Point = tuple[float, float]

MAX_DRAWN = 40
"""With more variables a drawing is not readable; the table of edges remains."""
_LABEL = 16  # drawn characters of a label; its title has the full text
_CHARACTER = 7.8  # upper limit of a character's width in a 13 px font
_RX, _NODE = 150.0, 5.0
_MIN_ANGLE = math.radians(35)  # between ends at a node: a head takes 14 degrees on either side
_SIDE_OFFSET = 20.0
_LABEL_ANGLE = math.radians(50)  # kept free on either side of a node's label


@dataclass(frozen=True)
class Edge:
    """One edge: found, or in the truth only."""

    source: str
    target: str
    directed: bool
    weight: float | None
    verdict: Verdict
    votes: tuple[int, ...] = ()
    """Number of sites that voted for it; for an undirected edge, one number for each direction."""
    times_noise: float | None = None
    stability: tuple[float, ...] = ()
    """Shares of repetitions with fresh noise that have it, in its direction and in either."""
    std_error: float | None = None
    """Of the weight."""


def judged(summary: Mapping[str, Any]) -> list[Edge]:
    """Return the edges of a graph result with their verdicts, the missing ones last."""
    truth = None if "truth" not in summary else {(a, b) for a, b in summary["truth"]}
    voted = {(v["from"], v["to"]): int(v["sites"]) for v in summary.get("votes", ())}

    def votes(source: str, target: str, *, directed: bool = True) -> tuple[int, ...]:
        if "votes" not in summary:
            return ()
        ways = [(source, target)] if directed else [(source, target), (target, source)]
        return tuple(voted.get(way, 0) for way in ways)

    edges = []
    for e in summary["edges"]:
        ends, directed = (e["from"], e["to"]), e["kind"] == "directed"
        of_edge = votes(*ends, directed=directed)
        stability = tuple(e[key] for key in ("stability", "stability_either_way") if key in e)
        noise, error = (e.get("times_noise"), stability), e.get("std_error")
        verdict = _verdict(e, truth)
        edges.append(Edge(*ends, directed, e["weight"], verdict, of_edge, *noise, std_error=error))
    pairs = {frozenset((edge.source, edge.target)) for edge in edges}
    missing = [pair for pair in summary.get("truth", ()) if frozenset(pair) not in pairs]
    return edges + [Edge(a, b, True, None, "missing", votes(a, b)) for a, b in missing]


def _verdict(edge: Mapping[str, Any], truth: set[tuple[str, str]] | None) -> Verdict:
    if truth is None:
        return "found"
    pair = (edge["from"], edge["to"])
    against = (edge["to"], edge["from"])
    if pair in truth or (edge["kind"] == "undirected" and against in truth):
        return "true"
    return "reversed" if against in truth else "extra"


def round_order(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names in an order around the ellipse that keeps edges short.

    Swap pairs as long as that shortens the edges: a deterministic local optimum.
    """
    order = list(names)
    near: dict[str, list[str]] = {name: [] for name in names}
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    at = dict(zip(order, _places(len(order)), strict=True))

    def length(name: str) -> float:
        return sum(math.dist(at[name], at[other]) for other in near[name])

    swapped = True
    while swapped:  # ends: each swap shortens the edges, and there are finitely many orders
        swapped = False
        for i, j in itertools.combinations(range(len(order)), 2):
            one, two = order[i], order[j]
            before = length(one) + length(two)
            at[one], at[two] = at[two], at[one]
            if length(one) + length(two) < before - 1e-9:
                order[i], order[j] = two, one
                swapped = True
            else:
                at[one], at[two] = at[two], at[one]
    return order


def _places(number: int) -> list[Point]:
    """Return positions clockwise from the top right, evenly spaced in height on either side."""
    right = (number + 1) // 2
    half_height = max(right * (52 if number <= 12 else 28), 80) / 2
    places = []
    for k in range(number):
        on_right = k < right
        row, rows = (k, right) if on_right else (number - 1 - k, number - right)
        height = -1 + (2 * row + 1) / rows
        across = math.sqrt(1 - height**2) * (1 if on_right else -1)
        places.append((_RX * across, half_height * height))
    return places


def graph_picture(order: Sequence[str], edges: Sequence[Edge], title: str) -> Markup:
    """Draw the edges between the names, in this order around the ellipse."""
    places = dict(zip(order, _places(len(order)), strict=True))
    margin = min(max(map(len, order)), _LABEL) * _CHARACTER + 20
    half_width = _RX + margin
    half_height = max(y for _, y in places.values()) + 24
    box = f"{-half_width:.0f} {-half_height:.0f} {2 * half_width:.0f} {2 * half_height:.0f}"
    drawing = elements.root("graph", viewBox=box, width=f"{2 * half_width:.0f}", role="img")
    elements.add(drawing, "title", text=title)
    elements.add(drawing, "desc", text=_description(edges))
    for edge, leaving in zip(edges, _leaving(places, edges), strict=True):
        _draw_edge(drawing, edge, places[edge.source], places[edge.target], leaving)
    for name, (x, y) in places.items():
        node = elements.add(drawing, "g", "node")
        elements.add(node, "title", text=name)
        elements.add(node, "circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{_NODE:.0f}")
        side = 1 if x >= 0 else -1
        short = name if len(name) <= _LABEL else name[: _LABEL - 1] + "…"
        anchor = "start" if side > 0 else "end"
        at = {"x": f"{x + side * 11:.1f}", "y": f"{y + 4.5:.1f}", "text_anchor": anchor}
        elements.add(node, "text", text=short, **at)
    return elements.markup(drawing)


def edge_sample(verdict: Verdict, *, directed: bool = True) -> Markup:
    """Draw a short edge for the legend."""
    drawing = elements.root("graph sample", viewBox="-4 -8 52 16", width="52", aria_hidden="true")
    _draw_edge(drawing, Edge("", "", directed, None, verdict), (-8, 0), (52, 0), (0, math.pi))
    return elements.markup(drawing)


def _leaving(places: Mapping[str, Point], edges: Sequence[Edge]) -> list[tuple[float, float]]:
    """Return the angles at which each edge leaves its source and its target, spread at every node.

    If an end lay in another edge's head, nobody could see which edge the head belongs to.
    """
    leaving = [[0.0, 0.0] for _ in edges]
    for name, at in places.items():
        label = 0.0 if at[0] >= 0 else math.pi  # angles are relative to the label
        ends = []
        for i, edge in enumerate(edges):
            if name in (edge.source, edge.target):
                bend = _bend(places[edge.source], places[edge.target])
                angle = math.atan2(bend[1] - at[1], bend[0] - at[0])
                ends.append(((angle - label) % math.tau, i, int(name == edge.target)))
        ends.sort()
        for angle, (_, i, end) in zip(_apart([end[0] for end in ends]), ends, strict=True):
            leaving[i][end] = angle + label
    return [(source, target) for source, target in leaving]


def _apart(angles: Sequence[float]) -> list[float]:
    """Return ascending angles, moved apart as far as heads need and as there is room.

    The result is the mean of two solutions: move angles up from below, and down from above.
    """
    last = len(angles) - 1
    gap = min(_MIN_ANGLE, math.pi / max(last, 1))
    low, high = _LABEL_ANGLE, math.tau - _LABEL_ANGLE - last * gap
    room = [min(max(angle - i * gap, low), high) for i, angle in enumerate(angles)]
    up = itertools.accumulate(room, max)
    down = list(itertools.accumulate(reversed(room), min))[::-1]
    return [(a + b) / 2 + i * gap for i, (a, b) in enumerate(zip(up, down, strict=True))]


def _bend(start: Point, end: Point) -> Point:
    """Return the point where an edge bends: its midpoint, moved towards the picture's middle."""
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    return _towards(middle, (0.0, 0.0), min(0.4 * math.hypot(*middle), 0.3 * math.dist(start, end)))


def _draw_edge(
    drawing: elements.Element, edge: Edge, start: Point, end: Point, leaving: tuple[float, float]
) -> None:
    """Draw a curve between both circles, at these angles, with its arrow head."""
    bend = _bend(start, end)
    begin = _away(start, leaving[0], _NODE + 2)
    tip = _away(end, leaving[1], _NODE + 2)
    group = elements.add(
        drawing, "g", f"edge {edge.verdict}{'' if edge.directed else ' undirected'}"
    )
    stop = _away(tip, leaving[1], 7) if edge.directed else tip
    out = _away(begin, leaving[0], _pull(begin, bend, leaving[0]))
    back = _away(stop, leaving[1], _pull(stop, bend, leaving[1]))
    line = f"M{_xy(begin)} C{_xy(out)} {_xy(back)} {_xy(stop)}"
    elements.add(group, "path", "shaft", d=line)
    if not edge.directed:
        elements.add(group, "path", "core", d=line)  # leaves two lines, unlike any head
    else:
        side = math.atan(0.45)
        left, right = (_away(tip, leaving[1] + turn, 9 / math.cos(side)) for turn in (side, -side))
        elements.add(group, "path", "head", d=f"M{_xy(tip)} L{_xy(left)} L{_xy(right)} z")


def _pull(start: Point, bend: Point, angle: float) -> float:
    """Return the distance of a curve's control point along the angle at which it leaves.

    If the angle is that of the bend, two thirds of its distance give the quadratic curve through
    the bend. A curve that leaves at another angle has a smaller distance, so it does not swing
    around other nodes.
    """
    turned = abs(
        math.remainder(angle - math.atan2(bend[1] - start[1], bend[0] - start[0]), math.tau)
    )
    aside = math.sin(min(turned, math.pi / 2))
    return min(math.dist(start, bend) * 2 / 3, _SIDE_OFFSET / max(aside, 1e-9))


def _away(start: Point, angle: float, distance: float) -> Point:
    return start[0] + distance * math.cos(angle), start[1] + distance * math.sin(angle)


def _towards(start: Point, end: Point, distance: float) -> Point:
    part = distance / (math.dist(start, end) or 1.0)
    return start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part


def _xy(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def _description(edges: Sequence[Edge]) -> str:
    """Return the edges in words, verdict by verdict."""
    parts = []
    for verdict in get_args(Verdict):
        named = [
            f"{edge.source} {'to' if edge.directed else 'with'} {edge.target}"
            for edge in edges
            if edge.verdict == verdict
        ]
        if named:
            parts.append(f"{verdict}: {listing(named)}")
    return "; ".join(parts) or "no edges"
