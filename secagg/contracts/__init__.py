"""The contracts of secagg: read this file first.

A federated method is a loop in which the coordinator needs only *sums over sites* of small named
arrays. So there are three things to plug together, and one rule for all of them:

* a `Method` says what each site contributes and what the coordinator does with the sum;
* a `SecureSum` computes that sum so that nobody sees a single contribution;
* an `Engine` carries bytes between the parties.

The rule: methods and protocols do no input or output and hide nothing. Each step is a function
(state, inputs) -> (state, outputs); state is plain data (what `secagg.core.encoding` can encode),
so that any engine may stop and resume between any two steps, and a test may replay them.

One secure sum, in the order that is fixed for every method and protocol::

    SITE      Method.local -> codec.encode (clip to bounds, fixed point) -> site policy -> SecureSum
    ...       SecureSum phases, routed through the coordinator; whoever holds keys or shares checks
              the release rules before anything is opened
    COORD.    release logged on disk -> codec.decode -> Method.server -> next message, or the result
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
    HasSiteResult,
    Method,
    RecordCount,
    Result,
)
from secagg.contracts.protocol import (
    Ask,
    Capabilities,
    Context,
    Engine,
    Phase,
    Ready,
    SecureSum,
    Shape,
    Total,
)

__all__ = [
    "COLLECTED_DRAWS",
    "Ask",
    "BatchedLocal",
    "Body",
    "Capabilities",
    "Context",
    "Engine",
    "Field",
    "HasSiteResult",
    "Kind",
    "Method",
    "Phase",
    "PublicFacts",
    "Ready",
    "RecordCount",
    "Result",
    "SecureSum",
    "Shape",
    "SiteRecords",
    "Spec",
    "Stage",
    "State",
    "Total",
    "Update",
    "Variable",
]
