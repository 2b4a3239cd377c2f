"""The interfaces of secagg. To read the source code, begin with this file.

A federated method works in rounds. In each round, every site computes a few named arrays, and the
coordinator receives only their *sum over the sites*. The arrays of one site are its contribution.
There are three interfaces:

* A `Method` defines what each site contributes and what the coordinator does with the sum.
* A `SecureSum` protocol computes that sum so that nobody sees the contribution of a single site.
* An `Engine` carries messages between the parties, which are the sites and the coordinator.

Methods and protocols neither read nor write files, and they keep no hidden state. Each step is a
function (state, inputs) -> (state, outputs). The state is plain data, which
`secagg.core.canonical_encoding` can encode. So a run can be stopped between any two steps and
resumed there, and a test can repeat any step.

Every secure sum follows these steps, whatever the method and the protocol::

    at each site
        1. the site's policy allows or refuses the request
        2. Method.contribute computes the contribution
        3. fixed_point.encode clips the contribution to its bounds and rounds it to fixed point
        4. the release is written to the site's ledger, and noise is added if the job requires it
    between the parties
        5. the SecureSum protocol exchanges messages, which the coordinator relays; before a sum
           is opened, the parties that hold keys or shares check the release rules
    at the coordinator
        6. the release is written to the log on disk
        7. fixed_point.decode turns the whole numbers back into reals
        8. Method.aggregate returns the coordinator's next state

The first sum of every run counts records. It follows the same steps without the method.
"""

from __future__ import annotations

from secagg.contracts.data import (
    LEAST_SPREAD_OF_LEVEL,
    Body,
    Field,
    Kind,
    LocalTraining,
    NoisyMatrix,
    ProtocolState,
    PublicFacts,
    SiteRecords,
    Spec,
    Stage,
    State,
    Update,
    Variable,
)
from secagg.contracts.facts import (
    NO_WINDOWS,
    AskedRegression,
    ChosenWeights,
    EdgeRule,
    EqualWeights,
    FirstOrder,
    IntegerNoise,
    MethodFacts,
    MomentsOnly,
    RecordWeights,
    Regression,
    SingleRecords,
    Train,
    WeightedColumns,
    Windows,
)
from secagg.contracts.family import (
    MAX_PREDICTOR,
    Family,
    FisherLaw,
    Outcome,
    OutcomeRange,
    TermBounds,
)
from secagg.contracts.method import COLLECTED_DRAWS, Method, facts_of
from secagg.contracts.protocol import (
    Capabilities,
    Context,
    Engine,
    Phase,
    PhaseRequest,
    Ready,
    SecureSum,
    Shape,
    Total,
)
from secagg.contracts.reporting import (
    ANY_MESSAGE,
    ASKED_ONCE,
    TRUSTED,
    Disclosure,
    DisclosureKind,
    Label,
    RecordCount,
    Result,
    ResultTable,
    TableKind,
)
from secagg.core.arrays import Array

__all__ = [
    "ANY_MESSAGE",
    "ASKED_ONCE",
    "COLLECTED_DRAWS",
    "LEAST_SPREAD_OF_LEVEL",
    "MAX_PREDICTOR",
    "NO_WINDOWS",
    "TRUSTED",
    "Array",
    "AskedRegression",
    "Body",
    "Capabilities",
    "ChosenWeights",
    "Context",
    "Disclosure",
    "DisclosureKind",
    "EdgeRule",
    "Engine",
    "EqualWeights",
    "Family",
    "Field",
    "FirstOrder",
    "FisherLaw",
    "IntegerNoise",
    "Kind",
    "Label",
    "LocalTraining",
    "Method",
    "MethodFacts",
    "MomentsOnly",
    "NoisyMatrix",
    "Outcome",
    "OutcomeRange",
    "Phase",
    "PhaseRequest",
    "ProtocolState",
    "PublicFacts",
    "Ready",
    "RecordCount",
    "RecordWeights",
    "Regression",
    "Result",
    "ResultTable",
    "SecureSum",
    "Shape",
    "SingleRecords",
    "SiteRecords",
    "Spec",
    "Stage",
    "State",
    "TableKind",
    "TermBounds",
    "Total",
    "Train",
    "Update",
    "Variable",
    "WeightedColumns",
    "Windows",
    "facts_of",
]
