"""A released network: the losses of records at its parameters, and the same method on others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from secagg.audits.deployment import session_with_sites
from secagg.audits.views import View
from secagg.contracts import RecordCount, Result, SiteRecords
from secagg.core.arrays import Array
from secagg.core.randomness import seeded_random
from secagg.models.neural.gradients import record_losses
from secagg.models.neural.learner import Learner
from secagg.models.neural.ngm.layout import ngm_layout
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.ngm.revealer import FedNgr, refitted
from secagg.models.neural.ngm.shared_network import SharedNetwork
from secagg.models.neural.rounds import NetworkRounds
from secagg.models.neural.torch_module import TorchModule

if TYPE_CHECKING:
    from secagg.sessions.planned_job import Planned


def network_of(planned: Planned, result: Result) -> Learner | None:
    """Return the network of a result, of `fedngr` the refitted one; None if it has none."""
    method, public, arrays = planned.method, planned.public, _arrays(planned, result)
    if isinstance(method, TorchModule):
        return method.learner(public)
    if not isinstance(method, FedNgm | FedNgr):
        return None
    layout = ngm_layout(public, method.variables)
    centre, scale = arrays["centre"], arrays["scale"]
    if isinstance(method, FedNgr):
        if not method.refit:
            return SharedNetwork(layout, method.hidden, centre, scale)
        method = method.networks
    if method.network == "paper":
        return SharedNetwork(layout, method.hidden, centre, scale)
    curved = arrays["curved"].astype(np.bool_) if "curved" in arrays else None
    graph = arrays["graph"].astype(np.bool_)
    return MaskedNetwork(layout, method.hidden, graph, centre, scale, curved=curved)


def _arrays(planned: Planned, result: Result) -> Mapping[str, Array]:
    """Return the arrays of that network."""
    method = planned.method
    if isinstance(method, FedNgr) and method.refit:
        return refitted(result.arrays)
    return result.arrays


def losses(planned: Planned, result: Result, records: Array) -> Array:
    """Return the loss of each record at the parameters of a result."""
    network = network_of(planned, result)
    assert network is not None
    return record_losses(network, network.blocks.join(_arrays(planned, result)), records)


def training_work(view: View, records: float) -> float:
    """Return how many gradients of single records `trained_on` computes, at 2 to 13 microseconds.

    With noise, each is clipped alone, which takes as long as 10. A round takes as long as 250
    records at each site, at least.
    """
    method, public, K = view.planned.method, view.planned.public, len(view.sites)
    assert isinstance(method, NetworkRounds | FedNgr)
    if isinstance(method, FedNgr):
        refit = method.networks.most_rounds(noised=False) if method.refit else 0
        rounds = method.rounds + refit
    else:
        rounds = method.most_rounds(noised=method.noised(public))
        rounds *= method.epochs if method.algorithm == "fedavg" else 1
        records *= method.sampling_rate
    if isinstance(method, FedNgm) and method.learn_from == "samples":
        records += method.samples * K
    return rounds * max(records * (1 if public.clip is None else 10), 250 * K)


def trained_on(view: View, records: Array, rng: np.random.Generator) -> Result:
    """Return the result of the view's method on these records, with its noise.

    Records are dealt to the sites at random, in equal numbers.
    """
    method, public, K = view.planned.method, view.planned.public, len(view.sites)
    dealt = rng.permutation(len(records)) % K
    sites = {
        site: SiteRecords(records[dealt == k], 0, np.zeros(len(public.columns)), site=site)
        for k, site in enumerate(view.sites)
    }
    ask = session_with_sites(view.planned, sites, seeded_random(rng.bytes(32)))
    state = method.initial_state(public)
    while (request := method.next_request(state)) is not None:
        state = method.aggregate(state, ask(*request), K)
    return method.result(state, public, RecordCount(float(len(records)), 0.0))
