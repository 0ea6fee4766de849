"""Measures PyTorch models on Android NNAPI accelerators, then decides what runs where.

    import nnapi_prof as nnp

    model = nnp.load("model.pt", inputs=["1x3x224x224"])
    costs = nnp.profile(model, device="sim:npu-phone")
    plan = nnp.partition(model, costs)
    result = nnp.run(plan, device="sim:npu-phone")
    result.report("out.html")

:func:`load` takes files and models in memory; :func:`profile`, :func:`read_costs` and
:func:`estimate` give :class:`Costs`, :func:`partition` a :class:`ModelPlan`, :func:`run` a
:class:`Result`; :func:`go` does all of it. :func:`advise` suggests changes that make a plan faster,
:func:`compare` compares results, :func:`calibrate` fits a :class:`Phone` to measurements,
:func:`devices` lists the devices within reach, :func:`convert_model` makes a module for stock
PyTorch. Notes go to the logger ``nnapi_prof``; errors are subclasses of :class:`NnapiProfError`, in
:mod:`nnapi_prof.errors`.

Importing this package loads nothing else: each name loads what it needs when it is first used.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType

__version__ = "0.2.0"

_WHERE = {
    "Advised": "api.advise",
    "Bisection": "bisection.diagnosis",
    "Comparison": "api.compare",
    "ConditionOptions": "costs",
    "Costs": "api.costs",
    "Devices": "api",
    "Fleet": "fleet.plans",
    "Gates": "device.state",
    "Latency": "execution.objectives",
    "MeasureOptions": "execution.profile",
    "Model": "api.model",
    "NnapiProfError": "errors",
    "Phone": "api.cost_tables",
    "Pareto": "api.pareto",
    "Parallel": "execution.objectives",
    "ModelPlan": "api.plan",
    "PredictedThroughput": "api.plan",
    "Progress": "api",
    "Result": "api.run",
    "Target": "graph.plan",
    "Throughput": "execution.objectives",
    "Unit": "graph.unit",
    "Within": "execution.objectives",
    "advise": "api.advise",
    "bisect": "api.bisect",
    "calibrate": "api.cost_tables",
    "compare": "api.compare",
    "convert_model": "api.convert",
    "devices": "api",
    "estimate": "api.cost_tables",
    "estimate_chips": "api.chips",
    "fleet": "fleet.choose",
    "go": "api.end_to_end",
    "load": "api.model",
    "pareto": "api.pareto",
    "partition": "api.planning",
    "profile": "api.profiling",
    "read_costs": "api.cost_tables",
    "read_plan": "api.plan",
    "run": "api.run",
}
"""Public name -> the module that defines it. ``__init__.pyi`` repeats it for type checkers and
editors (imports under TYPE_CHECKING here would violate the layers)."""

_ALSO_PACKAGES = ("fleet", "partition")
"""Public functions whose names are also packages. Such a package is callable and calls the
function, because ``import nnapi_prof.partition`` replaces the function by the package here."""

__all__ = ["__version__", *_WHERE]


class _CallablePackage(ModuleType):
    """A package that calls the public function of its name."""

    def __call__(self, *args: object, **named: object) -> object:
        return _function(self.__name__)(*args, **named)

    # For help(), editors and notebooks.

    @property
    def __signature__(self) -> object:
        import inspect

        return inspect.signature(_function(self.__name__))

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return _function(self.__name__).__doc__


class _Package(ModuleType):
    """This package; the import system sets each imported submodule as an attribute of it."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _ALSO_PACKAGES and isinstance(value, ModuleType):
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)


def _function(package: str) -> Callable[..., object]:
    """Return the public function that has a package's name."""
    name = package.rpartition(".")[2]
    result: Callable[..., object] = getattr(
        importlib.import_module(f"{__name__}.{_WHERE[name]}"), name
    )
    return result


def __getattr__(name: str) -> object:
    """Load a public name when it is first used."""
    if name in _ALSO_PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    result = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = result
    return result


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Package
