"""What the pictures show: the tutorial's network, and what npu-phone needs for it, estimated."""

from __future__ import annotations

import re
import tempfile
from contextlib import chdir
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nnapi_prof.execution.estimation import estimated_costs, read_phone
from nnapi_prof.frontend import load, parse_input_spec
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import CPU, Plan, Preference, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import Problem, baselines, make_problem, plan_problem

TUTORIAL = Path(__file__).resolve().parents[1] / "tutorial.md"
PHONE = "npu-phone"
NPU = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)
GPU = Target.nnapi("sim-gpu", Preference.FAST_SINGLE_ANSWER)
TARGETS = (CPU, NPU, GPU)


@dataclass(frozen=True)
class Example:
    """Units, costs in ns and plans; all of it estimated."""

    graph: UnitGraph
    problem: Problem
    plan: Plan
    baselines: tuple[Plan, ...]

    @cached_property
    def target_of(self) -> dict[int, Target]:
        """Unit -> where the plan has it."""
        return {u: segment.target for segment in self.plan.segments for u in segment.units}


def tutorials_network() -> Example:
    """Saves the network as the tutorial does, and plans it without a device."""
    pattern = r"<!-- file: segmenter.py -->\n\n?```python\n(.*?)```"
    code = re.search(pattern, TUTORIAL.read_text(), re.DOTALL)
    assert code is not None
    with tempfile.TemporaryDirectory() as folder:
        with chdir(folder), quiet_torch():
            exec(compile(code[1], "segmenter.py", "exec"), {"__name__": "segmenter"})
        program = load(Path(folder) / "segmenter.pt", [parse_input_spec("1x3x96x96")])
    costs = estimated_costs(program, read_phone(PHONE))
    problem = make_problem(program.units, costs.table)
    return Example(
        program.units,
        problem,
        plan_problem(problem, with_curve=False).default,
        tuple(baselines(problem)),
    )
