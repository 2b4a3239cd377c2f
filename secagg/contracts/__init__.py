"""The interfaces of secagg: read this file first.

A federated method is a loop in which the coordinator needs only *sums over sites* of small named
arrays. There are three interfaces:

* a `Method` defines what each site contributes and what the coordinator does with the sum;
* a `SecureSum` protocol computes that sum so that nobody sees a single contribution;
* an `Engine` carries bytes between the parties.

Methods and protocols do no input or output and keep no hidden state. Each step is a function
(state, inputs) -> (state, outputs). State is plain data (that `secagg.core.encoding` can encode),
so an engine can stop and resume between any two steps, and a test can replay them.

One secure sum, in the order that is fixed for every method and protocol::

    SITE         Method.contribute -> codec.encode (clip to bounds, fixed point) -> site policy
                 -> SecureSum phases, relayed by the coordinator; the parties that hold keys or
                 shares check the release rules before they open a sum
    COORDINATOR  release logged on disk -> codec.decode -> Method.aggregate -> message or result
"""

from __future__ import annotations

from secagg.contracts.data import (
    Body,
    Field,
    Kind,
    PublicFacts,
    SiteRecords,
    Spec,
    Stage,
    State,
    Update,
    Variable,
)
from secagg.contracts.method import (
    COLLECTED_DRAWS,
    BatchedLocal,
    ExplainsUnknown,
    HasSiteResult,
    Method,
    OneRegression,
    RecordCount,
    Result,
)
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
    ResultTable,
    TableKind,
)

__all__ = [
    "ANY_MESSAGE",
    "ASKED_ONCE",
    "COLLECTED_DRAWS",
    "TRUSTED",
    "BatchedLocal",
    "Body",
    "Capabilities",
    "Context",
    "Disclosure",
    "DisclosureKind",
    "Engine",
    "ExplainsUnknown",
    "Field",
    "HasSiteResult",
    "Kind",
    "Label",
    "Method",
    "OneRegression",
    "Phase",
    "PhaseRequest",
    "PublicFacts",
    "Ready",
    "RecordCount",
    "Result",
    "ResultTable",
    "SecureSum",
    "Shape",
    "SiteRecords",
    "Spec",
    "Stage",
    "State",
    "TableKind",
    "Total",
    "Update",
    "Variable",
]
