"""Run a ``.pte`` on this host: its times, segment by segment, and its outputs."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nnapi_prof.device.find import LOCAL, SIMULATED
from nnapi_prof.errors import InputSpecError, ModelFileError, NnapiProfError, non_regular_kind
from nnapi_prof.execution.compare import TOLERANCE, compare, usual_tolerance
from nnapi_prof.execution.judgement import allow_ambiguous, choose_inputs, last_step
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.executorch.host import USUAL, Caution, load
from nnapi_prof.frontend.inputs import InputSpec, example_tensors, listed
from nnapi_prof.frontend.loader import ModelKind, model_kind
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.node import dtype_name
from nnapi_prof.graph.program import as_array
from nnapi_prof.progress import Notify

if TYPE_CHECKING:
    from nnapi_prof.api.model import Model
    from nnapi_prof.api.plan import ModelPlan
    from nnapi_prof.graph.program import Program as NormalisedProgram

MAGIC = b"ET12"
"""Bytes 4 to 7 of a program."""
SCALAR_TYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    11: torch.bool,
}
"""ExecuTorch's numbers of element types (runtime/core/portable_type/scalar_type.h)."""
RUNS = 30
HOST_TIMES = (
    "times are this host's, which computes in the simulated phone's place and remembers what it"
    " computed: they say nothing of any phone"
)


@dataclass(frozen=True, slots=True)
class PartTime:
    """The time of a delegate or a kernel of the program."""

    name: str
    """``segment 0 nnapi:sim-npu``, XNNPACK's own names, or ``native_call_...`` of a kernel."""
    delegated: bool
    median_ns: float


@dataclass(frozen=True, slots=True)
class FileRun:
    """The result of running a program."""

    path: Path
    device: str
    simulated: bool
    """NNAPI is a simulated phone's; times are still this host's."""
    n_bytes: int
    load_ns: int
    first_ns: int
    samples_ns: tuple[int, ...]
    parts: tuple[PartTime, ...]
    outputs: tuple[Tensor, ...]
    checks: tuple[OutputCheck, ...] = ()
    """Comparisons with eager PyTorch, where a model was named."""
    notes: tuple[str, ...] = ()

    @property
    def median_ns(self) -> float:
        return statistics.median(self.samples_ns)

    @property
    def agrees(self) -> bool:
        return all(check.ok for check in self.checks)


def is_program(path: Path) -> bool:
    """Returns whether a file is an ExecuTorch program."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(8)[4:] == MAGIC


def run_file(
    path: str | os.PathLike[str],
    device: str = LOCAL,
    *,
    against: Model | str | os.PathLike[str] | None = None,
    inputs: Sequence[Tensor] | None = None,
    runs: int = RUNS,
    seed: int | None = None,
    tolerance: float | None = None,
    caution: Caution = USUAL,
    cache_folder: str | os.PathLike[str] | None = None,
    progress: Notify | None = None,
) -> FileRun:
    """Runs a ``.pte`` in this process, with our delegate and all others of the wheel.

    ``device``, ``caution`` and ``cache_folder`` are :func:`nnapi_prof.executorch.load`'s.
    ``against`` is the model that it was made from, or the bundle, which has the tolerance of its
    precision; where it has 8-bit units, the reference is the quantised model in eager PyTorch.
    Without ``against`` and ``inputs``, inputs are random (from ``seed``). Raises ModelFileError
    where the file is not a program, InputSpecError where inputs do not fit it, NnapiProfError with
    ExecuTorch's error where it does not run.
    """
    file = Path(path)
    if what := non_regular_kind(file):
        raise ModelFileError(f"{file} is {what}", "give the path of a .pte")
    if not is_program(file):
        raise ModelFileError(f"{file} is not a program of ExecuTorch's (.pte)")
    load(device, caution=caution, cache_folder=cache_folder, progress=progress)
    from executorch.runtime import Runtime

    runtime = Runtime.get()
    start = time.perf_counter_ns()
    with _raising_ours(f"{file} cannot be loaded"):
        method = runtime.load_program(file).load_method("forward")
    load_ns = time.perf_counter_ns() - start
    specs = _specs(method)
    reference = None if against is None else _reference(against, specs)
    values = _inputs(file, specs, reference, inputs, seed)
    samples = []
    with _raising_ours(f"{file} does not run"):
        for _ in range(runs + 1):
            start = time.perf_counter_ns()
            outputs = method.execute(values)
            samples.append(time.perf_counter_ns() - start)
        parts = _part_times(runtime, file, values, min(runs, RUNS))
    checks: tuple[OutputCheck, ...] = ()
    notes = [] if device == LOCAL else [HOST_TIMES]
    if reference is not None:
        checks, more = _checks(reference, values, outputs, tolerance)
        notes += more
    return FileRun(
        *(file, device, device.startswith(SIMULATED), file.stat().st_size, load_ns, samples[0]),
        *(tuple(samples[1:]), parts, tuple(outputs), checks, tuple(notes)),
    )


@contextmanager
def _raising_ours(what: str) -> Iterator[None]:
    """Turns ExecuTorch's RuntimeError into NnapiProfError."""
    try:
        yield
    except RuntimeError as error:
        raise NnapiProfError(
            f"{what}: {str(error).splitlines()[0]}; ExecuTorch's log, above, says why"
        ) from error


@dataclass(frozen=True)
class EagerReference:
    """The reference that outputs are compared with."""

    program: NormalisedProgram
    eager: Callable[..., tuple[Tensor, ...]]
    tolerance: float


def reference_of(planned: ModelPlan) -> EagerReference:
    """Returns a plan's model in eager PyTorch, with the tolerance of the plan's precision; the
    quantised model where it has 8-bit units."""
    program, mixed = planned.model.program, planned.model.mixed
    targets = {segment.target for segment in planned.plan.segments}
    tolerances = [usual_tolerance(planned.conditions.precision_of(t)) for t in targets]
    eager = planned.model.eager if mixed is None else program.module
    return EagerReference(program, eager, max(tolerances))


def _reference(
    against: Model | str | os.PathLike[str], specs: Sequence[InputSpec]
) -> EagerReference:
    from nnapi_prof.api.model import Model
    from nnapi_prof.api.model import load as load_model
    from nnapi_prof.api.plan import read_plan

    if isinstance(against, Model):
        return EagerReference(against.program, against.eager, TOLERANCE)
    if (Path(against) / "manifest.json").is_file():
        return reference_of(read_plan(against))
    stored = model_kind(Path(against)) is ModelKind.EXPORTED
    model = load_model(against, None if stored else [str(spec) for spec in specs])
    return EagerReference(model.program, model.eager, TOLERANCE)


def _specs(method: Any) -> list[InputSpec]:
    """Returns the inputs that the program declares."""
    meta = method.metadata
    infos = [meta.input_tensor_meta(index) for index in range(meta.num_inputs())]
    return [InputSpec(tuple(i.sizes()), dtype_name(SCALAR_TYPES[i.dtype()])) for i in infos]


def _inputs(
    file: Path,
    specs: Sequence[InputSpec],
    reference: EagerReference | None,
    inputs: Sequence[Tensor] | None,
    seed: int | None,
) -> tuple[Tensor, ...]:
    """Makes inputs of the types and sizes that the program declares."""
    if inputs is not None:
        values = tuple(inputs)
    elif reference is not None:
        values = choose_inputs(reference.program, seed)
    else:
        torch.manual_seed(seed or 0)
        values = example_tensors(specs)
    shapes = [InputSpec(tuple(v.shape), dtype_name(v.dtype)) for v in values]
    if shapes != list(specs):
        raise InputSpecError(
            f"{file} takes {listed(specs)}, and {listed(shapes)} is there",
            "name the model that it was made of",
        )
    return tuple(value.contiguous() for value in values)


def _checks(
    reference: EagerReference,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    tolerance: float | None,
) -> tuple[tuple[OutputCheck, ...], list[str]]:
    program = reference.program
    with torch.no_grad():
        expected = reference.eager(*(value.clone() for value in program.as_given(inputs)))
    names = program.units.outputs
    steps = [last_step(program, name) for name in names]
    of_floats = reference.tolerance if tolerance is None else tolerance
    checks = compare(
        names,
        list(map(as_array, outputs)),
        list(map(as_array, expected)),
        of_floats,
        steps,
        tolerance or 0.0,
    )
    return allow_ambiguous(checks, program, inputs, steps, outputs, expected, of_floats)


def _part_times(
    runtime: Any, file: Path, values: Sequence[Tensor], runs: int
) -> tuple[PartTime, ...]:
    """Returns medians of delegates and kernels, in order, from ExecuTorch's event tracer."""
    program = runtime.load_program(file, enable_etdump=True)
    method = program.load_method("forward")
    for _ in range(runs):
        method.execute(values)
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as folder:
        dump = Path(folder) / "run.etdp"
        program.write_etdump_result_to_file(str(dump), str(Path(folder) / "run.bin"))
        with quiet_torch():
            from executorch.devtools import Inspector

            blocks = Inspector(etdump_path=str(dump)).event_blocks
    return tuple(
        PartTime(event.name, event.is_delegated_op, event.perf_data.p50 * 1e6)
        for block in blocks
        if block.name == "Execute"
        for event in block.events
        if event.perf_data is not None
        and (event.is_delegated_op or event.name.startswith("native_call_"))
    )
