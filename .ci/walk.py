"""Count the modules that a model passes on its way from a file to a plan, by a cost table.

A step is the first call of a function (no method) that gets the model in one of its forms: the
path of its file, a module of PyTorch's, a program, a unit graph, costs, a problem, a plan. A return
is a step into a module that an earlier step left. ``--list`` prints the steps.
"""

import argparse
import itertools
import sys
import tempfile
from pathlib import Path
from types import FrameType

import torch
from torch import fx
from torch.export import ExportedProgram

import nnapi_prof as nnp
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.table import CostTable
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import Partitioning, Problem
from nnapi_prof.partition.solver import PlanSearch

ROOT = Path(__file__).parent.parent
FORMS = (
    *(torch.nn.Module, ExportedProgram, fx.Graph, Program, UnitGraph, UnitGraphCache, nnp.Model),
    *(
        Path,
        nnp.Costs,
        CostModel,
        CostTable,
        Problem,
        Partitioning,
        PlanSearch,
        Plan,
        nnp.ModelPlan,
    ),
)


class Walk:
    """Steps of a call, as seen by ``sys.setprofile``."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, str], None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or not path.is_relative_to(ROOT) or "site-packages" in path.parts:
            return
        if "." in code.co_qualname or code.co_name.startswith("<"):
            return  # a method, or part of a function
        n_arguments = code.co_argcount + code.co_kwonlyargcount
        arguments = itertools.islice(frame.f_locals.values(), n_arguments)
        if any(isinstance(one, FORMS) for one in arguments):
            self.steps.setdefault((str(path.relative_to(ROOT)), code.co_qualname))


def main() -> None:
    """Profile a small model on a simulated phone, then read it again and plan it by the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true")
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)
    module = torch.jit.trace(torch.nn.Sequential(*layers).eval(), torch.zeros(1, 3, 16, 16))
    with tempfile.TemporaryDirectory() as folder:
        file, table = Path(folder, "model.pt"), Path(folder, "costs.sqlite")
        torch.jit.save(module, file)
        nnp.profile(nnp.load(file, ["1x3x16x16"]), "sim:npu-phone", costs=table)
        torch.jit.save(module, file, {"other": b"bytes, so that no cache knows its units"})
        walk = Walk()
        sys.setprofile(walk)
        model = nnp.load(file, ["1x3x16x16"])
        nnp.partition(model, nnp.read_costs(model, table), verify=False)
        sys.setprofile(None)
    stays = [name for name, _ in itertools.groupby(walk.steps, key=lambda step: step[0])]
    if parser.parse_args().list:
        print(*(f"{module}: {function}" for module, function in walk.steps), sep="\n")
    modules = len(set(stays))
    print(f"{modules} modules, {len(stays) - modules} returns, {len(walk.steps)} functions")


if __name__ == "__main__":
    main()
