"""Progress on standard error: a line a round, and of very many rounds not all."""

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


def test_the_time_left_is_that_of_the_rounds_to_come(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten rounds of a minute each, then rounds of a second; the last hundred count."""
    now = [0.0]
    with progress(quiet=False, clock=lambda: now[0]) as show:
        assert show is not None
        begun = {"event": "session", "session": "0123456789", "protocol": {"name": "plain"}}
        show({**begun, "plan": [{"sites": 3, "max_rounds": 1}, {"sites": 3, "max_rounds": 400}]})
        for number in range(401):
            now[0] += 60 if number < 10 else 1
            at = {"round": number, "stage": "draws", "contributors": ["a", "b", "c"]}
            show({"event": "release", **at})
    told = dict(line.split(maxsplit=2)[1:] for line in capsys.readouterr().err.splitlines()[1:])
    assert "left" not in told["0"]  # one round has no length yet
    assert told["1"].endswith("at most 6 h 39 min left")
    assert told["9"].endswith("at most 6 h 31 min left")
    assert told["300"].endswith("at most 2 min left")
    assert told["390"].endswith("at most 10 s left")
    assert "left" not in told["400"]


def test_quiet_prints_nothing() -> None:
    with progress(quiet=True) as show:
        assert show is None
