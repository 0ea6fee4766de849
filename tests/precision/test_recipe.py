"""Recipes as data: what comes back, and files of strangers."""

import copy
import json
import math

import pytest

from nnapi_prof.errors import SerializationError
from nnapi_prof.graph import Quantisation
from nnapi_prof.graph.quantisation import Scheme
from nnapi_prof.precision import Recipe

RECIPE = Recipe(
    values={"x": Quantisation(0.1, -3), "y": Quantisation(1 / 256, -128)},
    weights={
        "w": Scheme((0.5, 0.25), (0, 0), 1, "int8"),
        "v": Scheme((0.1,), (7,), None, "int8"),
    },
    units=frozenset({0, 2}),
    refusals={1: "LSTM has no quant8 form that is used here"},
    dtype="int8",
    corrections={"convolution": (0.5, -0.25)},
)


def test_what_is_written_is_read():
    written = json.loads(json.dumps(RECIPE.to_json()))
    assert Recipe.from_json(written) == RECIPE
    assert "zero_points" not in written["weights"]["w"]


def changed(*path_and_value):
    *path, last, value = path_and_value
    data = copy.deepcopy(RECIPE.to_json())
    place = data
    for key in path:
        place = place[key]
    place[last] = value
    return data


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "int8",
        {},
        changed("version", 2),
        changed("dtype", "int16"),
        changed("dtype", ["int8"]),
        changed("values", []),
        changed("values", "x", [0.1]),
        changed("values", "x", [0.1, 128]),
        changed("values", "x", [0.1, 0.0]),
        changed("values", "x", [0.1, True]),
        changed("values", "x", ["0.1", 0]),
        changed("values", "x", [0.0, 0]),
        changed("values", "x", [-1.0, 0]),
        changed("values", "x", [math.nan, 0]),
        changed("values", "x", [math.inf, 0]),
        changed("values", "x", [10**400, 0]),
        changed("weights", "w", {"dtype": "int8"}),
        changed("weights", "w", "axis", -1),
        changed("weights", "w", "axis", 1.5),
        changed("weights", "w", "axis", None),
        changed("weights", "w", "scales", []),
        changed("weights", "w", "zero_points", [0]),
        changed("weights", "w", "dtype", "float32"),
        changed("units", [0, "2"]),
        changed("units", [-1]),
        changed("units", [0, 1]),
        changed("refusals", [[1, 2]]),
        changed("refusals", {"1": "why"}),
        changed("corrections", "convolution", [math.inf]),
        changed("corrections", "convolution", 0.5),
        changed("corrections", [0.5]),
    ],
)
def test_anything_else_is_refused(data):
    with pytest.raises(SerializationError, match="not a recipe for 8 bits"):
        Recipe.from_json(data)
