"""Any torch module, trained over sites by FedSGD or FedAvg.

The rounds are those of `secagg.models.neural.rounds`; the module and its loss those of
`secagg.models.neural.module_learner`. Inputs and a continuous outcome are scaled to [-1, 1] by the
columns' public bounds.

What the transcript determines (Guarantees: only this)
    * "fedsgd": every sum is the gradient of the pooled loss at parameters that the coordinator
      chose, the loss there, and the number of records. Sites keep no state, so the sums show
      nothing about how records are split over sites. About the pooled records they may show
      everything: with P parameters and T rounds there are P T numbers. Differences of sums show no
      record by a jump or kink, because functions without noise are smooth
      (`secagg.models.neural.layers.smoothness`).
    * "fedavg": sums over sites of what training at a site does to the parameters. They may depend
      on how records are split.
    * A coordinator that deviates can send parameters at which one hidden unit is active for one
      record only. Its gradient then shows this record (Fowl and others, ICLR 2022, "Robbing the
      Fed"), and a secure sum does not prevent this. Noise does.

=======================================  ===========================================================
case                                     result
=======================================  ===========================================================
a site without a complete record         weight 0; the result is that of the other sites
no site with a complete record           `DataError`
a loss or gradient that is not finite    `DataError` at the site, nothing is sent
parameters that are not finite           `PeerError`, nothing is sent
a module with BatchNorm or Dropout       `JobError`, before data is read
with noise, a layer that Opacus refuses  `JobError` that names the replacement, before data is read
opacus not installed, noise, own module  `JobError` with the command that installs it
absolute error, ReLU, without noise      `JobError`, before data is read
a parameter above 30, without noise      `PeerError`; at the coordinator, `DataError` before that
torch not installed                      `JobError` with the command that installs it
=======================================  ===========================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from secagg.contracts import (
    ANY_MESSAGE,
    Body,
    Disclosure,
    DisclosureKind,
    MethodFacts,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SiteRecords,
    Stage,
    State,
    TableKind,
    Update,
)
from secagg.contracts.noise import Placement, Placements
from secagg.core.hash_chain_log import canonical_json
from secagg.core.randomness import RandomBytes
from secagg.errors import JobError
from secagg.models.common.variables import choose
from secagg.models.neural.module_learner import Loss, ModuleLearner, module_learner
from secagg.models.neural.rounds import TRAIN, NetworkRounds, Penalty, network_facts, no_penalty
from secagg.models.neural.torch_import import require_torch

BUILT_IN = ("secagg.models.neural.built_in:mlp",)
"""Factories that come with secagg."""
_LABELS = {
    "loss": ("Loss", "mean over all records; with adam and sgd, before the last step"),
    "parameters": ("Parameters", "numbers that the network has"),
    "rounds": ("Rounds", ""),
    "shortened_updates": ("Shortened updates", "updates of sites that were clipped, of all rounds"),
}


@dataclass(frozen=True, kw_only=True)
class TorchModule(NetworkRounds):
    """A torch module that predicts one column from others."""

    outcome: str
    """The column to predict."""
    predictors: tuple[str, ...] | None = None
    """The columns that the network reads. If it is not set, all columns but the outcome."""
    module: str = BUILT_IN[0]
    """`package.module:factory`: a function `factory(inputs, outputs, **module_settings)` that
    returns a torch.nn.Module. It must be installed at every site. The default is a multilayer
    perceptron."""
    module_settings: Mapping[str, Any] | None = None
    """Further arguments of the factory. The default: `hidden = [20]` and `activation = "tanh"`."""
    loss: Loss | None = None
    """The loss of one record: `"squared_error"` (half of the square; default for a continuous
    outcome), `"pseudo_huber"` (robust: residuals beyond an eighth of the outcome's range count
    linearly), `"absolute_error"` (with noise only), or `"cross_entropy"` (for a binary or
    categorical outcome)."""

    replace_layers: bool = False
    """Whether layers that cannot be trained with noise are replaced by those that Opacus has for
    them, such as BatchNorm by GroupNorm. It also works without noise."""

    name: ClassVar[str] = "torch_module"
    placements: ClassVar[Placements] = Placements(
        (Placement.ROUND,), "Gradients are clipped in every step."
    )
    title: ClassVar[str] = "Neural network"

    @property
    def disclosure(self) -> Disclosure:
        if self.algorithm == "fedsgd":
            kind, text = DisclosureKind.POOLED, (
                "The gradient of the pooled loss at the parameters of every round: for a network "
                "with P parameters, P numbers in each round. They do not show how records are "
                "split over sites, but may show much about the pooled records."
            )  # fmt: skip
        else:
            kind, text = DisclosureKind.SITES, (
                "How training at a site changes the network's parameters, on average over the "
                "sites, in every round. This may depend on how records are split over sites."
            )  # fmt: skip
        single = (
            " It can choose parameters at which the gradient is that of one record (Fowl and "
            "others 2022). The protocol does not prevent this; noise does."
        )
        attacks = ("largest_record",) if self.algorithm == "fedsgd" else ()
        return Disclosure(kind, text, f"{ANY_MESSAGE}{single}", attacks=attacks)

    @property
    def facts(self) -> MethodFacts:
        """A network, which may be one that does not come with secagg."""
        return network_facts(
            type(self).__module__,
            repeatable=self.algorithm == "fedsgd",
            named_code=() if self.module in BUILT_IN else (self.module,),
        )

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title, TableKind.NETWORK, _LABELS),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Declare the rounds. Builds the module, which needs torch."""
        self.check_rounds(public)
        require_torch(self.name)
        if not self.noised(public):
            own = "_settings" if self.module in BUILT_IN else ""
            self.learner(public).check_smooth(f"method.module{own}")
        elif self.module not in BUILT_IN:
            self.learner(public).check_layers()
        return (self.train_stage(self.learner(public).blocks.size, public),)

    def initial_state(self, public: PublicFacts) -> State:
        start = self.learner(public).initial(self.seed)
        return self.begin_training(start, public.max_rows, public.clip is not None)

    def next_request(self, state: State) -> tuple[str, Body] | None:
        return None if "ended" in state else (TRAIN, {"theta": state["optimiser"]["point"]})

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        learner = self.learner(public)
        return self.train_contribution(learner, rows.values, message, public, random), memory

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        return self.advance_training(state, total)

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the parameters, by block, and the losses by round."""
        theta, blocks = state["optimiser"]["best"], self.learner(public).blocks
        summary = {
            "method": self.name,
            "outcome": self.outcome,
            "predictors": [public.variables[i].name for i in self.learner(public).predictors],
            "parameters": blocks.size,
            **self.training_summary(state),
        }
        return Result(summary, dict(blocks.split(theta)))

    def network_in(self, state: State, public: PublicFacts) -> tuple[ModuleLearner, Penalty]:
        """Return what a state trains, and its penalty."""
        return self.learner(public), no_penalty

    def learner(self, public: PublicFacts) -> ModuleLearner:
        """Return the module and its loss. Raises `JobError` if they do not fit the columns."""
        outcome = choose(public, [self.outcome], "method.outcome")
        names = self.predictors
        if names is None:
            names = tuple(column for column in public.columns if column != self.outcome)
        chosen = choose(public, names, "method.predictors", other_than=self.outcome)
        indicator = public.variables[outcome[0]].indicator
        loss = self.loss or ("cross_entropy" if indicator else "squared_error")
        if (loss == "cross_entropy") != indicator:
            kind = "binary or categorical" if indicator else "continuous"
            raise JobError("method.loss", f"{loss!r} does not fit, because the outcome is {kind}")
        try:
            settings = canonical_json(self.module_settings or {})
        except TypeError:  # TOML has dates
            what = "has a value that is no text, number, list or table"
            raise JobError("method.module_settings", what) from None
        return module_learner(
            self.module,
            settings,
            tuple(chosen.tolist()),
            tuple(outcome.tolist()),
            loss,
            self.replace_layers,
        )
