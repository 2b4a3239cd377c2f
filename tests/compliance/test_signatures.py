"""Signatures of a report."""

import json
from pathlib import Path

import pytest
from support.crashes.consortium import Consortium, remote_job

from secagg.compliance.report_folder import verify_report, write_report
from secagg.compliance.signatures import digest_of, sign_report
from secagg.core.identity import COORDINATOR, Identity, Role
from secagg.core.randomness import system_random
from secagg.errors import EvidenceError


def signed_report(report: Path, identity: Identity) -> Path:
    return sign_report(report, bytes.fromhex(verify_report(report).digest), identity)


def test_a_site_of_the_run_signs_with_the_key_of_the_roster(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path / "c", remote_job(release={"min_sites": 2, "min_records": 2}))
    made.lead()
    run = made.homes[COORDINATOR].folder / "runs" / "run"
    write_report(tmp_path / "report", [run])
    signed_report(tmp_path / "report", made.homes["north"].identity)
    stranger = Identity.generate("eve", Role.SITE, system_random)
    signed_report(tmp_path / "report", stranger)
    signed = {each.name: each.known for each in verify_report(tmp_path / "report").signed}
    assert signed == {"north": True, "eve": False}


def test_a_signature_of_another_report_is_refused(report: Path, written: Path) -> None:
    eve = Identity.generate("eve", Role.SITE, system_random)
    path = signed_report(report, eve)
    verify_report(report)
    path.write_text(path.read_text().replace('"name": "eve"', '"name": "ada"'))
    with pytest.raises(EvidenceError):
        verify_report(report)
    path.unlink()
    other = signed_report(report, eve)
    changed = json.loads(other.read_text())
    changed["signature"] = eve.sign(b"report").hex()
    other.write_text(json.dumps(changed))
    with pytest.raises(EvidenceError) as caught:
        verify_report(report)
    assert caught.value.where == "signatures/eve.json"


@pytest.mark.parametrize("key", ["role", "report", "comment", "key"])
def test_nothing_in_the_file_of_a_signature_can_be_changed(report: Path, key: str) -> None:
    path = signed_report(report, Identity.generate("eve", Role.SITE, system_random))
    changed = json.loads(path.read_text())
    changed[key] = {"role": "coordinator", "key": changed["key"].upper()}.get(key, "approved")
    path.write_text(json.dumps(changed, indent=1) + "\n")
    with pytest.raises(EvidenceError):
        verify_report(report)


def test_a_report_that_changed_after_it_was_verified_is_not_signed(report: Path) -> None:
    digest = bytes.fromhex(verify_report(report).digest)
    (report / "report.json").write_text("{}")
    sign_report(report, digest, Identity.generate("eve", Role.SITE, system_random))
    (path,) = (report / "signatures").iterdir()
    assert json.loads(path.read_text())["report"] == digest.hex() != digest_of(report).hex()
