"""`Integers` against lists of `int`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.protocols.paillier.integers import Integers

vectors = st.integers(1, 20).flatmap(
    lambda size: st.tuples(st.lists(st.integers(0, (1 << 8 * size) - 1), max_size=6), st.just(size))
)


@given(vectors)
def test_integers_behave_like_the_list_of_their_values(vector: tuple[list[int], int]) -> None:
    values, size = vector
    made = Integers.of(values, size)
    assert made == values
    assert made == Integers.of(values, size + 2)
    assert made != [*values, 0]
    assert list(made) == values
    assert [made[i] for i in range(len(made))] == values
    assert made[1:] == values[1:]
    assert (len(made), made.size) == (len(values), size)
    assert made.to_bytes() == b"".join(x.to_bytes(size, "little") for x in values)
    assert Integers.from_bytes(made.to_bytes(), size) == values
    assert made.resized(size + 9) == values


@given(vectors, st.data())
def test_all_below_compares_with_every_value(
    vector: tuple[list[int], int], data: st.DataObject
) -> None:
    values, size = vector
    near = st.sampled_from([x + d for x in [*values, 1] for d in (0, 1)])
    bound = data.draw(st.one_of(st.integers(0, 1 << 8 * size + 3), near))
    assert Integers.of(values, size).all_below(bound) == all(x < bound for x in values)


def test_values_that_do_not_fit_are_refused() -> None:
    for values in ([-1], [0, 256], [1, -5]):
        with pytest.raises(OverflowError):
            Integers.of(values, 1)
    assert Integers.of([255, 0], 7).resized(1) == [255, 0]
    with pytest.raises(OverflowError):
        Integers.of([255, 256], 7).resized(1)
