"""Checks that tests of resumed runs share."""

import json
from pathlib import Path

from secagg.core.hash_chain_log import read_log
from secagg.evidence.integrity import verify_folder
from secagg.evidence.run_files import log_facts

APART = {"engine.name": "processes"}


def check(out: Path, memory: Path, resumed: int | None, *trouble: str) -> None:
    """Check that the run equals an uninterrupted one, and that its log is complete.

    trouble: the additional events of this run, apart from resumes
    """
    for name in ("result.json", "arrays.npz"):
        assert (out / name).read_bytes() == (memory / name).read_bytes()
    verify_folder(out)
    events = read_log(out / "log.jsonl")
    plain = read_log(memory / "log.jsonl")
    about = [e for e in events if e["event"] in ("resumed", *trouble)]
    told = [e for e in events if e not in about]
    assert [e["event"] for e in about if e["event"] != "resumed"] == list(trouble)
    assert [(e["event"], e.get("round")) for e in told] == [
        (e["event"], e.get("round")) for e in plain
    ]
    resumes = len(about) - len(trouble)
    assert resumed in (None, resumes)
    facts, expected = (json.loads((f / "run.json").read_text()) for f in (out, memory))
    # run.json counts those before it was written: afterwards, only the sites countersign.
    before = events[: [e["event"] for e in events].index("result")]
    assert facts["engine"]["resumed"] == sum(e["event"] == "resumed" for e in before)
    assert "trouble" not in facts
    assert log_facts(events)["trouble"] == about
    assert [row["messages"] for row in facts["phases"]] == [
        row["messages"] for row in expected["phases"]
    ]
    assert not out.with_name("out.partial").exists()
