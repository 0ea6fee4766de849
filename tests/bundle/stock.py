"""Modules for stock PyTorch: made from models in memory, saved, loaded, and run on the emulator."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch.utils._pytree import tree_leaves

from nnapi_prof.bundle.parts import Parts, largest_parts
from nnapi_prof.bundle.stock_module import mixed_module
from nnapi_prof.errors import Refusal
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.program import Program, constant_outputs


@dataclass(frozen=True)
class Made:
    """A mixed module as a file holds it."""

    program: Program
    parts: Parts
    module: torch.jit.ScriptModule
    size: int

    @property
    def kinds(self) -> list[str]:
        return ["cpu" if part.region is None else "nnapi" for part in self.parts.parts]

    @property
    def operations(self) -> list[str]:
        return [name for region in self.parts.regions for name in region.operations]

    def stays(self) -> set[str]:
        """The first words of the labels of what stays on the CPU."""
        return {self.program.units.units[u].label.split()[0] for u in self.parts.cpu_reasons}


def make(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    level: int = 30,
    least: int = 1,
    on_cpu: Mapping[int, str] | None = None,
    keep: bool = False,
) -> Made:
    """``on_cpu`` has units that shall stay on the CPU though NNAPI could run them."""
    with quiet_torch():
        return made(prepare(model, inputs, "model", keep), level, least, on_cpu)


def made(
    program: Program, level: int = 30, least: int = 1, on_cpu: Mapping[int, str] | None = None
) -> Made:
    reasons = {unit: Refusal(words) for unit, words in (on_cpu or {}).items()}
    parts = largest_parts(program, level, Preference.FAST_SINGLE_ANSWER, least, reasons)
    return from_parts(program, parts)


def from_parts(program: Program, parts: Parts) -> Made:
    content = io.BytesIO()
    with quiet_torch():
        torch.jit.save(mixed_module(program, parts, constant_outputs(program)), content)
        size = content.tell()
        content.seek(0)
        module = torch.jit.load(content)
    return Made(program, parts, module, size)


def without_nnapi(parts: Parts) -> Parts:
    """The same parts, all on the CPU."""
    return replace(parts, parts=tuple(replace(part, region=None) for part in parts.parts))


def agree(result: Made, model: torch.nn.Module, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """A module of parts computes what the model does; returns its outputs."""
    with torch.no_grad():
        actual, expected = tree_leaves(result.module(*inputs)), tree_leaves(model(*inputs))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    return actual
