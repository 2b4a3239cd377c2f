"""The home of a party: a private folder for all that is its own, on its own computer.

==============  =================================================================================
site.toml       who the party is, where its records are, how jobs are approved
keys            its signing key and its opening key, drawn when the home is made
card.json       its public keys, for the maker of the roster (`secagg.core.roster_file`)
roster.json     the pinned roster
policy.toml     a site's rules (docs/how-to/policies.md); a site without them refuses every job
edges.csv       the graph of a site's experts, if they have one (`secagg.jobs.expert_edges`)
approved/       the jobs that the officer approved, each by its digest
waiting/        the jobs that were sent and are not approved
ledgers/        the ledgers, and how far each session has come (`secagg.sessions.engines.progress`);
                they must never be lost or restored from an old copy
runs/           the state of each session; at the coordinator, the folders of the runs
log.txt         the party's own log; its texts may quote records. Earlier lines are in log.1.txt
==============  =================================================================================

The home lies outside the folder of a federated engine, so that a new installation of the engine
changes nothing here: keys, approvals and ledgers stay.

Threat model: another user of the computer. The folder has mode 0700, and a home that others may
enter is refused.

Not protected: the home, against the superuser or a program of the same user. Somebody who has
stolen a home can sign in the party's name, and compute the noise from the seeds in its ledger.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from secagg.core.identity import COORDINATOR, Identity, Role, Roster
from secagg.core.printable import is_printable, printable_lines
from secagg.core.private_files import open_private, read_checked, write_checked, write_private
from secagg.core.randomness import RandomBytes
from secagg.core.roster_file import (
    card_text,
    check_name,
    is_fingerprint,
    read_roster,
    roster_text,
)
from secagg.core.validation import describe, read_toml, unknown_key
from secagg.errors import EvidenceError, JobError, PolicyRefusal, UsageError
from secagg.jobs.data_sources import ENDINGS
from secagg.privacy.policy.draft import DRAFT

SETTINGS = "site.toml"
LOG_BYTES = 1_000_000
"""A log of this size becomes log.1.txt, in place of the earlier one."""
_LINE_BYTES = 20_000
_FOLDERS = ("approved", "waiting", "ledgers", "runs")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class HomeSettings(BaseModel):
    """The keys of site.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """The party's name, as in the roster."""
    role: Role
    """`"site"`, `"aggregator"` or `"coordinator"`."""
    records: Path | None = None
    """A site's records: a `.csv` or `.parquet` file. A relative path is relative to the home."""
    approve: Literal["each", "policy"] = "each"
    """`"each"`: only jobs that the officer approved (`secagg site approve`). `"policy"`: every job
    that the site's policy allows; needs policy.toml."""
    download: bool = False
    """At the coordinator: whether the engine's administrators may download the folder of each
    finished run, with its result."""


@dataclass(frozen=True)
class Home:
    """A party's home that exists."""

    folder: Path

    @classmethod
    def create(
        cls, folder: Path, name: str, role: Role, random: RandomBytes,
        records: Path | None = None, approve: Literal["each", "policy"] = "each",
    ) -> Home:  # fmt: skip
        """Make a home, and draw the party's keys. Raises `UsageError`; nothing is then left."""
        check_name("name", name)
        if (name == COORDINATOR) != (role is Role.COORDINATOR):
            raise UsageError("name", f"only the coordinator has the name {COORDINATOR!r}")
        _check_records(records, role)
        if os.path.lexists(folder):
            raise UsageError(str(folder), "already exists", "Choose another folder.")
        new = folder.with_name(f".{folder.name}.new-{os.getpid()}")
        try:
            new.mkdir(parents=True, mode=0o700)
            for each in _FOLDERS:
                (new / each).mkdir(mode=0o700)
            identity = Identity.generate(name, role, random)
            write_checked(new / "keys", [identity.signing_key, identity.opening_key])
            write_private(new / "card.json", card_text(identity.public).encode())
            lines = [f'name = "{name}"', f'role = "{role.value}"']
            if records is not None:
                lines += [f"records = {_toml_text(records)}", f'approve = "{approve}"']
            write_private(new / SETTINGS, ("\n".join(lines) + "\n").encode())
            if role is Role.SITE:
                write_private(new / "policy.toml", DRAFT.encode())
            new.rename(folder)
        except OSError as error:
            raise UsageError(str(folder), f"cannot be made ({error.strerror})") from None
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Home:
        """Return the home in this folder. Raises `UsageError` if it is none, or is not private."""
        home = cls(folder.absolute())
        try:
            found = folder.stat()
        except OSError:
            advice = "Make one: secagg site init."
            raise UsageError(str(folder), "is not a party's home", advice) from None
        if found.st_mode & _OTHERS or found.st_uid != os.getuid():
            raise UsageError(
                str(folder), "is not private to this user", f"Run: chmod 0700 {folder}"
            )
        _ = home.settings
        return home

    @cached_property
    def settings(self) -> HomeSettings:
        """The content of site.toml. Raises `UsageError` or `JobError`."""
        path = self.folder / SETTINGS
        if not path.exists():
            raise UsageError(str(self.folder), f"has no {SETTINGS}, so is not a home")
        raw = read_toml(path)
        try:
            settings = HomeSettings.model_validate(raw)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = str(first["loc"][0])
            if first["type"] == "extra_forbidden":
                raise unknown_key(str(path), key, HomeSettings.model_fields) from None
            raise JobError(str(path), describe(first, key)) from None
        if settings.download and settings.role is not Role.COORDINATOR:
            what = "download: only the coordinator's home has runs to download"
            raise JobError(str(path), what, "Remove the line.")
        return settings

    @property
    def name(self) -> str:
        """The party's name."""
        return self.settings.name

    @cached_property
    def identity(self) -> Identity:
        """The party's keys. Raises `UsageError` if they are damaged."""
        path = self.folder / "keys"
        try:
            match read_checked(path):
                case [bytes(signing), bytes(opening)] if len(signing) == len(opening) == 32:
                    return Identity(self.name, self.settings.role, signing, opening)
        except EvidenceError:
            pass
        advice = "Restore the file from a backup; with new keys, every party must pin a new roster."
        raise UsageError(str(path), "is missing or damaged", advice)

    @property
    def records(self) -> Path:
        """The file with a site's records. Raises `UsageError` for another party."""
        if self.settings.records is None:
            raise UsageError(str(self.folder / SETTINGS), "names no records")
        return self.folder / self.settings.records  # an absolute path stays as it is

    @property
    def has_roster(self) -> bool:
        """Whether a roster is pinned."""
        return (self.folder / "roster.json").exists()

    @property
    def roster(self) -> Roster:
        """The pinned roster. Raises `PolicyRefusal` if none is pinned."""
        path = self.folder / "roster.json"
        if not self.has_roster:
            advice = "Pin one: secagg site pin ROSTER --fingerprint TEXT."
            raise PolicyRefusal(self.name, "has pinned no roster", advice)
        return read_roster(path)

    def progress(self, session: bytes) -> Path:
        """Return the file with the party's progress in a session, apart from its state."""
        folder = self.folder / "ledgers" / "sessions"
        folder.mkdir(mode=0o700, exist_ok=True)  # homes of earlier versions have none
        return folder / session.hex()

    def pin(self, roster: Roster, given: str) -> None:
        """Pin a roster. Raises `UsageError`, and then changes nothing.

        given: its fingerprint, as its maker read it out over a second channel
        """
        if not is_fingerprint(roster, given):
            what = "the roster's fingerprint is another than the one given"  # which is not shown:
            # a user who can copy it from here does not ask for it over a second channel
            advice = "Compare it with its maker again: 40 letters and digits. Else do not use it."
            raise UsageError("fingerprint", what, advice)
        if roster.parties.get(self.name) != self.identity.public:
            what = f"the roster does not have this party's own card ({self.name})"
            raise UsageError("roster", what, "Send card.json to its maker again.")
        write_private(self.folder / "roster.json", roster_text(roster).encode())

    def note(self, text: str) -> None:
        """Write a text to the party's own log. Only its first line begins with a time.

        Each refused message is a text, so the log has a limit, or a coordinator could fill the
        disk. What was written before the last `LOG_BYTES`, or by another process at the moment at
        which the log is full, may be lost.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        path = self.folder / "log.txt"
        with suppress(FileNotFoundError):
            if path.stat().st_size >= LOG_BYTES:
                path.replace(self.folder / "log.1.txt")
        with open_private(path, os.O_APPEND) as log:
            line = f"{now} {printable_lines(text)}".encode(errors="replace")
            log.write(line[:_LINE_BYTES] + b"\n")


def _check_records(records: Path | None, role: Role) -> None:
    """Check the records that a new home is given. Raises `UsageError`."""
    if role is not Role.SITE:
        if records is not None:
            raise UsageError("--records", f"are a site's, and this is a home of the {role.value}")
    elif records is None:
        advice = f"Name its {' or '.join(ENDINGS)} file: --records FILE."
        raise UsageError("--records", "is missing, and a site has records", advice)
    elif not records.is_file():
        raise UsageError(str(records), "is not a file", "Put the site's records there first.")
    elif records.suffix.lower() not in ENDINGS:
        raise UsageError(str(records), f"does not end in {' or '.join(ENDINGS)}")


def _toml_text(path: Path) -> str:
    """Return a path as a TOML string."""
    text = str(path)
    if not is_printable(text):
        raise UsageError("records", "the path has characters that cannot be printed")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
