"""What only people know: the officer's form, a TOML file. What it leaves open is flagged.

A placeholder is no answer (`secagg.compliance.placeholders`): nobody who reads the form sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from secagg.compliance.placeholders import NO, NONE, is_placeholder
from secagg.core.validation import describe, read_toml, unknown_key
from secagg.errors import UsageError

_ALLOWED = {"aggregators": NONE, "processors": NONE, "groups": NO, "tuning": NO}
"""Keys to which "none" or "no" is an answer."""


class _Table(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, use_attribute_docstrings=True
    )


class _Answers(_Table):
    @field_validator("*")
    @classmethod
    def _without_placeholders(cls, answer: str, info: ValidationInfo) -> str:
        name = str(info.field_name)
        question = cls.model_fields[name].description or ""
        return "" if is_placeholder(answer, question, _ALLOWED.get(name, ())) else answer


class Purpose(_Answers):
    """Purpose and permit."""

    purpose: str = ""
    """What the analysis is for, and who benefits."""
    legal_basis: str = ""
    """The legal basis for processing, such as an article of the GDPR."""
    permit: str = ""
    """The number of the data permit or of the ethics approval."""
    controller: str = ""
    """The organisation that decides about purpose and means (the controller)."""
    processors: str = ""
    """Organisations that process on its behalf, such as the operator of the coordinator."""
    contact: str = ""
    """Who answers questions about this report."""
    retention: str = ""
    """How long results, logs and ledgers are kept, and who deletes them."""


class DataUse(_Answers):
    """The data."""

    source: str = ""
    """Where the records come from, and what they were collected for."""
    population: str = ""
    """Whose records they are, from which years."""
    necessity: str = ""
    """Why each column is needed, and why fewer or coarser ones would not do."""
    rows_per_person: str = ""
    """How many records a person can have, and at how many sites."""
    bounds: str = ""
    """How the public bounds and levels were chosen; not from the records."""


class Trust(_Answers):
    """Who runs what."""

    coordinator: str = ""
    """Which organisation runs the coordinator, and who administers its computer."""
    sites: str = ""
    """Which organisations run the sites."""
    aggregators: str = ""
    """Which organisations run the aggregators or hold keys, if there are any."""
    separate: str = ""
    """Why the parties that must not collude are independent of each other."""
    tested: str = ""
    """Who ran the attached audits and experiments."""


class Judgement(_Answers):
    """What a person must judge."""

    epsilon: str = ""
    """Why the strength of the guarantee is adequate, or why no noise was needed."""
    utility: str = ""
    """Why the result is exact enough for its purpose, and why less would not do."""
    residual: str = ""
    """Risks that remain, and how they are treated."""
    groups: str = ""
    """Whether conclusions about groups could harm people."""
    tuning: str = ""
    """Whether settings were chosen by looking at the records, and how that was accounted for."""


class Registry(_Answers):
    """What only the entry for the Deployments Registry asks."""

    curator_type: str = ""
    """What kind of organisation the controller is, such as a hospital or an agency."""
    region: str = ""
    """The region that the result is about."""
    sector: str = ""
    """The sector, such as health care."""


class Form(_Table):
    """An officer's form. Every key may be left out; it is then flagged."""

    purpose: Purpose = Field(default_factory=Purpose)
    data: DataUse = Field(default_factory=DataUse)
    trust: Trust = Field(default_factory=Trust)
    judgement: Judgement = Field(default_factory=Judgement)
    registry: Registry = Field(default_factory=Registry)

    def questions(self, table: str) -> Mapping[str, tuple[str, str]]:
        """Return what a table asks: key -> (what is asked, the answer, "" if there is none)."""
        part: BaseModel = getattr(self, table)
        return {
            key: (field.description or "", str(getattr(part, key)))
            for key, field in type(part).model_fields.items()
        }


def read_form(path: Path) -> Form:
    """Return the form in a file. Raises `UsageError` of one line."""
    raw = read_toml(path)
    try:
        return Form.model_validate(raw)
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] != "extra_forbidden":
            raise UsageError(str(path), describe(first, key)) from None
        table = Form.model_fields.get(str(first["loc"][0]))
        known = Form.model_fields if table is None else Form().questions(str(first["loc"][0]))
        raise UsageError(str(path), *unknown_key("", key, known).args[1:]) from None
