"""Expressions: what they say as text, and that those found are the ones looked for."""

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from nnapi_prof.convert.dynamic_shapes.template import Expression, Floor, floors_through

SHARED_MACHINE = settings(deadline=None)

floors = st.builds(
    Floor,
    st.integers(0, 1),
    st.integers(-3, 8),
    st.integers(0, 40),
    st.integers(1, 32),
    st.integers(-9, 9),
)
expressions = st.builds(
    Expression,
    st.integers(-9, 9),
    st.lists(
        st.tuples(st.integers(-3, 3), st.lists(floors, min_size=1, max_size=2).map(tuple)),
        max_size=3,
    ).map(tuple),
)
sizes = st.tuples(st.integers(1, 3000), st.integers(1, 3000))


@given(expressions, sizes)
def test_the_text_gives_the_value(expression, given_sizes):
    text = expression.text(["h", "w"])
    assert eval(text, {"h": given_sizes[0], "w": given_sizes[1]}) == expression.at(given_sizes)


@given(expressions, expressions, sizes)
def test_sums(a, b, given_sizes):
    assert a.plus(b).at(given_sizes) == a.at(given_sizes) + b.at(given_sizes)


@SHARED_MACHINE
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=3
    ),
    st.integers(1, 3),
)
def test_strided_windows_one_after_another_are_one_quotient(windows, factor):
    """Kernel, padding and stride of each, then a resize by a factor."""
    period = math.prod(stride for _, _, stride in windows)

    def out(size):
        for kernel, padding, stride in windows:
            size = (size + 2 * padding - kernel) // stride + 1
        return factor * size

    seen = range(100, 101 + period)
    slope = Fraction(out(100 + period) - out(100), period)
    result = floors_through(0, seen, [out(size) for size in seen], slope, period)
    assert result
    assert all(result[0].of(size) == out(size) for size in range(50, 400))
