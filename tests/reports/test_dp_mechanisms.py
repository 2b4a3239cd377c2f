"""The terms of a guarantee are those of the code."""

from fractions import Fraction

from support.runs.reports import noised_run, private_job

from secagg.evidence.claims.noise import terms
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import parse_job


def test_the_scale_of_records_is_that_of_the_design_matrix() -> None:
    run = noised_run("sum")
    scale = dict(terms(PrivacyClaims.of(run.facts), run.facts["job"]["privacy"]))[
        "Scale of records"
    ]
    variables = public_facts(parse_job(private_job("sum")), ("a", "b", "c")).variables
    (level,) = {Fraction(v.max_abs) for v in variables if v.indicator}
    (continuous,) = {Fraction(v.max_abs) for v in variables if not v.indicator}
    assert f"to [−{continuous}, {continuous}]" in scale and f"to −{level} or {level}" in scale
