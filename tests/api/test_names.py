"""What ``import nnapi_prof`` offers: exported, documented, typed, and loaded when used."""

import ast
import inspect
from pathlib import Path

import pytest

import nnapi_prof as np_
from nnapi_prof import executorch
from tests.cli.common import python
from tests.parts import again_but

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
        "import sys, nnapi_prof\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules],"
        " [name for name in sys.modules if name.startswith('nnapi_prof.')])"
    )
    result = python("-c", code)
    assert result.stderr == "" and result.stdout.strip() == "[] []"


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


@pytest.mark.slow("each case starts Python and imports PyTorch anew")
@pytest.mark.parametrize(
    "first",
    again_but(
        ["nnapi_prof.partition", "nnapi_prof.execution.run", None],
        "nnapi_prof.partition",
        why="another order of imports",
    ),
)
def test_functions_that_are_packages_too_are_both(first):
    """Whatever was imported before: imports tie packages to the names of functions."""
    code = f"import {first or 'sys'}{BOTH}"
    result = python("-c", code)
    assert result.stderr == ""
    told, error = result.stdout.splitlines()
    assert told == "['plan', 'device'] True" and "nowhere does not exist" in error


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
        if member.startswith("_"):
            continue
        function = value.fget if isinstance(value, property) else value
        function = getattr(function, "__func__", getattr(function, "func", function))
        if not inspect.isfunction(function):
            continue
        assert function.__doc__, f"{name}.{member}"
        annotations = inspect.get_annotations(function)
        own = set(inspect.signature(function).parameters) - {"self", "cls"}
        assert own | {"return"} <= set(annotations), f"{name}.{member}"
