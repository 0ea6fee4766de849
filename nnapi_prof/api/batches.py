"""One model at several batch sizes: what an image takes in each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.errors import InputSpecError, UsageError, option

if TYPE_CHECKING:
    from nnapi_prof.api.end_to_end import PipelineResult
    from nnapi_prof.graph.plan import Plan

MOST_BATCHES = 16


def parse_batches(text: str) -> tuple[int, ...]:
    """``1,4,8`` as numbers. Raises UsageError where it is anything else."""
    sizes = tuple(int(size) for size in re.findall(r"\d+", text))
    well = re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", text) and min(sizes) > 0
    if not well or len(set(sizes)) < len(sizes) or len(sizes) > MOST_BATCHES:
        raise UsageError(
            f"{option('batch')} {text!r}: up to {MOST_BATCHES} different sizes of at least 1 are"
            " wanted, as in 1,4,8"
        )
    return sizes


def with_batch(inputs: Sequence[str], batch: int) -> tuple[str, ...]:
    """Stated shapes with another first size; values of what is no tensor stay. Raises
    InputSpecError where no shape is stated."""
    if not any(re.match(r"(\w+=)?[\d?]", text) for text in inputs):
        raise InputSpecError(
            f"{option('batch')} needs the shape of each input: state them with {option('input')}"
        )
    return tuple(re.sub(r"^([A-Za-z_]\w*=)?\d+(?=x)", rf"\g<1>{batch}", text) for text in inputs)


@dataclass(frozen=True)
class Batch:
    """What came out at one size. ``latency_ns`` is that of the whole batch, measured where the plan
    ran, else predicted; ``rule`` the fastest plan that needs no partitioner."""

    size: int
    result: PipelineResult

    @property
    def is_measured(self) -> bool:
        return self.result.result is not None

    @property
    def latency_ns(self) -> float:
        ran = self.result.result
        if ran is not None and ran.run.runs[0].median_ns:
            return float(ran.run.runs[0].median_ns)
        return self._plan.predicted_ns

    @property
    def each_ns(self) -> float:
        """Of one image."""
        return self.latency_ns / self.size

    @property
    def n_segments(self) -> int:
        return len(self._plan.segments)

    @property
    def targets(self) -> tuple[str, ...]:
        """Where it runs, each once."""
        return tuple(dict.fromkeys(segment.target.key for segment in self._plan.segments))

    @property
    def _plan(self) -> Plan:
        assert self.result.planned is not None
        return self.result.planned.plan


def run_batches(sizes: Sequence[int], run: Callable[[int], PipelineResult]) -> Iterator[Batch]:
    """``run`` at each size, which is planned anew for it: what pays at 1 need not at 8. Ends with
    the error of the first that comes to no plan."""
    for size in sizes:
        result = run(size)
        if result.planned is None:
            raise result.fault or UsageError(f"the batch of {size} was not planned")
        yield Batch(size, result)


def batch_file(path: Path, size: int) -> Path:
    """``net.batch4.html`` for ``net.html``."""
    return path.with_name(f"{path.stem}.batch{size}{path.suffix}")
