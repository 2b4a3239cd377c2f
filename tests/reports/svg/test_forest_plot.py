"""Pictures: numbers stand where they belong, verdicts are those of the metrics."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import secagg.reports
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.result import GraphFit
from secagg.reports.svg.forest_plot import (
    Interval,
    Scale,
    arrow_picture,
    axis_picture,
    interval_picture,
    scale_for,
)
from secagg.reports.svg.graph import Edge, graph_picture, judged, round_order

LOG = st.booleans()
ENDS = st.tuples(st.floats(-600, 0), st.floats(1e-6, 600))


def value(distance: float, log: bool) -> float:
    return math.exp(distance) if log else distance


class TestScale:
    @given(ENDS, LOG, st.lists(st.floats(-700, 700), min_size=2))
    def test_order_is_kept(
        self, ends: tuple[float, float], log: bool, distances: list[float]
    ) -> None:
        scale = Scale(*ends, log)
        places = [scale.place(value(d, log)) for d in sorted(distances)]
        assert places == sorted(places)
        assert all(4 <= place <= 96 for place in places)

    @given(ENDS, LOG)
    def test_ticks_are_on_the_scale_and_apart(self, ends: tuple[float, float], log: bool) -> None:
        scale = Scale(*ends, log)
        ticks = scale.ticks()
        places = [scale.place(tick) for tick in ticks]
        assert all(scale.holds(tick) for tick in ticks) and 2 <= len(ticks) <= 6
        assert scale.no_effect in ticks
        assert all(b - a > 8 for a, b in itertools.pairwise(places))

    def test_zero_and_infinite_ends_are_cut_off(self) -> None:
        scale = Scale(-2.0, 2.0, log=True)
        assert scale.place(0.0) == 4 and not scale.holds(0.0)
        assert scale.place(math.inf) == 96 and not scale.holds(math.inf)


class TestReach:
    def test_a_term_on_one_side_of_no_effect_fills_its_scale(self) -> None:
        scale = scale_for([Interval(-4.0, -5.0, -3.0)], log=False)
        assert scale.place(-5.0) < 8 and scale.place(0.0) > 92

    def test_the_scale_contains_the_whole_pooled_interval_and_every_estimate(self) -> None:
        pooled, site = Interval(2.0, 1.5, 3.0), Interval(0.5, 1e-9, 1e9)
        scale = scale_for([pooled], [site, None], log=True)
        assert all(scale.holds(v) for v in (1.0, 1.5, 2.0, 3.0, 0.5))
        assert scale.cuts(site) and not scale.cuts(pooled) and not scale.cuts(None)
        assert scale.high - scale.low < 2.5 * math.log(3 / 0.5) * 1.07

    def test_the_scale_widens_for_sites_as_far_as_needed(self) -> None:
        site = Interval(-2.0, -3.0, -1.0)
        scale = scale_for([Interval(1.0, 0.5, 1.5)], [site, None], log=False)
        assert not scale.cuts(site)
        assert (scale.low, scale.high) == pytest.approx((-3.135, 1.635))

    @pytest.mark.parametrize("nothing", [None, Interval(0.0, 0.0, 0.0)])
    def test_an_empty_scale_has_a_length(self, nothing: Interval | None) -> None:
        scale = scale_for([nothing], [nothing], log=False)
        assert (scale.low, scale.high) == (-1.0, 1.0)


class TestInterval:
    def test_rows_without_a_finite_estimate_are_not_drawn(self) -> None:
        assert Interval.of(None, 1.0, 2.0) is None
        assert Interval.of(math.inf, 1.0, 2.0) is None
        assert Interval.of(1.0, None, None) == Interval(1.0, 1.0, 1.0)

    def test_an_interval_is_drawn_between_its_ends(self) -> None:
        drawn = interval_picture(Interval(0.5, -0.5, 1.0), Scale(-1.0, 1.0, log=False), pooled=True)
        assert 'x1="27.00%" x2="96.00%"' in drawn
        assert 'x="73.00%"' in drawn
        assert "head" not in drawn

    def test_an_end_off_the_scale_is_an_arrow(self) -> None:
        drawn = interval_picture(
            Interval(0.5, -9.0, 0.9), Scale(-1.0, 1.0, log=False), pooled=False
        )
        assert drawn.count('class="head"') == 1
        beyond = interval_picture(
            Interval(5.0, 4.0, 6.0), Scale(-1.0, 1.0, log=False), pooled=False
        )
        assert 'class="mark"' not in beyond
        for sign, pointing in ((1, "l-8 "), (-1, "l8 ")):  # a head to the right begins at its tip
            point = Interval(5.0 * sign, 5.0 * sign, 5.0 * sign)
            drawn = interval_picture(point, Scale(-1.0, 1.0, log=False), pooled=False)
            assert drawn.count('class="head"') == 1 and pointing in drawn

    def test_without_an_estimate_only_the_reference_is_drawn(self) -> None:
        drawn = interval_picture(None, Scale(-1.0, 1.0, log=True), pooled=False)
        assert drawn.count("<line") == 1

    def test_axis_is_labelled(self) -> None:
        def labels(scale: Scale) -> list[str]:
            return re.findall(r">([^<>]+)</text>", axis_picture(scale))

        assert labels(Scale(-3.0, 3.0, log=True)) == ["0.1", "0.3", "1", "3", "10"]
        assert labels(Scale(-0.3, 1.5, log=True)) == ["1", "2"]
        assert labels(Scale(-0.61, 0.1, log=False)) == ["−0.6", "−0.4", "−0.2", "0"]
        assert "1 × 10¹⁵³" in labels(Scale(0.0, math.log(1e201), log=True))[-1]

    def test_the_area_of_a_circle_is_the_weight(self) -> None:
        def radius(weight: float) -> float:
            scale, point = Scale(-1.0, 1.0, log=False), Interval(0.0, 0.0, 0.0)
            drawn = interval_picture(point, scale, pooled=False, weight=weight)
            return float(re.findall(r' r="([\d.]+)"', drawn)[0])

        assert radius(0.25) == pytest.approx(radius(1.0) / 2, abs=0.1)
        assert radius(0.0) > 1

    def test_arrows_at_the_two_ends_of_the_scale_differ(self) -> None:
        assert arrow_picture(down=True) != arrow_picture(down=False)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[GraphFit, list[list[str]]]:
    """An estimate with directed and undirected edges, and a true DAG over the same variables."""
    p = draw(st.integers(2, 6))
    names = tuple(f"v{i}" for i in range(p))
    directed, undirected = np.zeros((p, p), bool), np.zeros((p, p), bool)
    truth = []
    for i in range(p):
        for j in range(i):
            match draw(st.sampled_from(["none", "forth", "back", "open"])):
                case "forth":
                    directed[i, j] = True
                case "back":
                    directed[j, i] = True
                case "open":
                    undirected[i, j] = undirected[j, i] = True
                case _:
                    pass
            if draw(st.booleans()):
                truth.append([names[i], names[j]])
    return GraphFit("pc", names, directed, undirected, None, True, {}), truth


class TestGraphs:
    @given(graphs())
    def test_edge_verdicts_agree_with_the_metrics(self, drawn: tuple[GraphFit, list]) -> None:
        fit, truth = drawn
        true_edge = np.zeros_like(fit.directed)
        for cause, effect in truth:
            true_edge[fit.names.index(cause), fit.names.index(effect)] = True
        metrics = compare_graphs(fit.directed, true_edge, fit.undirected)
        edges = judged({**fit.to_dict(), "truth": truth})
        found = {v: sum(e.verdict == v for e in edges) for v in ("reversed", "extra", "missing")}
        assert found == {k: getattr(metrics, k) for k in found}
        hits = sum(edge.verdict == "true" for edge in edges)
        assert hits == round(metrics.tpr * len(truth))

    def test_without_a_truth_edges_have_no_verdict(self) -> None:
        edge = {"from": "a", "to": "b", "kind": "directed", "weight": 0.5}
        assert judged({"edges": [edge]}) == [Edge("a", "b", True, 0.5, "found")]

    @given(graphs())
    def test_node_order_is_a_deterministic_permutation(self, drawn: tuple[GraphFit, list]) -> None:
        fit, truth = drawn
        pairs = [(a, b) for a, b in truth]
        order = round_order(fit.names, pairs)
        assert sorted(order) == sorted(fit.names)
        assert round_order(fit.names, pairs) == order

    def test_node_order_places_neighbours_together(self) -> None:
        names = [f"v{i}" for i in range(8)]
        pairs = [("v0", "v4"), ("v1", "v5"), ("v2", "v6"), ("v3", "v7")]
        order = round_order(names, pairs)
        apart = [abs(order.index(a) - order.index(b)) for a, b in pairs]
        assert all(distance in (1, 7) for distance in apart)

    def test_a_graph_describes_its_edges_in_words_and_marks_them(self) -> None:
        edges = [
            Edge("a", "b", True, None, "true"),
            Edge("b", "c", False, None, "extra"),
            Edge("c", "a", True, None, "missing"),
        ]
        drawn = graph_picture(["a", "b", "c"], edges, "what was learned")
        assert "<desc>true: a to b; extra: b with c; missing: c to a</desc>" in drawn
        for verdict, heads in (("true", 1), ("extra undirected", 0), ("missing", 1)):
            group = re.search(rf'<g class="edge {verdict}">(.*?)</g>', drawn)
            assert group is not None and group.group(1).count('class="head"') == heads

    def test_long_and_hostile_labels_are_shortened_and_escaped(self) -> None:
        name = "<b>" + "x" * 50
        drawn = graph_picture([name, "y"], [Edge(name, "y", True, None, "found")], "t")
        assert "<b>" not in drawn
        assert f"<title>&lt;b&gt;{'x' * 50}</title>" in drawn
        assert f">&lt;b&gt;{'x' * 12}…</text>" in drawn

    @pytest.mark.parametrize("number", [1, 2, 3, 11, 40])
    def test_labels_on_one_side_do_not_overlap(self, number: int) -> None:
        drawn = graph_picture([f"v{i}" for i in range(number)], [], "t")
        places = re.findall(r'<text x="([-\d.]+)" y="([-\d.]+)"', drawn)
        assert len(places) == number
        for side in (-1, 1):
            heights = sorted(float(y) for x, y in places if float(x) * side > 0)
            assert all(b - a >= 20 for a, b in itertools.pairwise(heights))


class TestColours:
    """WCAG 2.2: 4.5 to 1 for text (1.4.3); line styles' colours are held to it too."""

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_colours_have_enough_contrast(self, scheme: str) -> None:
        css = (Path(secagg.reports.__file__).parent / "templates/report.css").read_text("utf-8")
        light, dark = re.findall(r":root \{(.*?)\}", css, re.S)
        colours = dict(re.findall(r"--([\w-]+): (#\w{6})", light))
        if scheme == "dark":
            colours |= dict(re.findall(r"--([\w-]+): (#\w{6})", dark))
        for ground in ("paper", "panel"):
            for name in ("ink", "muted", "accent", "reversed", "extra", "missing"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        assert contrast(colours["on-void"], colours["void"]) >= 4.5


def contrast(one: str, two: str) -> float:
    """Return the contrast ratio of WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)
