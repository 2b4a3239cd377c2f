"""The lines of a graph's picture: which end is a head's, which line has none, and all in the box.

Curves are followed point by point, from the paths that are drawn.
"""

import itertools
import math
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.reports.svg.graph import Edge, graph_picture, round_order

Point = tuple[float, float]
STROKE = 2.5
"""The widest line of the page's style; the undirected ones, wider, have a double line's ends."""


@st.composite
def graphs(draw: st.DrawFn, most: int = 6) -> tuple[list[str], list[Edge]]:
    """Variables, and between any two of them no edge, one either way, or an undirected one."""
    names = [f"v{i}" for i in range(draw(st.integers(2, most)))]
    edges = []
    for a, b in itertools.combinations(names, 2):
        match draw(st.sampled_from(["none", "forth", "back", "open"])):
            case "forth":
                edges.append(Edge(a, b, True, None, "true"))
            case "back":
                edges.append(Edge(b, a, True, None, "true"))
            case "open":
                edges.append(Edge(a, b, False, None, "extra"))
            case _:
                pass
    return names, edges


def drawn(names: list[str], edges: list[Edge]) -> tuple[ET.Element, list[list[list[Point]]]]:
    """Return the picture, and for every edge the points of its paths."""
    order = round_order(names, [(edge.source, edge.target) for edge in edges])
    picture = ET.fromstring(graph_picture(order, edges, "t"))
    groups = [g for g in picture.findall("g") if str(g.get("class")).startswith("edge ")]
    paths = [[numbers(str(path.get("d"))) for path in group.findall("path")] for group in groups]
    return picture, paths


def numbers(path: str) -> list[Point]:
    found = [float(x) for x in re.findall(r"-?[\d.]+", path)]
    return list(zip(found[::2], found[1::2], strict=True))


def curve(path: list[Point]) -> list[Point]:
    """Return points of a cubic curve, less than a pixel apart."""
    steps = 1 + round(sum(math.dist(a, b) for a, b in itertools.pairwise(path)))
    points = []
    for k in range(steps + 1):
        t = k / steps
        weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
        x, y = (sum(w * p[axis] for w, p in zip(weights, path, strict=True)) for axis in (0, 1))
        points.append((x, y))
    return points


def beyond(point: Point, triangle: list[Point]) -> float:
    """Return how far a point lies from a triangle; 0 inside."""
    sides = list(itertools.pairwise([*triangle, triangle[0]]))
    turns = {
        (b[0] - a[0]) * (point[1] - a[1]) > (b[1] - a[1]) * (point[0] - a[0]) for a, b in sides
    }
    return 0.0 if len(turns) == 1 else min(from_line(point, a, b) for a, b in sides)


def from_line(point: Point, a: Point, b: Point) -> float:
    along = (b[0] - a[0], b[1] - a[1])
    part = (point[0] - a[0]) * along[0] + (point[1] - a[1]) * along[1]
    part = min(max(part / (along[0] ** 2 + along[1] ** 2), 0.0), 1.0)
    return math.dist(point, (a[0] + part * along[0], a[1] + part * along[1]))


@settings(max_examples=25, deadline=None)  # a deadline would be the machine's, not the picture's
@given(graphs())
def test_no_line_ends_in_the_head_of_another_edge(graph: tuple[list[str], list[Edge]]) -> None:
    """Nor touches it near a node that both have: else it could not be told whose head it is."""
    names, edges = graph
    _, paths = drawn(names, edges)
    for (edge, lines), (other, parts) in itertools.permutations(zip(edges, paths, strict=True), 2):
        if other.directed and other.target in (edge.source, edge.target):
            near = [p for p in curve(lines[0]) if math.dist(p, parts[1][0]) < 12]
            assert all(beyond(point, parts[1]) > STROKE / 2 for point in near)


def test_a_known_overlap_of_head_and_line_is_avoided() -> None:
    """Of a graph by PC: the end of age - sbp lay in the head of bmi -> sbp, as if age -> sbp."""
    names = ["age", "bmi", "chol", "sbp", "risk"]
    for open_one in itertools.combinations(names, 2):
        edges = [
            Edge(a, b, (a, b) != open_one, None, "found")
            for a, b in itertools.combinations(names, 2)
        ]
        _, paths = drawn(names, edges)
        ends = [(lines[0][0], lines[0][-1]) for lines in paths]
        for (i, lines), (j, two) in itertools.product(enumerate(paths), enumerate(ends)):
            if edges[i].directed and i != j:
                assert min(math.dist(lines[1][0], end) for end in two) > 3


def test_an_undirected_edge_is_a_double_line() -> None:
    edges = [Edge("a", "b", True, None, "true"), Edge("b", "c", False, None, "extra")]
    picture, ((shaft, head), (wide, core)) = drawn(["a", "b", "c"], edges)
    assert len(head) == 3 and len(shaft) == 4
    assert wide == core
    classes = {g.get("class"): [p.get("class") for p in g] for g in picture.findall("g")}
    assert classes["edge true"] == ["shaft", "head"]
    assert classes["edge extra undirected"] == ["shaft", "core"]


def test_a_single_edge_is_a_quadratic_curve() -> None:
    _, (paths,) = drawn(["a", "b", "c", "d"], [Edge("a", "b", False, None, "true")])
    begin, out, back, stop = paths[0]
    meet = [(b[0] + 1.5 * (c[0] - b[0]), b[1] + 1.5 * (c[1] - b[1]))
            for b, c in ((begin, out), (stop, back))]  # fmt: skip
    assert math.dist(*meet) < 0.5  # each coordinate is rounded to 0.05, and that times 1.5


@pytest.mark.parametrize("number", [4, 9, 16, 40])
def test_ends_at_a_crowded_node_are_apart_and_lines_in_the_box(number: int) -> None:
    names = [f"v{i}" for i in range(number)]
    for hub in (names[0], names[number // 4], names[-1]):
        rest = [name for name in names if name != hub]
        edges = [Edge(hub, name, True, None, "true") for name in rest]
        picture, paths = drawn(names, edges)
        left, top, width, height = map(float, str(picture.get("viewBox")).split())
        for lines in paths:
            for x, y in [*curve(lines[0]), *lines[1]]:
                assert left <= x - STROKE / 2 and x + STROKE / 2 <= left + width
                assert top <= y - STROKE / 2 and y + STROKE / 2 <= top + height
        begins = [lines[0][0] for lines in paths]
        apart = min(math.dist(a, b) for a, b in itertools.combinations(begins, 2))
        gap = min(math.radians(35), math.pi / max(number - 2, 1))
        assert apart > 2 * 7 * math.sin(gap / 2) - 0.15  # 7 px from the node's middle, rounded
