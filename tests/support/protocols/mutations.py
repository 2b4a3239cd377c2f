"""Changes to a valid message that leave it decodable and signed, for fuzzing its readers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from secagg.core import canonical_encoding
from secagg.core.frames import Header, write_frame
from secagg.core.identity import Identity

ODD = (
    None, True, 0, -1, 1 << 64, 1 << 20_000, 0.5, float("nan"), "", "\x00", "site_0", "coordinator",
    b"", b"\x00", bytes(32), bytes(33), bytes(64), [], [[]], [0], [{}], [1 << 20_000],
    ["site_0", "site_0"], {}, {"": None}, {"site_0": b""}, {"site_0": [[]]},
    np.zeros(3), np.zeros((0, 1), "<u8"), np.zeros((3, 2), "<u8"), np.zeros((3, 1), "<u4"),
)  # fmt: skip
"""Values of every kind that the encoding has, as replacements."""

ODD_ROUNDS = (0, 1, -1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 2**70, -(2**70), 1 << 20_000, True)


def mutated(draw: Any, value: Any) -> Any:
    """Return plain data in which one drawn node is replaced, perturbed, dropped or repeated."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        match draw(st.sampled_from(["inside", "inside", "inside", "drop", "rename"])):
            case "drop":
                return {k: v for k, v in value.items() if k != key}
            case "rename":
                other = draw(st.sampled_from([*sorted(value), "site_9", ""]))
                return {**{k: v for k, v in value.items() if k != key}, other: value[key]}
        return {**value, key: mutated(draw, value[key])}
    if isinstance(value, list | tuple) and value and draw(st.integers(0, 3)):
        at = draw(st.integers(0, len(value) - 1))
        match draw(st.sampled_from(["inside", "inside", "drop", "repeat"])):
            case "drop":
                return [*value[:at], *value[at + 1 :]]
            case "repeat":
                return [*value, value[at]]
        return [*value[:at], mutated(draw, value[at]), *value[at + 1 :]]
    return draw(_replacement(value))


def _replacement(value: Any) -> st.SearchStrategy[Any]:
    near: st.SearchStrategy[Any] = st.nothing()
    match value:
        case bytes() if value:
            at = st.integers(0, len(value) - 1)
            near = at.map(lambda i: value[:i]) | at.map(
                lambda i: value[:i] + bytes([value[i] ^ 1]) + value[i + 1 :]
            )
        case bool():
            near = st.just(not value)
        case int():
            near = st.sampled_from([value + 1, value - 1, -value, value << 70, 1 << 20_000])
        case str():
            near = st.sampled_from([value + "_", value[1:], "cohort", "site_1", "coordinator"])
        case np.ndarray():
            near = st.sampled_from([value[:-1], value.astype("<f8"), value.reshape(-1), value + 1])
    return near | st.sampled_from(ODD)


def resigned(draw: Any, frame: bytes, identity: Identity, session: bytes) -> bytes:
    """Return the frame with its body (or note, or round) mutated, signed by the same sender."""
    header_bytes, _, content = canonical_encoding.loads(frame)
    header, body = Header.from_bytes(header_bytes), canonical_encoding.loads(content)
    note, round_ = dict(header.note), header.round
    if draw(st.integers(0, 9)) == 0:
        round_ = draw(st.sampled_from(ODD_ROUNDS))
    elif note and draw(st.integers(0, 4)) == 0:
        note = mutated(draw, note)
    else:
        body = mutated(draw, body)
    body, note = (part if isinstance(part, dict) else {"x": part} for part in (body, note))
    return write_frame(identity, session, round_, header.phase, header.recipient, body, note)


def with_odd_values(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield plain data as often as it has nodes and `ODD` has values, one node replaced by one."""
    for key, inner in value.items():
        for odd in (*ODD, *_odd_inside(inner)):
            yield {**value, key: odd}


def _odd_inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from with_odd_values(value)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            for odd in (*ODD, *_odd_inside(inner)):
                yield [*value[:at], odd, *value[at + 1 :]]
