"""Which actions share a group: one key, at most 32, and no more weights than fit."""

from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.device.protocol.actions import MAX_GROUP, MAX_GROUP_BYTES, WEIGHT_COPIES, Groups


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, MAX_GROUP_BYTES)), max_size=80))
def test_groups(actions):
    groups = Groups()
    numbers = [groups.number(key, weight) for key, weight in actions]
    assert numbers == sorted(numbers) and all(number > 0 for number in numbers)
    for number in set(numbers):
        members = [a for a, n in zip(actions, numbers, strict=True) if n == number]
        assert len({key for key, _ in members}) == 1
        assert len(members) <= MAX_GROUP
        weight = sum(w for _, w in members) * WEIGHT_COPIES
        assert weight <= MAX_GROUP_BYTES or len(members) == 1


def test_alternatives_stay_together_where_they_can():
    groups = Groups()
    assert [groups.number("a", 1000) for _ in range(MAX_GROUP)] == [1] * MAX_GROUP
    assert groups.number("a", 1000) == 2
    assert groups.number("b", 1000) == 3
    assert groups.number("a", 1000) == 4  # a group that ended does not begin again
