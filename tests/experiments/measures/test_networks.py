"""The pseudo-likelihood of networks, against densities of scipy. (No torch is needed.)"""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from support.methods.fitted_ngms import MEANS, SDS, SHARES, ngm_job, ngm_result

from secagg.contracts import PublicFacts, TableKind
from secagg.experiments.measures.graphs import read_graph
from secagg.experiments.measures.networks import (
    at_one_site,
    graph_is_given,
    is_measured,
    predictions,
    read_network,
    without_edges,
)
from secagg.experiments.sweep import Records
from secagg.jobs.job import Job, parse_job
from secagg.jobs.registry import make_method
from secagg.models.neural.ngm.method import FedNgm

LEVELS = ("none", "mild", "2")
OTHERS = {
    "ada": pd.DataFrame({"x": [0.3, -1.0], "g": ["mild", "2"], "y": [1.5, 30.0]}),
    "bea": pd.DataFrame({"x": [2.0, 1.0], "g": ["none", None], "y": [0.2, 1.0]}),
}


def job_of(**method: Any) -> Job:
    return parse_job({**ngm_job(), "method": {"name": "fedngm", **method}})


def expected(x: float, g: str, y: float) -> float:
    """The log pseudo-likelihood of a record: x and log y are normal given g."""
    level, log_y = LEVELS.index(g), math.log(y)
    of_x, of_y = norm.logpdf(x, MEANS[0], SDS[0]), norm.logpdf(log_y, MEANS[1], SDS[1])
    joint = np.log(SHARES) + of_x + of_y
    of_g = joint[level] - np.logaddexp.reduce(joint)
    return float(of_x[level] + of_y[level] - log_y + of_g)  # the density of y itself


def test_the_metric_is_the_mean_over_complete_records_of_all_sites() -> None:
    network = read_network(parse_job(ngm_job()), ngm_result())
    assert network is not None
    rows = [(0.3, "mild", 1.5), (-1.0, "2", 30.0), (2.0, "none", 0.2)]
    mean = np.mean([expected(*row) for row in rows])
    assert predictions(network, OTHERS) == {
        "neg_log_pl": pytest.approx(-mean, rel=1e-6)
    }  # variances have 1e-6 more


def test_without_other_records_there_is_no_metric() -> None:
    network = read_network(parse_job(ngm_job()), ngm_result())
    assert network is not None
    assert predictions(network, {}) == predictions(network, {"a": OTHERS["bea"][1:]}) == {}


def test_only_models_with_probabilities_are_read() -> None:
    assert read_network(job_of(network="paper"), ngm_result()) is None
    moments = {"name": "moments", "analyses": [{"kind": "describe"}]}
    assert read_network(parse_job({**ngm_job(), "method": moments}), ngm_result()) is None


def test_the_edges_of_a_network_have_no_direction() -> None:
    graph = read_graph(ngm_result().summary, TableKind.NETWORK)
    assert graph is not None and not graph.directed.any()
    assert graph.markov  # so it is compared with a truth's moral graph
    assert graph.undirected.tolist() == [[False, True, False], [True, False, True],
                                         [False, True, False]]  # fmt: skip


def test_a_graph_that_the_job_gives_is_no_result() -> None:
    assert not graph_is_given(make_method(job_of().method))
    assert graph_is_given(make_method(job_of(edges="all").method))
    assert graph_is_given(make_method(job_of(edges=[["x", "g"]]).method))


def test_a_network_is_measured_on_other_records_or_by_its_graph() -> None:
    same, drawn = Records(draw="same"), Records()
    assert not is_measured(job_of(edges="all"), same)
    assert is_measured(job_of(edges="all"), drawn) and is_measured(job_of(), same)


def test_one_site_alone_has_the_only_vote() -> None:
    facts = PublicFacts((), ("x",), 10, ("a", "b", "c"))
    method, alone = at_one_site(FedNgm(votes=3), facts)
    assert isinstance(method, FedNgm) and (method.votes, alone.sites) == (1, ("a",))


def test_only_fedngm_can_be_without_edges() -> None:
    job = without_edges(job_of(edges="all"))
    assert job is not None and make_method(job.method) == FedNgm(edges=())
    other = parse_job({**ngm_job(), "method": {"name": "fedngr"}})
    assert without_edges(other) is None
