"""The Python interface: its names, loaded when used, and arguments that are none."""

import ast
import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import nnapi_prof as np_
from nnapi_prof import executorch
from nnapi_prof.api.end_to_end import _together
from nnapi_prof.costs.table import Objective
from nnapi_prof.errors import InputSpecError, NnapiProfError, UsageError
from nnapi_prof.options import number
from nnapi_prof.partition import is_optimum
from nnapi_prof.partition.explain import as_latency
from tests import warm
from tests.api.conftest import PHONE
from tests.cli.common import python
from tests.partition.cases import problem_of, solve
from tests.processes import output_of
from tests.reports.sample import sample

WRONG = {
    np_.ConditionOptions: [
        {"threads": 0}, {"threads": 65}, {"threads": "2"}, {"mode": "warp"}, {"cpus": "zero"},
        {"cpus": 3}, {"sustained": -1}, {"relaxed": True, "float16": True}, {"relaxed": 3},
    ],
    np_.MeasureOptions: [
        {"runs": 0}, {"rounds": 0}, {"cooldown_s": -1}, {"cooldown_s": math.nan},
        {"memory_mb": 0}, {"warmup_ms": -1.0}, {"budget_ms": -1.0}, {"timeout_s": 0},
        {"rounds": None}, {"accelerators": [3]}, {"preferences": ["warp"]}, {"refine": "no"},
    ],
    np_.Gates: [{"max_temp_c": 121}, {"min_battery": -1}, {"max_load": 101}, {"wait_s": None}],
    np_.Latency: [
        {"max_regions": -1}, {"max_compile_ms": -1}, {"max_error": math.nan},
        {"preference": "warp"}, {"pin": [3]}, {"forbid": [None]}, {"best": 2},
    ],
    np_.Throughput: [{"contention": 0.5}, {"frames_in_flight": 64}],
    np_.Within: [{"error": -1}],
}  # fmt: skip


@pytest.mark.parametrize(
    "cls, wrong", [(cls, each) for cls, rows in WRONG.items() for each in rows], ids=str
)
def test_of_options(cls, wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        cls(**wrong)


def test_numbers_in_range_pass():
    for value in (None, 1, 2.5, 64):
        number("threads", value, 1, 64)


CALLS = {
    "profile": [
        {"costs": 3}, {"conditions": 3}, {"options": 3}, {"gates": 3}, {"threads": 2}, {"runs": 5},
        {"max_temp_c": 40}, {"refine": False},
    ],
    "partition": [
        {"objective": "throughput"}, {"seconds": 0}, {"seconds": math.inf}, {"pin": "*=cpu"},
        {"accuracy_budget": 0.02}, {"contention": 1.1}, {"parallel": True},
    ],
    "run": [{"runs": 0}, {"tolerance": -1}, {"tolerance": math.nan}, {"cooldown_s": -1}],
}  # fmt: skip


@pytest.mark.parametrize(
    "name, wrong", [(name, each) for name, rows in CALLS.items() for each in rows], ids=str
)
def test_of_calls(way, name, wrong):
    arguments = {
        "profile": (way.model, PHONE),
        "partition": (way.model, way.costs),
        "run": (way.planned, PHONE),
    }
    keywords = {"costs": way.table} if name == "profile" else {}
    with pytest.raises(UsageError, match=next(iter(wrong))):
        getattr(np_, name)(*arguments[name], **keywords | wrong)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda way: np_.profile(way.model, 3, costs=way.table), "device is 3"),
        (lambda way: np_.partition(way.model, None), "costs are a NoneType"),
        (lambda way: np_.partition(way.model, 3), "costs are a int"),
        (lambda way: np_.read_costs(way.model, 3), "costs is a int"),
        (lambda way: np_.go(way.model, PHONE, runs=0), "runs is 0"),
    ],
)  # fmt: skip
def test_of_another_type(way, call, words):
    with pytest.raises(UsageError, match=words):
        call(way)


def test_inputs_that_are_no_shapes(way):
    for inputs in ([(1, 3, 8.0, 8)], [(1, True)], [()], [8, "1x3"], [8], {"x": "1x3"}):
        with pytest.raises(InputSpecError):
            np_.load(way.model.path, inputs=inputs)  # type: ignore[arg-type]
    with pytest.raises(InputSpecError, match=r"no input for the value '1': leave it out"):
        np_.load(way.file, inputs=[(1, "x")])
    with pytest.raises(InputSpecError, match="neither a shape nor a tensor"):
        np_.load(torch.nn.ReLU(), inputs=[{"a": object()}])  # type: ignore[dict-item]


def test_sizes_are_a_shape(way):
    tensor = torch.zeros(1, 3, 16, 16)
    for inputs in ([(1, 3, 16, 16)], (1, 3, 16, 16), [[1, 3, 16, 16]], tensor.shape, tensor):
        assert np_.load(way.file, inputs=inputs).graph == way.model.graph
    product = np_.load(torch.nn.Bilinear(2, 3, 4), inputs=[(5, 2), torch.zeros(5, 3)], name="two")
    assert product.inputs == ("5x2", "5x3")


def constrained(way: SimpleNamespace, **constraint: Any) -> np_.ModelPlan:
    return np_.partition(way.model, way.costs, np_.Latency(**constraint))


def test_placements_as_a_mapping(way):
    mapped = constrained(way, pin={"*": "cpu"}, forbid={"conv2d*": "nnapi:*"})
    listed = constrained(way, pin="*=cpu", forbid=["conv2d*=nnapi:*"])
    assert mapped.plan == listed.plan


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda way: constrained(way, pin="conv*"), "pin='conv*': say where"),
        (lambda way: constrained(way, pin={"lstm": "cpu"}), "pin='lstm=cpu'"),
        (lambda way: constrained(way, pin={"a": 3}), "pin is {'a': 3}: units and targets as text"),
        (lambda way: constrained(way, forbid="lstm"), "forbid='lstm': no unit"),
        (lambda way: constrained(way, listed="lstm"), "listed='lstm': no unit"),
        (lambda way: constrained(way, listed={"a": "cpu"}), "{'a': 'cpu'}: texts are required"),
        (lambda way: constrained(way, max_error=0.1), "max_error guards what"),
        (lambda way: np_.load(way.file, inputs=["1x3", "1x3"]), "a shape in inputs for each"),
        (lambda way: np_.load(way.file, inputs=["1x4x16x16"]), "the shapes it wants with inputs"),
        (lambda way: np_.read_costs(way.model, "ftp://x/y"), "costs and $NNAPI_PROF_COSTS take"),
    ],
)
def test_errors_speak_of_arguments(way, call, words):
    with pytest.raises(NnapiProfError) as raised:
        call(way)
    assert words in str(raised.value) and "--" not in str(raised.value)


def _flags_in(node: ast.AST) -> Iterator[str]:
    """Options of the command line in the texts of an expression, but for those of commands."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "for_caller":
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"`[^`]*`?", "", node.value))
    for child in ast.iter_child_nodes(node):
        yield from _flags_in(child)


def test_no_error_below_the_command_line_spells_a_flag():
    """``errors.option_name`` spells it for whoever called."""
    root = Path(np_.__file__).parent
    result = [
        f"{path.relative_to(root)}:{node.lineno}: {flag}"
        for folder in ("api", "bundle", "convert", "costs", "device", "frontend", "graph",
                       "execution", "partition", "reports")
        for path in sorted((root / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise)
        for flag in _flags_in(node)
    ]  # fmt: skip
    assert not result


def test_a_plan_for_another_objective_is_not_called_the_fastest():
    data = sample(24)
    plan, base = solve(data.graph, data.cost_model), problem_of(data.graph, data.cost_model)
    told = as_latency(plan, base, Objective("energy", "mJ"))
    assert is_optimum(plan) and not is_optimum(told)
    assert told.notes[0].startswith("energy: optimal over all plans")


def test_go_counts_what_both_passes_measured(way):
    """The second pass refines; what the first one measured was not known before."""
    outcome = way.costs.outcome
    first = replace(outcome, n_measured=50, n_reused=2, n_failed=3, seconds=4.0)
    second = replace(outcome, n_measured=6, n_reused=52, n_failed=1, seconds=1.0)
    both = _together(first, second)
    assert (both.n_measured, both.n_reused, both.n_failed, both.seconds) == (56, 2, 4, 5.0)
    assert _together(None, second) == second


HEAVY = ("torch", "pandas", "matplotlib", "scipy", "sqlalchemy", "numpy", "rich")
STUB = Path(np_.__file__).with_name("__init__.pyi")
NAMES = [name for name in np_.__all__ if name != "__version__"]
CLASSES = [name for name in NAMES if inspect.isclass(getattr(np_, name))]
FUNCTIONS = [name for name in NAMES if name not in CLASSES]


def test_the_stub_has_the_same_names_from_the_same_modules():
    told = {}
    for statement in ast.parse(STUB.read_text()).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                assert alias.name == alias.asname, "a stub exports what is renamed to itself"
                told[alias.name] = f"{statement.module}"
    assert told == {name: f"nnapi_prof.{np_._WHERE[name]}" for name in NAMES}


def test_importing_loads_nothing():
    code = (
        f"import sys, nnapi_prof\nprint([name for name in {HEAVY!r} if name in sys.modules],"
        " [name for name in sys.modules if name.startswith('nnapi_prof.')])"
    )
    result = python("-c", code)
    assert (result.stdout, result.stderr) == ("[] []\n", "")


BOTH = """
import inspect, nnapi_prof as np_
from nnapi_prof.partition import make_problem
assert np_.partition.make_problem is make_problem
assert callable(np_.partition) and callable(np_.run)
from nnapi_prof.api.planning import partition
same = np_.partition.__doc__ == partition.__doc__
print(list(inspect.signature(np_.run).parameters)[:2], same)
try:
    np_.run("nowhere")
except np_.NnapiProfError as error:
    print(error)
"""


@pytest.mark.parametrize("first", ["nnapi_prof.partition", "nnapi_prof.execution.run", "sys"])
def test_functions_that_are_packages_too_are_both(first):
    """Whatever was imported before: imports tie packages to the names of functions."""
    program = (*warm.python(ours=False), "-W", "error", "-c", f"import {first}{BOTH}")
    told, error = output_of(program).splitlines()
    assert told == "['plan', 'device'] True"
    assert "nowhere does not exist" in error


def test_names_of_executorch_are_defined_where_the_package_looks_for_them():
    """Read, not imported: ExecuTorch need not be installed."""
    folder = STUB.parent / "executorch"
    for name, module in executorch._WHERE.items():
        tree = ast.parse((folder / f"{module}.py").read_text())
        definitions = [node for node in tree.body if hasattr(node, "name")]
        assert name in {node.name for node in definitions}, f"{module}.{name}"


def test_an_unknown_name_is_none():
    with pytest.raises(AttributeError, match="no attribute 'prtition'"):
        np_.prtition  # noqa: B018
    assert set(np_.__all__) <= set(dir(np_)) and not hasattr(np_, "_no_such_name")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_documented_and_typed(name):
    function = getattr(np_, name)
    told = inspect.getdoc(function)
    assert told and len(told) > 80
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, f"{name}({parameter})"
        if name != "convert_model":
            assert f"``{parameter.name}" in told or parameter.name in ("model", "plan", "progress")
    if name != "devices":
        assert "Raises" in told


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_documented_and_typed(name):
    result = getattr(np_, name)
    assert inspect.getdoc(result)
    for member, value in vars(result).items():
        function = value.fget if isinstance(value, property) else value
        function = getattr(function, "__func__", getattr(function, "func", function))
        if member.startswith("_") or not inspect.isfunction(function):
            continue
        assert function.__doc__, f"{name}.{member}"
        own = set(inspect.signature(function).parameters) - {"self", "cls"}
        assert own | {"return"} <= set(inspect.get_annotations(function)), f"{name}.{member}"
