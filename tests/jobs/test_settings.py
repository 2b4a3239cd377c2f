"""Each table of a job, method, protocol and policy lists its settings, with types and meanings."""

import pytest
from pydantic import BaseModel

from secagg.errors import UsageError
from secagg.jobs import job
from secagg.jobs.settings import ANALYSES, GROUPS, Setting, settings_of_table
from secagg.models.moments.analyses import KINDS
from secagg.privacy.policy import policy_tables, site_policy

NAMES = [name for group in GROUPS.values() for name in group]


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_a_type_a_default_and_a_meaning(name: str) -> None:
    for setting in settings_of_table(name):
        assert setting.type and setting.default, setting
        assert setting.meaning.endswith("."), setting
        limits = setting.type.replace(" and ", ", ").split(", ")
        assert len(limits) == len(set(limits)), setting


def test_required_settings_come_first() -> None:
    defaults = [setting.default == "required" for setting in settings_of_table("ols")]
    assert defaults == sorted(defaults, reverse=True) and any(defaults)


def test_a_setting_names_its_limits_and_default() -> None:
    assert settings_of_table("additive") == [
        Setting("aggregators", "whole number", "`2`", "Number of aggregators, from 2 to 100.")
    ]
    (rows,) = (each for each in settings_of_table("release") if each.name == "min_records")
    assert (rows.type, rows.default) == ("whole number, at least 1", "not set")


def test_no_table_is_missing() -> None:
    listed = {place for group in GROUPS.values() for place in group.values()}
    tables = {
        (module.__name__, name)
        for module in (job, policy_tables, site_policy)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        if kind.__module__ == module.__name__
        if not name.startswith("_") and name not in ("Named", "StrictTable")
    }
    assert tables <= listed
    assert {name: (kind.__module__, kind.__name__) for name, kind in KINDS.items()} == ANALYSES
    assert len(NAMES) == len(set(NAMES))


def test_an_unknown_table_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError) as caught:
        settings_of_table("olss")
    assert caught.value.where == "settings" and "'ols'" in caught.value.advice
