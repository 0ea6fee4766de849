"""Units of several models side by side."""

from __future__ import annotations

import random

from nnapi_prof.graph.types import TensorType
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.reports.compare_sides import Column, match_units


def graph(signatures: str) -> UnitGraph:
    """A chain of units, each letter a signature."""
    values = {f"v{i}": TensorType((1,)) for i in range(len(signatures) + 1)}
    units = tuple(
        Unit(i, f"n{i}", letter, (f"n{i}",), (f"v{i}",), (f"v{i + 1}",), letter)
        for i, letter in enumerate(signatures)
    )
    return UnitGraph(units, values, ("v0",), (f"v{len(signatures)}",))


def drawn(*models: str) -> list[str]:
    """A line for each side: its units in their columns, a dot where it has none."""
    columns = match_units([graph(model) for model in models])
    return [
        "".join("." if c.units[side] is None else model[c.units[side] or 0] for c in columns)
        for side, model in enumerate(models)
    ]


def test_equal_models_are_matched_unit_by_unit() -> None:
    assert match_units([graph("abab")] * 2) == tuple(
        Column(letter, (i, i)) for i, letter in enumerate("abab")
    )
    assert all(column.everywhere for column in match_units([graph("abab")] * 3))


def test_what_one_side_lacks_stands_alone_where_it_belongs() -> None:
    assert drawn("abcde", "abde") == ["abcde", "ab.de"]
    assert drawn("abde", "abcdef") == ["ab.de.", "abcdef"]
    assert drawn("abc", "xbc") == [".abc", "x.bc"]
    assert drawn("", "ab") == ["..", "ab"]


def test_models_without_a_common_unit() -> None:
    columns = match_units([graph("ab"), graph("cd")])
    assert not any(column.everywhere for column in columns)
    assert drawn("ab", "cd") == ["ab..", "..cd"]


def test_a_unit_at_another_place_is_the_same_unit() -> None:
    assert match_units([graph("abc"), graph("cab")]) == (
        Column("a", (0, 1)),
        Column("b", (1, 2)),
        Column("c", (2, 0)),
    )


def test_three_sides() -> None:
    assert drawn("abd", "abcd", "bcde") == ["ab.d.", "abcd.", ".bcde"]


def test_every_unit_stands_in_one_column_whatever_the_models() -> None:
    dice = random.Random(7)
    for _ in range(200):
        models = ["".join(dice.choices("abcd", k=dice.randrange(9))) for _ in range(3)]
        columns = match_units([graph(model) for model in models])
        for side, model in enumerate(models):
            held = [c.units[side] for c in columns if c.units[side] is not None]
            assert sorted(held) == list(range(len(model)))
            assert all(c.signature == model[c.units[side] or 0] for c in columns
                       if c.units[side] is not None)  # fmt: skip
        for letter in "abcd":  # as many are matched as both have
            both = min(models[0].count(letter), models[1].count(letter))
            pairs = [c for c in columns if c.signature == letter and None not in c.units[:2]]
            assert len(pairs) == both
