"""One cell of an experiment: each site alone with Opacus' DP-SGD, beside a network with noise.

The same drawn records, network, steps, clip, optimiser, epsilon and delta as in the run with this
seed, with noise for each site alone instead of noise in the sum
(`secagg.models.neural.opacus_training`). No sum leaves a site.
"""

from __future__ import annotations

import numpy as np

from secagg.contracts import Method, PublicFacts, RecordCount, Result
from secagg.contracts.noise import Adjacency, Placement
from secagg.core.arrays import Array
from secagg.core.threads import single_threaded_blas
from secagg.errors import DataError, InternalError
from secagg.experiments.reference import Reference
from secagg.experiments.runner.types import Numbers, Settings
from secagg.jobs.job import Job
from secagg.jobs.privacy import Privacy
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.opacus_training import train_with_opacus
from secagg.models.neural.torch_module import TorchModule
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

RUN = "run"
LINE = "each site alone with Opacus"


def can_train_alone(method: Method, privacy: Privacy) -> bool:
    """Return whether Opacus can train the network: it protects adding or removing a record."""
    return (
        isinstance(method, TorchModule | FedNgm)
        and privacy.placement is Placement.ROUND
        and privacy.adjacency is Adjacency.ADD_REMOVE
        and privacy.person is None
    )


@single_threaded_blas()
def compute(settings: Settings) -> Numbers:
    """Return the means of the metrics over the sites, and the epsilon that Opacus states.

    settings: as for `secagg.experiments.one_run`
    """
    shared = ("reference", "place", "measure", "records")
    reference = Reference.of(*(str(settings[name]) for name in shared))
    reference.check(str(settings["digest"]))
    seed = int(settings["seed"])
    drawn = reference.draw(seed)
    job = Job.model_validate_json(str(settings["job"]))
    planned = plan_job(job, drawn.tables)
    method, privacy, each_site = planned.method, job.privacy, list[dict[str, float]]()
    if not isinstance(method, TorchModule | FedNgm) or not (privacy.epsilon and privacy.delta):
        raise InternalError("experiments", "Opacus is asked to train something else")
    state = method.initial_state(planned.public)
    learner, penalty = method.network_in(state, planned.public)
    for number, source in enumerate(planned.sources.values()):
        values = read_records(planned, source).values
        theta, spent = train_with_opacus(
            learner, values, method, epsilon=privacy.epsilon, delta=privacy.delta,
            seed=seed * len(planned.sources) + number, penalty=penalty,
        )  # fmt: skip
        result = _result(method, planned.public, theta, len(values))
        found = reference.metrics(reference.found(planned, result), drawn)
        each_site.append({**found, "epsilon": spent})
    if not each_site:
        raise DataError("records", "there is no site")
    shared_names = set.intersection(*map(set, each_site))
    means = {name: float(np.mean([m[name] for m in each_site])) for name in sorted(shared_names)}
    return {RUN: {**means, "rounds": 0.0, "bytes sent by each site": 0.0}}


def _result(
    method: TorchModule | FedNgm, public: PublicFacts, theta: Array, records: int
) -> Result:
    """Return the method's result with these parameters."""
    state = method.initial_state(public)
    training = state.get("training", state)
    ended = {
        **training, "optimiser": {**training["optimiser"], "best": theta},
        "rounds": method.most_rounds(noised=True), "ended": "finished",
    }  # fmt: skip
    state = {**state, "training": ended} if "training" in state else ended
    return method.result(state, public, RecordCount(records, 0.0))
