"""What a bundle of mixed precision keeps, and that nothing else is taken for it."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from nnapi_prof.bundle import FrontRow, MixedPrecision, Sensitivity
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph import Quantisation
from nnapi_prof.graph.plan import Precision
from nnapi_prof.graph.quantisation import Scheme
from nnapi_prof.precision import Recipe

MIXED = MixedPrecision(
    recipe=Recipe(
        {"x": Quantisation(0.5, 3), "y": Quantisation(0.25, 0)},
        {"w": Scheme((0.1, 0.2), (0, 0), 0, "int8")},
        frozenset({0, 2}),
        {1: "softmax has no 8 bits here"},
        "uint8",
    ).to_json(),
    int8_units=frozenset({2}),
    metric="relative",
    budget=0.02,
    chosen="front 2",
    front=(
        FrontRow("front 1", False, 1e6, 0.03, 0.031, 0.02, 0.04, 1, {Precision.INT8: 3}),
        FrontRow("front 2", False, 2e6, 0.01, 0.012, 0.0, 0.02, 2, {Precision.FLOAT32: 2}),
    ),
    sensitivity=(Sensitivity("conv2d 3x3", {Precision.INT8: 0.01}),),
)


ONE_SAMPLE = replace(MIXED.front[0], held_out_low=-math.inf, held_out_high=math.inf)


@pytest.mark.parametrize("mixed", [MIXED, replace(MIXED, front=(ONE_SAMPLE,))])
def test_it_survives_json(mixed):
    text = json.dumps(mixed.to_json(), allow_nan=False)
    assert MixedPrecision.from_json(json.loads(text)) == mixed


def test_the_row_that_was_chosen():
    assert MIXED.chosen_row is MIXED.front[1]


@pytest.mark.parametrize(
    "change",
    [
        {"int8_units": [-1]},
        {"int8_units": ["0"]},
        {"front": [{}]},
        {"front": None},
        {"sensitivity": [{"label": "x", "errors": {"int3": 0.1}}]},
        {"budget": float("nan")},
        {"recipe": 3},
    ],
)
def test_what_is_something_else_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SerializationError):
        MixedPrecision.from_json({**MIXED.to_json(), **change})
