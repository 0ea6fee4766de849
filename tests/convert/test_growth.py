"""What is told of a model that grows when it is converted."""

import pytest

from nnapi_prof.convert.region import MANY, VERY_MANY, growth_note
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.unit import Unit, UnitGraph


def graph(*labels: str, nodes: int = 10) -> UnitGraph:
    """A chain of units of so many nodes each."""
    units = tuple(
        Unit(i, f"u{i}", label, tuple(f"n{i}.{k}" for k in range(nodes)), (f"v{i}",),
             (f"v{i + 1}",), label)
        for i, label in enumerate(labels)
    )  # fmt: skip
    values = {f"v{i}": TensorType((1,)) for i in range(len(units) + 1)}
    return UnitGraph(units, values, ("v0",), (f"v{len(units)}",))


@pytest.mark.parametrize(
    ("nodes", "operations", "told"),
    [
        (1, MANY - 1, False),
        (1, MANY, True),
        (MANY // 4, MANY, True),
        (MANY // 4 + 1, MANY, False),
        (VERY_MANY, VERY_MANY - 1, False),
        (VERY_MANY, VERY_MANY, True),
    ],
)
def test_what_is_worth_a_word(nodes: int, operations: int, told: bool) -> None:
    note = growth_note(graph("lstm", nodes=nodes), [((0,), operations)])
    assert (note is not None) == told


def test_regions_are_counted_together() -> None:
    note = growth_note(graph("lstm", "linear", nodes=1), [((0,), 3000), ((1,), 121)], "the plan")
    assert note is not None
    assert note.startswith(
        "the plan becomes 3,121 NNAPI operations, for 2 of its own (lstm, linear)"
    )
    assert growth_note(graph("lstm"), []) is None
