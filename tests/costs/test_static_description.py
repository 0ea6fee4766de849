import functools
import json
import operator
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.costs.estimate.calibration import fit_with_errors
from nnapi_prof.costs.estimate.phones import Description, parse_description, shipped, shipped_text
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU
from tests.costs.test_static_fit import measured, table, works_of


@functools.cache  # a fit takes seconds
def described() -> Description:
    model = fit_with_errors(measured(works_of(table()), bend=1.0)).model
    model = replace(model, refused=frozenset({"LSTM"}))
    return Description("phone", "one", "made up", {CPU: model}, {CPU: 120}, simulated=True)


@pytest.mark.slow
def test_a_description_survives_its_file():
    before = described()
    after = parse_description(json.loads(before.to_json()))
    works = works_of(table(seed=7))
    one, two = (d.targets[CPU].works_ns(works) for d in (before, after))
    assert np.allclose(one, two, rtol=1e-3)
    assert after.targets[CPU].refused == {"LSTM"}
    assert (after.simulated, after.rows, after.level) == (True, {CPU: 120}, 30)
    assert after.to_json() == before.to_json()


@pytest.mark.slow
@pytest.mark.parametrize(
    "path, value",
    [
        ("version", 1),
        ("format", "other"),
        ("targets", None),
        ("targets", {"tpu": {}}),
        ("targets", {"nnapi:x": {}}),
        ("targets.cpu.operation_ns", -1),
        ("targets.cpu.operation_ns", float("nan")),
        ("targets.cpu.ns_per_mac", {"CONV_2D": 1}),
        ("targets.cpu.correction.weights", [1.0]),
        ("targets.cpu.correction.mean", [1.0]),
        ("targets.cpu.correction.features", ["macs"]),
        ("level", "new"),
    ],
)
def test_a_damaged_one_is_refused(path, value):
    data = json.loads(described().to_json())
    *outer, name = path.split(".")
    functools.reduce(operator.getitem, outer, data)[name] = value
    with pytest.raises(CostError):
        parse_description(data)


@pytest.mark.parametrize("name", shipped())
def test_the_phones_that_come_along_are_sound_and_say_where_they_come_from(name):
    phone = parse_description(json.loads(shipped_text(name)))
    assert phone.name == name and not phone.simulated and "pixel4" in shipped()
    assert any(licence in phone.origin for licence in ("MIT", "Apache-2.0"))
    for model in phone.targets.values():
        assert 0 < model.errors.half < model.errors.nine_tenths < 1
