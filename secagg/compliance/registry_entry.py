"""An entry for the Differential Privacy Deployments Registry, with the fields of its tier 3.

The names of the fields are those of the registry's template (opendp/deployments-registry-data,
tests/good_deployments/template.yaml, commit 057e5d8, 2026). Fields that only people know come from
the form; if it leaves them open, they are empty and listed in `to_fill_in`.
"""

from __future__ import annotations

from typing import Any

from secagg.compliance.evidence import AllEvidence, RunEvidence
from secagg.evidence.claims import limitations, noise
from secagg.evidence.numbers import listing


def registry_entries(evidence: AllEvidence) -> list[dict[str, Any]]:
    """Return an entry for each run with a guarantee that holds."""
    return [_entry(run, evidence) for run in evidence.runs if run.claims.holds]


def _entry(run: RunEvidence, evidence: AllEvidence) -> dict[str, Any]:
    facts, guarantee = run.facts, run.claims.guarantee
    form, terms = evidence.form, dict(noise.terms(run.claims, facts["job"]["privacy"]))
    at_sites = guarantee["placement"] == "site"
    columns = [f"{n} ({c['type']})" for n, c in facts["job"]["columns"].items()]
    open_gaps = {each.topic: each.text for each in limitations.unprotected(facts, run.claims)}
    deployment: dict[str, Any] = {
        "basic": {
            "name": facts["title"],
            "data_curators": [{"data_curator_name": form.purpose.controller,
                               "data_curator_type": form.registry.curator_type}],
            "description": facts["method"]["title"],
            "intended_use": form.purpose.purpose,
            "data_product_type": "Summary statistics",
            "data_product_region": form.registry.region,
            "data_product_sector": form.registry.sector,
            "publication_date": facts["finished"][:10],
        },
        "dp_variant": {
            "variant_name": "Approximate DP",
            "data_domain": f"Records with the columns {listing(columns)}, within public bounds.",
            "unprotected_quantities": open_gaps.get("What noise does not cover", "")
            or " ".join(open_gaps.values()),
        },
        "privacy_loss": {
            "privacy_unit": guarantee["unit"],
            "privacy_unit_details": f"{terms['Unit']}. {terms['Adjacency']}.",
            "number_of_privacy_units": 1,
            "privacy_parameters": {"epsilon": guarantee["epsilon"], "delta": guarantee["delta"]},
            "privacy_parameters_details": terms["ε and δ"],
        },
        "deployment_model": {
            "model_name": "Central" if at_sites else "Distributed",
            "model_name_details": terms["Placement"],
            "trust_assumptions": facts["protocol"]["in_numbers"],
            "actors": listing(sorted({party["role"] for party in facts["roster"]})),
            "release_type": "One release" if len(facts["releases"]) == 1 else "Many releases",
            "release_type_details": f"{len(facts['releases'])} sums in one run.",
            "data_source_type": "Static",
            "data_source_type_details": "Each site's records do not change during a run.",
            "access_type": "Non-interactive",
            "access_type_details": "The coordinator asks; the sites' rules decide.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": form.judgement.tuning,
            "mechanisms": f"{terms['Noise']}. {terms['Clipping of records']}.",
            "composition": f"{terms['Accountant']}. {run.claims.ledger.standing}",
            "post_processing": "All results are functions of the released sums.",
            "justification": form.judgement.epsilon,
            "utility": form.judgement.utility,
            "additional_information": f"secagg {facts['secagg']}, session {facts['session']}",
        },
    }  # fmt: skip
    missing = [
        f"{part}.{key}"
        for part, fields in deployment.items()
        for key, value in fields.items()
        if value == ""
    ]
    curator = deployment["basic"]["data_curators"][0]
    missing += [f"basic.data_curators.{key}" for key, value in curator.items() if value == ""]
    return {
        "url_slug": f"secagg-{facts['session'][:16]}",
        "deployment": {
            **deployment,
            "administrative": {
                "evidence_sources": {}, "status": "Draft", "registry_authors": [], "tier": 3,
            },
        },
        "to_fill_in": sorted(missing),
    }  # fmt: skip
