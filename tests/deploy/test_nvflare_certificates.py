"""How long certificates of startup kits are valid, and when a site is warned."""

import subprocess
import sys
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
from secagg.sessions.homes.home import Home

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
def test_the_pages_own_project_makes_certificates_of_five_years(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md").read_text("utf-8")
    project = page.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "project.yml").write_text(project, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "nvflare.lighter.provision", "-p", "project.yml", "-w", "kits"],
        check=True, stdout=subprocess.DEVNULL, cwd=tmp_path,
    )  # fmt: skip
    found = {
        str(path.relative_to(tmp_path)): x509.load_pem_x509_certificate(
            path.read_bytes()
        ).not_valid_after_utc
        for path in (tmp_path / "kits").rglob("*.crt")
    }
    assert len(found) >= 5
    for name, ends in found.items():
        assert ends > datetime.now(UTC) + timedelta(days=1820), name
