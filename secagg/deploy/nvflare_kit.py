"""Settings of an NVIDIA FLARE startup kit that keep a party's records and keys to itself.

A kit as provisioned allows what secagg does not need. `harden` writes into the kit's `local`
folder, which belongs to the party and is not signed by the provisioner:

* Only the four classes of `secagg.deploy.nvflare_job` can be named by a job, and no job may bring
  code of its own (`byoc`), for no role.
* Log streaming to the server is off: NVFLARE's logs have file names and texts of errors.
* Of NVFLARE's own calls, only warnings are logged.
* Jobs and snapshots of the server are stored in the home, and not in a folder that all users of the
  computer share.
* The file `secagg.home` names the party's home.

Not protected: a party whose kit is used without these settings. Then code that the server sends
could run at the party, and read all that its user can read. `check_kit` says whether they are set.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.x509 import load_pem_x509_certificate

from secagg.core.identity import COORDINATOR
from secagg.core.private_files import write_private
from secagg.deploy.nvflare_job import CLASSES
from secagg.errors import PolicyRefusal, UsageError
from secagg.sessions.homes.home import Home

HOME_FILE = "secagg.home"
RUN_FOLDER = "secagg_run"
"""The run in the result that an administrator downloads."""
_KIT_FILE = "kit.txt"
"""In the home: the kit that was set up for it."""
WARN_DAYS = 60
"""Days before a certificate ends, from which on `secagg site check` warns."""
_RESOURCES, _RULES, _LOGS = "resources.json", "authorization.json", "log_config.json"
_SHARED = "/tmp/nvflare/"  # noqa: S108  # where kits store by default
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RIGHTS = ("submit_job", "manage_job", "download_job", "view", "operate")
_NO_CODE = {"byoc": "none", "clone_job": "none", "shell_commands": "none"}


def harden(kit: Path, home: Home) -> None:
    """Write the settings into a kit. Raises `UsageError` if it is no kit, or another party's."""
    _check_party(kit, home)
    local = kit / "local"
    resources = _read(local, _RESOURCES)
    resources["class_allow_list"] = list(CLASSES)
    resources["class_list_enforcement_mode"] = "enforce"
    resources["allow_log_streaming"] = False
    resources["components"] = [
        part for part in resources.get("components", []) if "log_stream" not in part.get("id", "")
    ]
    resources = _moved(resources, home.folder / "nvflare")
    rules = _read(local, _RULES)
    rules["permissions"] = {
        # one word for a role is a condition for all its rights, such as "any" or "o:site"
        name: {**role, "byoc": "none"}
        if isinstance(role, dict)
        else dict.fromkeys(_RIGHTS, role) | _NO_CODE
        for name, role in rules.get("permissions", {}).items()
        if role != "none"
    }
    logs = _read(local, _LOGS)
    logs.setdefault("loggers", {})["nvflare.collab"] = {"level": "WARNING"}
    for name, content in ((_RESOURCES, resources), (_RULES, rules), (_LOGS, logs)):
        write_private(local / name, (json.dumps(content, indent=1) + "\n").encode())
    write_private(local / HOME_FILE, f"{home.folder}\n".encode())
    write_private(home.folder / _KIT_FILE, f"{kit.absolute()}\n".encode())


def check_kit(kit: Path, home: Home) -> None:
    """Raise `PolicyRefusal` if a setting of `harden` is missing in the kit.

    Raises `UsageError` as `harden`.
    """
    _check_party(kit, home)
    local = kit / "local"
    resources, rules = _read(local, _RESOURCES), _read(local, _RULES)
    roles = rules.get("permissions", {}).values()
    missing = {
        "class_allow_list": sorted(resources.get("class_allow_list", ())) != sorted(CLASSES)
        or resources.get("class_list_enforcement_mode") != "enforce",
        "allow_log_streaming": resources.get("allow_log_streaming") is not False,
        # a role with one word for all rights has this one, too
        "byoc": not all(isinstance(role, dict) and role.get("byoc") == "none" for role in roles),
        HOME_FILE: not (local / HOME_FILE).is_file()
        or (local / HOME_FILE).read_text(encoding="utf-8").strip() != str(home.folder),
    }
    for key, is_missing in missing.items():
        if is_missing:
            raise PolicyRefusal(str(local), f"{key} is not as it must be", "Run: secagg site kit.")


@dataclass(frozen=True)
class KitCertificate:
    """The certificate of a home's kit. left: whole days until it ends; negative after that."""

    kit: str
    ends: datetime
    left: int

    @property
    def warning(self) -> str:
        """What to do if it ends soon or has ended; otherwise nothing."""
        if self.left >= WARN_DAYS:
            return ""
        when = "has ended" if self.left < 0 else f"ends in {self.left} days"
        return (
            f"the kit's certificate {when}, and then this party cannot connect. Ask FLARE's "
            "administrator for a new kit, and run: secagg site kit. Keys and ledgers stay"
        )

    @property
    def lines(self) -> list[str]:
        """What a site's officer reads of it."""
        warning = [f"! {self.warning}"] if self.warning else []
        return [f"kit      {self.kit}: its certificate ends on {self.ends:%Y-%m-%d}", *warning]

    def plain(self) -> dict[str, str]:
        return {"kit": self.kit, "ends": self.ends.isoformat(), "warning": self.warning}


def kit_certificate(home: Home, now: datetime) -> KitCertificate | None:
    """Return the certificate of the kit that was set up for a home; None if there is none."""
    try:
        kit = Path((home.folder / _KIT_FILE).read_text(encoding="utf-8").strip())
        name = "server" if home.name == COORDINATOR else "client"
        read = load_pem_x509_certificate((kit / "startup" / f"{name}.crt").read_bytes())
    except (OSError, ValueError):
        return None
    return KitCertificate(str(kit), read.not_valid_after_utc, (read.not_valid_after_utc - now).days)


def remove_old_jobs(kit: Path, home: Home, days: float, now: datetime) -> list[Path]:
    """Remove what NVFLARE keeps in a kit of each job in whose folder nothing changed for `days`.

    A job's folder has a UUID as its name. Ledgers, approvals and runs are in the home and stay.
    Raises `UsageError` for less than one day, in which a job may still run, and as `harden`.
    """
    if not days >= 1:
        raise UsageError("--remove-jobs", f"is {days:g}, and must be at least 1 day")
    _check_party(kit, home)
    removed = []
    for folder in sorted(kit.iterdir()):
        if folder.is_symlink() or not folder.is_dir() or not _JOB.fullmatch(folder.name):
            continue
        changed = max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
        if now.timestamp() - changed > days * 86400:
            shutil.rmtree(folder)
            removed.append(folder)
    return removed


def _check_party(kit: Path, home: Home) -> None:
    """Check that kit and home are of one party. Raises `UsageError`.

    The name is that of the kit's own start file, which its provisioner wrote.
    """
    name: Any = None
    if (kit / "startup" / "fed_server.json").is_file():
        name = COORDINATOR
    else:
        try:
            started = json.loads((kit / "startup" / "fed_client.json").read_bytes())
            name = started["client"]["fqsn"].rpartition(".")[2]  # below a relay: its name first
        except (
            OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError
        ):  # fmt: skip
            what = "is not a startup kit: startup/ names neither a client nor the server"
            raise UsageError(str(kit), what) from None
    if name != home.name:
        what = f"is the startup kit of {name!r}, and {home.folder} is the home of {home.name!r}"
        raise UsageError(str(kit), what, "Name the kit and the home of one party.")


def _moved(value: Any, folder: Path) -> Any:
    """Return plain data in which all paths in the shared temporary folder are in `folder`."""
    if isinstance(value, dict):
        return {key: _moved(each, folder) for key, each in value.items()}
    if isinstance(value, list):
        return [_moved(each, folder) for each in value]
    if isinstance(value, str) and value.startswith(_SHARED):
        return str(folder / value.removeprefix(_SHARED))
    return value


def _read(local: Path, name: str) -> dict[str, Any]:
    """Return the content of a settings file, or of the default that the kit brings."""
    for path in (local / name, local / f"{name}.default"):
        if path.is_file():
            try:
                found = json.loads(path.read_bytes())
            except (ValueError, RecursionError):
                raise UsageError(str(path), "is not JSON") from None
            if isinstance(found, dict):
                return found
    raise UsageError(str(local.parent), f"is not a startup kit: it has no local/{name}.default")
