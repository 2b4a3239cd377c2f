"""What to do about a refusal, for each rule of a site's policy; the text stays at the site."""

from __future__ import annotations

from collections.abc import Mapping

WITH_NOISE = (
    "a job with [privacy]. It needs a [budget] or a profile in the site's policy, and only this "
    "budget limits it, because the rules on records then do not apply."
)
ADVICE: Mapping[str, str] = {
    "effective_records": "Predictors almost separate the outcomes. Leave out the one that does.",
    "methods": "Take a method that the policy allows, or ask its owner: `methods` in "
    "SITE.policy.toml. Once this key is set, all other methods are refused.",
    "exact_numbers": "`secagg plan` shows how many records a site needs. Set fewer rounds, or use "
    "fewer columns, or method moments. The policy sets the limit: max_exact_share in "
    "SITE.policy.toml.",
    "batch": "Leave method.batch out, or set a larger one.",
    "participation": "Leave method.participation out, so that all sites take part in each round.",
    "held_out": "Set another share in the job: 0, or one that holds out enough records.",
    "max_clipped_share": "Check the bounds and the unit of the column, in the job and in the file.",
    "max_levels": "Merge levels, or leave the column out.",
    "max_leverage": "Leave out a column that is nearly a combination of others, that has a few "
    "very large values, or that almost separates the outcomes.",
    "min_cell_records": "Set release.min_cell_records in the job.",
    "min_level_sites": "Set release.min_level_sites in the job.",
    "min_level_records": "Leave the column out, or merge levels in the files of all sites. Or run "
    + WITH_NOISE,
    "constant_columns": "Leave the column out. Or run " + WITH_NOISE,
    "dominance": 'Declare transform = "log", or lower the upper bound. Or run ' + WITH_NOISE,
    "max_parameters_ratio": "Use fewer columns; in a network also fewer hidden units or edges.",
    "min_residual_dof": "Use fewer columns.",
    "budget": "Lower privacy.epsilon or privacy.delta, or ask the policy's owner.",
    "budget.set": "The policy's owner decides how much all jobs with noise may tell: [budget], or "
    "a profile, which sets one.",
    "budget.unit": "Set privacy.person to the column that names persons, or leave it out.",
    "cohorts": "Run again with the sites of an earlier release (sites.names). Do not delete "
    "ledgers: others hold the earlier sums.",
    "delta": "Lower privacy.delta.",
    "keys.coordinators": "Run with --key FILE and the key that the policy lists.",
    "person": "Set privacy.person to the column that the policies name. A policy that names none "
    "allows no privacy.person_pinned.",
    "questions": "To try settings on records that are all yours, use secagg.simulate, which keeps "
    "no ledger. Or run " + WITH_NOISE,
    "refusals": "Find mistakes with `secagg site check`, which sends nothing. The site can raise "
    "max_refusals in its policy, SITE.policy.toml. Or run " + WITH_NOISE,
    "unreleased": "Repeat one of the earlier jobs. The site can raise max_unreleased in its "
    "policy, SITE.policy.toml. Or run " + WITH_NOISE,
}
