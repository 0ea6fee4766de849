"""Every unit in 8 bits, on the kernels of the host: within one step of torchao's integers."""

import contextlib
from functools import cache

import pytest
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.costs import ALL, Conditions
from nnapi_prof.device.build import build_host
from nnapi_prof.device.find import open_device
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.device.protocol import ActionResult
from nnapi_prof.device.protocol.actions import TensorSource, Timing
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.execution import ActionOptions
from nnapi_prof.execution.actions import build_action
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.graph.program import all_values, from_memory, to_memory
from nnapi_prof.precision.calibrate import calibrate
from nnapi_prof.precision.program import quantise
from tests.parts import missing
from tests.precision.common import CASES, program, recipe, relative_error, sample

FAST, REFERENCE = "nnapi-fast", "nnapi-reference"


@pytest.fixture(scope="module", params=[REFERENCE, FAST])
def nnapi(request):
    if request.param not in accelerators():
        missing("the library has no XNNPACK: make xnnpack")
    return HostNnapi(build_host().library, request.param)


@cache
def accelerators():
    """Those of device ``local``."""
    with open_device("local") as opened:
        return [accelerator.name for accelerator in opened.client.info().nnapi.accelerators]


@cache
def converted(name, level):
    """Each unit's region, the values that reach it in eager PyTorch, and those it should give."""
    result = quantise(program(name), recipe(name, level))
    values = all_values(result.program, sample(name, 7))
    regions = {
        f"{index} {result.program.units.units[index].label}": convert_region(
            result.program, (index,), level
        )
        for index in result.unit_of.values()
    }
    return regions, values


def steps_apart(nnapi, region, values):
    """How far a region's result is from the value that it should give, as :func:`apart` has it."""
    (actual,) = nnapi.compile(region).run([values[value] for value in region.inputs])
    return apart(actual, values[region.outputs[0]])


def apart(actual, expected):
    """The largest difference, in steps, and how many of the values differ."""
    difference = (actual.int() - expected.int()).abs()
    return int(difference.max()), float((difference > 0).float().mean())


@pytest.mark.parametrize(("name", "level"), CASES)
def test_units_agree_within_a_step(nnapi, name, level):
    regions, values = converted(name, level)
    for label, region in regions.items():
        steps, share = steps_apart(nnapi, region, values)
        assert steps <= 1, label
        assert share <= (0.9 if "mean" in label else 0.3), label  # MEAN cuts the fraction off


@pytest.mark.parametrize("name", ["mixture", "squeezenet1_1"])
def test_units_agree_on_the_cpu_engine_and_the_accelerators_of_the_device(name):
    regions, values = converted(name, 30)
    on_nnapi = [Target.nnapi(a, Preference.FAST_SINGLE_ANSWER) for a in accelerators()]
    targets = [CPU, *on_nnapi]
    jobs = [(label, region, target) for label, region in regions.items() for target in targets]
    request = RequestBuilder()

    def feed(name):
        type_ = types[name]
        return TensorSource.BLOB, request.add_blob(to_memory(values[name], type_))

    for number, (_, region, target) in enumerate(jobs):
        types = dict(zip(region.inputs, region.input_types, strict=True))
        options = ActionOptions(Conditions(cpus=ALL), untimed=True)
        action = build_action(
            number, [(target, region)], feed, request, Timing.once(), options, region.outputs
        )
        request.add_action(action.spec)
    n_results = 0
    with (
        open_device("local") as opened,
        contextlib.closing(opened.client.run(request.request())) as events,
    ):
        for event in events:
            if not isinstance(event, ActionResult):
                continue
            label, region, target = jobs[event.action]
            assert event.ok, (label, target.key, event.message)
            (output,) = event.outputs
            actual = from_memory(opened.client.pull_output(output), region.output_types[0])
            assert apart(actual, values[region.outputs[0]])[0] <= 1, (label, target.key)
            n_results += 1
    assert n_results == len(jobs)


def test_a_whole_model_in_integers_is_near_its_simulation(nnapi):
    result = quantise(program("squeezenet1_1"), recipe("squeezenet1_1", 30))
    region = convert_region(result.program, range(len(result.program.units.units)), 30)
    assert region.operations.count("QUANTIZE") == region.operations.count("DEQUANTIZE") == 1
    x = sample("squeezenet1_1", 7)
    (actual,) = nnapi.compile(region).run(x)
    (expected,) = result.program.module(*x)
    assert relative_error(actual, expected) <= 0.05


def test_conversions_are_exact(nnapi):
    floats, stated = program("mixture"), recipe("mixture", 30)
    result = quantise(floats, stated, sorted(stated.units)[::2])
    values = all_values(result.program, sample("mixture", 7))
    assert {to_integers for _, to_integers in result.conversions.values()} == {True, False}
    for index in result.conversions:
        region = convert_region(result.program, (index,), 30)
        (actual,) = nnapi.compile(region).run([values[value] for value in region.inputs])
        expected = values[region.outputs[0]]
        if expected.dtype == torch.float32:
            torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7)
        else:
            assert apart(actual, expected)[0] == 0


class Edges(nn.Module):
    """Values that never vary, weights that are nothing, a pad of -inf before a maximum."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, bias=False)
        with torch.no_grad():
            self.first.weight[1], self.first.weight[2] = 0, 1e-20
            self.first.bias[1:3] = torch.tensor([-3.0, 2.0])

    def forward(self, x):
        x = torch.relu(self.first(x))
        nothing = torch.relu(x - 100)
        padded = nn.functional.pad(x, (1, 1, 1, 1), value=-torch.inf)
        return self.second(nn.functional.max_pool2d(padded, 2)) * 1e-6, self.second(nothing)


@pytest.mark.parametrize("observer", ["histogram", "minmax"])
@pytest.mark.parametrize("level", [28, 30])
def test_ranges_of_nothing_and_of_all(level, observer, nnapi):
    with quiet_torch(), torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.randn(3, 1, 3, 8, 8)
        floats = prepare(Edges().eval(), (x[0],), "edges")
    stated = calibrate(floats, [(value,) for value in x], level, observer=observer)
    assert len(stated.refusals) == (0 if level == 30 else 2)
    result = quantise(floats, stated)
    values = all_values(result.program, (x[0],))
    for index in result.unit_of.values():
        region = convert_region(result.program, (index,), level)
        assert steps_apart(nnapi, region, values)[0] <= 1
    for actual, expected in zip(result.program.module(x[0]), floats.module(x[0]), strict=True):
        assert torch.allclose(actual, expected, atol=0.05 * float(expected.abs().max()))
