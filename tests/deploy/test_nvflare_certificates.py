"""How long certificates of startup kits are valid, and when a site is warned."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding

from secagg.core.identity import COORDINATOR, Role
from secagg.core.randomness import system_random
from secagg.deploy.nvflare_kit import WARN_DAYS, kit_certificate
from secagg.runtime.homes.home import Home

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def certificate(days: float) -> bytes:
    key, name = generate_private_key(SECP256R1()), x509.Name([])
    made = x509.CertificateBuilder(
        name, name, key.public_key(), 1,
        NOW - timedelta(days=400), NOW + timedelta(days=days),
    )  # fmt: skip
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


@pytest.mark.parametrize(
    ("days", "said"),
    [(-1, "has ended"), (0.5, "in 0 days"), (WARN_DAYS - 1, "in 59 days"), (WARN_DAYS, "")],
)
def test_a_home_warns_before_its_certificate_ends(tmp_path: Path, days: float, said: str) -> None:
    home = Home.create(tmp_path / "home", COORDINATOR, Role.COORDINATOR, system_random)
    assert kit_certificate(home, NOW) is None
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    (tmp_path / "kit" / "startup" / "server.crt").write_bytes(certificate(days))
    (home.folder / "kit.txt").write_text(f"{tmp_path / 'kit'}\n")
    found = kit_certificate(home, NOW)
    assert found is not None and said in found.warning
    assert bool(found.warning) == (days < WARN_DAYS)
    assert not said or "secagg site kit" in found.warning


@pytest.mark.nvflare
def test_all_certificates_of_a_consortium_are_valid_as_long_as_asked(tmp_path: Path) -> None:
    from nvflare.lighter.entity import Project  # noqa: PLC0415
    from nvflare.lighter.provisioner import Provisioner  # noqa: PLC0415

    from secagg.deploy.nvflare_certificates import CertBuilder  # noqa: PLC0415

    project = Project(
        name="consortium", description="",
        participants=[
            {"name": "server", "type": "server", "org": "coordinator"},
            {"name": "admin@example.org", "type": "admin", "org": "c", "role": "project_admin"},
            {"name": "cork", "type": "client", "org": "cork"},
        ],
    )  # fmt: skip
    from nvflare.lighter.impl.workspace import WorkspaceBuilder  # noqa: PLC0415

    Provisioner(str(tmp_path), [WorkspaceBuilder(), CertBuilder(1825)]).provision(project)
    found = {
        path.name: x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
        for path in tmp_path.rglob("*.crt")
    }
    assert {"client.crt", "server.crt", "rootCA.pem"} - set(found) <= {"rootCA.pem"}
    for name, ends in found.items():
        assert ends > datetime.now(UTC) + timedelta(days=1820), name
