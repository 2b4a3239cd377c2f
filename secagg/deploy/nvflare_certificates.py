"""How long the certificates of NVFLARE's startup kits are valid: set it, read it, warn in time.

NVFLARE's own builder has a setting for the root certificate only. The certificates of server,
clients and administrators end after 360 days, whatever it says; then no party can connect. In
project.yml, `CertBuilder` of this module replaces it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from nvflare.lighter.impl.cert import CertBuilder as NvflareCertBuilder


class CertBuilder(NvflareCertBuilder):
    """Makes all certificates of a consortium, valid for the same number of days.

    valid_days: of the root and of all others; none ends after the root
    """

    def __init__(self, valid_days: int = 1825) -> None:
        super().__init__(root_valid_days=valid_days)

    def _generate_cert(self, *subject: Any, ca: bool = False, **settings: Any) -> Any:
        if not ca:
            end = datetime.now(UTC) + timedelta(days=self.root_valid_days)
            settings["not_valid_after"] = min(end, self.root_cert.not_valid_after_utc)
        return super()._generate_cert(*subject, ca=ca, **settings)
