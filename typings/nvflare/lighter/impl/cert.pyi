# What secagg uses of NVIDIA FLARE's provisioner (2.9).
from datetime import datetime
from typing import Any

class _Certificate:
    not_valid_after_utc: datetime

class CertBuilder:
    root_valid_days: int
    root_cert: _Certificate
    def __init__(self, root_valid_days: int = ...) -> None: ...
    def _generate_cert(self, *subject: Any, ca: bool = ..., **settings: Any) -> Any: ...
