"""FedLin's table 4: choices by validation within the training part, cells, and the command."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.fedlin.record_files import write_engines

from reproductions.data import fedlin
from reproductions.fedlin import table_4
from reproductions.fedlin import tables as paper_tables
from reproductions.fedlin.tasks import local_only, signals
from reproductions.harness.simulated_runs import simulated
from secagg.models.fedlin.fedavg import FedAvg
from secagg.models.fedlin.hm1 import FedLinHm1

Seen = list[tuple[Mapping[str, Any], Mapping[str, pd.DataFrame]]]


def decaying(many: int = 4, records: int = 30) -> fedlin.Tables:
    rng = np.random.default_rng(1)
    cycle = np.arange(1.0, records + 1)
    return {
        f"b{k}": pd.DataFrame(
            {"capacity": 2 - (0.01 + 0.004 * k) * cycle + 0.02 * rng.standard_normal(records),
             "cycle": cycle}
        )
        for k in range(many)
    }  # fmt: skip


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> fedlin.Tables:
    """Few devices, rounds and choices."""
    tables = decaying()
    monkeypatch.setattr(fedlin, "batteries", lambda: tables)
    monkeypatch.setattr(signals, "ROUNDS", 3)
    monkeypatch.setattr(signals, "DEGREES", (1, 2))
    monkeypatch.setattr(signals, "ALPHAS", (0.5,))
    monkeypatch.setattr(signals, "LAMBDAS", (1.0,))
    return tables


SETTINGS: dict[str, Any] = {"data": "batteries", "validation": "last", "seed": 0}


def test_least_squares_selection_and_errors_agree_with_numpy(few: fedlin.Tables) -> None:
    """30 records: 18 to learn from, of which the last 3 validate; 12 to predict."""
    found = signals.compute(SETTINGS)["separate"]

    def errors(degree: int, first: int, last: int) -> list[float]:
        told = []
        for part in few.values():
            t, y = part["cycle"].to_numpy(), part["capacity"].to_numpy()
            fit = np.polyfit(t[:first], y[:first], degree)
            told.append(np.sqrt(np.mean((np.polyval(fit, t[first:last]) - y[first:last]) ** 2)))
        return told

    degree = min((1, 2), key=lambda d: np.mean(errors(d, 15, 18)))
    assert found["degree"] == degree
    assert found["error"] == pytest.approx(np.mean(errors(degree, 18, 30)), rel=1e-6)
    assert found["less"] == 0 and found["less_error"] == 0


@pytest.mark.parametrize("validation", ["last", "random"])
def test_records_held_out_for_prediction_influence_no_choice(
    validation: str, few: fedlin.Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other records in the last 40 % all choices and all fits are the same: of every run but
    the last of each method the tables end before, and the last holds them out.
    """
    seen: Seen = []
    real = signals.simulated

    def spied(method: Mapping[str, Any], columns: Any, tables: Any, seed: int) -> Any:
        seen.append((method, tables))
        return real(method, columns, tables, seed)

    monkeypatch.setattr(signals, "simulated", spied)
    first = signals.compute({**SETTINGS, "validation": validation})
    before = list(seen)
    whole = [all(len(t) == 30 for t in tables.values()) for _, tables in before]
    for (method, tables), is_whole in zip(before, whole, strict=True):
        assert is_whole or {len(t) for t in tables.values()} == {18}
        held = (0.4 if is_whole else 0.2, "last")
        assert (method["holdout"], method["holdout_rows"]) == held
        first_rows = [np.array(t)[:18] for t in tables.values()]
        same = [
            np.array_equal(np.array(t)[:18], r)
            for t, r in zip(few.values(), first_rows, strict=True)
        ]
        assert all(same) == (is_whole or validation == "last")
    assert sum(whole) == 5
    seen.clear()
    other = {
        name: part.assign(capacity=np.where(np.arange(30) < 18, part["capacity"], 1.0))
        for name, part in few.items()
    }
    monkeypatch.setattr(fedlin, "batteries", lambda: other)
    second = signals.compute({**SETTINGS, "validation": validation})
    assert [method for method, _ in seen] == [method for method, _ in before]
    assert second["hm1"]["degree"] == first["hm1"]["degree"]
    assert second["hm1"]["error"] != first["hm1"]["error"]


def test_last_values_and_differences_over_devices_are_correct(few: fedlin.Tables) -> None:
    found = signals.compute(SETTINGS)
    by_hand = [
        np.sqrt(np.mean((part["capacity"][18:] - part["capacity"][17]) ** 2))
        for part in few.values()
    ]
    assert found["last"]["error"] == pytest.approx(np.mean(by_hand), rel=1e-12)
    assert found["last"]["less"] == pytest.approx(
        found["last"]["error"] - found["separate"]["error"], rel=1e-9
    )
    assert found["last"]["less_error"] > 0 and "degree" not in found["last"]


def test_a_devices_own_steps_are_correct(few: fedlin.Tables) -> None:
    """One by one, in the method's units; and least squares at their end."""
    found = local_only.stepped_errors(few, 0.4, (0.0, 200.0), 2, 0.5, 7)
    whole = np.concatenate([part["capacity"][:18] for part in few.values()])
    mean, sd = whole.mean(), whole.std()
    for error, part in zip(found, few.values(), strict=True):
        X = np.vander(part["cycle"] / 200, 3, increasing=True)
        y = (part["capacity"].to_numpy() - mean) / sd
        eta, theta = 0.5 / np.linalg.eigvalsh(X[:18].T @ X[:18])[-1], np.zeros(3)
        for _ in range(7):
            theta += 2 * eta * X[:18].T @ (y[:18] - X[:18] @ theta)
        expected = sd * np.sqrt(np.mean((y[18:] - X[18:] @ theta) ** 2))
        assert error == pytest.approx(expected, rel=1e-9)
    ended = local_only.stepped_errors(few, 0.4, (0.0, 200.0), 1, 0.5, 10**6)
    fits = [np.polyfit(t["cycle"][:18], t["capacity"][:18], 1) for t in few.values()]
    least = [
        np.sqrt(np.mean((np.polyval(fit, t["cycle"][18:]) - t["capacity"][18:]) ** 2))
        for fit, t in zip(fits, few.values(), strict=True)
    ]
    np.testing.assert_allclose(ended, least, rtol=1e-9)


def test_local_steps_use_the_same_units_as_the_method(few: fedlin.Tables) -> None:
    """FedAvg of one round over devices with the same records is what each would step to."""
    same = dict.fromkeys(few, few["b0"])
    settings = {
        **signals.POLYNOMIAL, **signals._fedavg(None, 1), "degree": 2, "outcome": "capacity",
        "holdout": 0.4, "holdout_rows": "last",
    }  # fmt: skip
    columns = {
        "capacity": {"type": "continuous", "low": 0.0, "high": 2.5},
        "cycle": {"type": "continuous", "low": 0.0, "high": 200.0},
    }
    _, own = simulated(settings, columns, same, 0)
    found = [signals._held_out_error(each, "fedavg") for each in own.values()]
    expected = local_only.stepped_errors(same, 0.4, (0.0, 200.0), 2, 0.5, 20)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_every_setting_is_set_explicitly() -> None:
    by_cell = {"outcome", "holdout", "holdout_rows"}
    for name, candidates in signals._candidates().items():
        for each in candidates if name != "separate-steps" else []:
            of = FedAvg if each.settings["name"] == FedAvg.name else FedLinHm1
            names = {field.name for field in fields(of)} | {"name"}
            assert names - {"tests"} == each.settings.keys() | by_cell


def test_cells_of_engines_depend_on_the_content_of_their_file(tmp_path: Path) -> None:
    """Cells are kept by what the file holds: another file under its name has others."""
    write_engines(tmp_path)
    figure = paper_tables.table(4, 2, tmp_path)
    assert figure.name == "table4-engines" and len(figure.cells()) == 4 * (1 + 2)
    assert {place.column for place in figure.points} == set(signals.SENSORS)
    write_engines(tmp_path, (5, 13))
    assert not set(figure.cells()) & set(paper_tables.table(4, 2, tmp_path).cells())


@pytest.mark.system
def test_the_command_computes_the_engine_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a made file, with values between the sensors' public bounds, in this process."""
    rng = np.random.default_rng(0)
    lines = []
    for unit in (1, 2, 3):
        for cycle in range(1, 16):
            row = np.full(21, 1.0)
            for sensor, (low, high) in signals.SENSORS.items():
                row[sensor - 1] = (low + high) / 2 + unit + 0.1 * cycle + rng.standard_normal()
            lines.append(f"{unit} {cycle} 0 0 100 " + " ".join(f"{v:.3f}" for v in row))
    (tmp_path / fedlin.ENGINES).write_text("\n".join(lines))
    monkeypatch.setattr(signals, "ROUNDS", 2)
    settings = {"data": "engines", "folder": str(tmp_path), "validation": "random", "seed": 1}
    for sensor in signals.SENSORS:
        found = signals.compute({**settings, "sensor": sensor})
        assert found.keys() == {method.name for method in table_4.METHODS}
        assert all(0 < each["error"] < 1000 for each in found.values())
