"""Progress on standard error: a line a round, and of very many rounds not all."""

from __future__ import annotations

import pytest

from secagg.cli.output import progress


def lines(rounds: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    plan = [{"sites": 3, "max_rounds": 1}, {"sites": 3, "max_rounds": rounds - 1}]
    with progress(quiet=False) as show:
        assert show is not None
        begun = {"event": "session", "session": "0123456789", "protocol": {"name": "plain"}}
        show({**begun, "plan": plan})
        for number in range(rounds):
            at = {"round": number, "stage": "draws", "contributors": ["a", "b", "c"]}
            show({"event": "release", **at})
        show({"event": "missing", "round": 777, "parties": ["a"]})
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("rounds", "printed"), [(2, 2), (100, 100), (200, 110), (1000, 190), (4001, 221)]
)
def test_progress_prints_fewer_lines_as_rounds_increase(
    rounds: int, printed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *told, last = lines(rounds, capsys)
    assert f"at most {rounds} rounds" in first
    assert len(told) == printed
    assert "no answer from a" in last


def test_quiet_prints_nothing() -> None:
    with progress(quiet=True) as show:
        assert show is None
