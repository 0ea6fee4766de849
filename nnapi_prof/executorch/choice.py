"""The result of a choice among partitioners."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.errors import PartitionError
from nnapi_prof.executorch.region_times import RegionRefusal
from nnapi_prof.executorch.whole import WholeFile
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.unit import UnitGraph

if TYPE_CHECKING:
    import pandas as pd


def fastest_first(model: str, files: Iterable[WholeFile]) -> tuple[WholeFile, ...]:
    """Sorts the files of a model by their latency. Raises PartitionError where none of them ran."""
    ranked = tuple(sorted(files, key=lambda file: file.median_ns))
    if not ranked[0].rounds_ns:
        reasons = "; ".join(f"{file.name}: {file.reason}" for file in ranked)
        raise PartitionError(f"no file of {model} runs in ExecuTorch: {reasons}")
    return ranked


@dataclass(frozen=True)
class FileChoice:
    """The fastest measured file of a model, and what it was chosen among."""

    model: str
    """Its name."""
    device: str
    simulated: bool
    """NNAPI is a simulated phone's."""
    graph: UnitGraph
    """The model's units; where partitioners were measured without those that change dim orders
    alone, which are none for ExecuTorch. Plans name these."""
    file: WholeFile = field(repr=False)
    """The answer."""
    files: tuple[WholeFile, ...] = field(repr=False)
    """All that were measured, the fastest first; those that did not run last."""
    planned: Plan | None = field(repr=False)
    """The solver's plan, whether or not its file is the answer; None where there is none."""
    costs: CostModel | None = field(repr=False)
    """What it was made from."""
    refusals: tuple[RegionRefusal, ...] = field(repr=False)
    """Regions that a partitioner, its back end or its run does not take."""
    notes: tuple[str, ...] = ()
    simulated_times: bool = False
    """Times are a simulated phone's, by its driver, else this host's, whatever NNAPI is."""

    @property
    def clock(self) -> str:
        """The source of the times, for the head of a table."""
        return "simulated latency in ms" if self.simulated_times else "latency in ms on this host"

    @property
    def plan(self) -> Plan:
        """The plan that the file follows: segments on ``executorch:NAME``. A baseline's is one
        segment."""
        return self.file.plan

    @property
    def buffer(self) -> bytes:
        """The bytes of the file."""
        return self.file.buffer

    @property
    def median_ns(self) -> float:
        """The median latency of a run of the file."""
        return self.file.median_ns

    def backends(self) -> Mapping[str, int]:
        """Name of each back end -> calls of it."""
        return self.file.backends

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the ``.pte``."""
        file = Path(path)
        file.write_bytes(self.buffer)
        return file

    def frame(self) -> pd.DataFrame:
        """One row for each file, the fastest first: ``file``, ``median_ms`` (NaN where it does not
        run), ``against_fastest``, ``calls`` (of back ends), ``status``, ``reason``."""
        import pandas as pd

        rows = [
            {
                "file": file.name,
                "median_ms": file.median_ns / 1e6 if file.rounds_ns else float("nan"),
                "against_fastest": file.median_ns / self.median_ns
                if file.rounds_ns
                else float("nan"),
                "calls": sum(file.backends.values()),
                "status": file.status.value,
                "reason": file.reason or "",
            }
            for file in self.files
        ]
        return pd.DataFrame(rows)
