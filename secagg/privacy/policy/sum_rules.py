"""Two rules on exact sums: enough records must carry each one, and jobs release limited numbers.

A site applies them when it has computed its contribution. It refuses a sum that depends on few
records (rule `effective_records`), and a sum with which the exact numbers of all jobs together
would exceed their limit (rule `max_exact_share`).
"""

from __future__ import annotations

from secagg.contracts import Body, MethodFacts, PublicFacts, SiteRecords, Spec
from secagg.privacy.policy.contribution import ContributionRequest
from secagg.privacy.policy.guard import Guard


def check_sum(
    guard: Guard, facts: MethodFacts, rows: SiteRecords, public: PublicFacts,
    contribution: ContributionRequest, spec: Spec, message: Body, answered: tuple[Body, ...],
) -> tuple[Body, ...]:  # fmt: skip
    """Refuse a sum that depends on few records, or one exact number too many: `PolicyRefusal`.

    answered: the messages that the site has answered in the session. An earlier process may have
        answered them, so their weights are computed again where the guard does not have them
    Returns the messages with this one.
    """
    weights_of, columns_of = facts.weights, facts.weighted_columns
    if guard.calibrated is None and callable(weights_of) and columns_of is not None:
        for earlier in answered[len(guard.weights) :]:
            guard.weights.add(weights_of(rows, earlier, public))
        weights, columns = weights_of(rows, message, public), columns_of(rows, public)
        guard.check_weights(contribution, weights, columns, rows)
        answered = (*answered, message)
    guard.count_numbers(contribution, spec, message)
    return answered
