"""Plans, devices or dates side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api import notebook
from nnapi_prof.api.plan import Planned, read_plan
from nnapi_prof.api.result import Result
from nnapi_prof.device.protocol.description import description_parts
from nnapi_prof.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.reports.data import ReportData


@dataclass(frozen=True)
class Comparison:
    """Plans beside each other, each with a name; the others are compared with the first.

    :func:`nnapi_prof.compare` makes one.
    """

    sides: Mapping[str, Planned | Result] = field(repr=False)
    """Name -> plan, run or not; in order."""

    def frame(self) -> pd.DataFrame:
        """One row for each side: ``name``, ``model``, ``device``, ``segments`` (how many),
        ``predicted_ms``, ``measured_ms`` (NaN where it was not run), ``all_cpu_ms`` (measured where
        the plan was, else predicted), ``against_first`` (latency as a multiple of the first's),
        ``simulated``, ``estimated``."""
        import pandas as pd

        rows = [_row(name, side) for name, side in self.sides.items()]
        table = pd.DataFrame(rows)
        latency = table["measured_ms"].fillna(table["predicted_ms"])
        if table["measured_ms"].isna().any():  # what was measured is not compared with predictions
            latency = table["predicted_ms"]
        table.insert(7, "against_first", latency / latency.iloc[0])
        return table

    def units(self) -> pd.DataFrame:
        """One row for each unit of the model, a column for each side: the target that it runs on.

        Raises UsageError where the sides are of different models.
        """
        import pandas as pd

        plans = {name: _planned(side) for name, side in self.sides.items()}
        first = next(iter(plans.values())).model.graph
        table = {
            "unit": [unit.index for unit in first.units],
            "label": [unit.label for unit in first.units],
        }
        for name, planned in plans.items():
            if [u.signature for u in planned.model.graph.units] != [
                u.signature for u in first.units
            ]:
                raise UsageError(f"{name} is another model: units are compared of one model")
            where = {u: s.target.key for s in planned.plan.segments for u in s.units}
            table[name] = [where[unit.index] for unit in first.units]
        return pd.DataFrame(table)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the comparison as ``.html`` or ``.md``, with what changed; returns its path.

        Raises UsageError where it cannot be written, or a side was only estimated.
        """
        from nnapi_prof.api.report import write

        return write(Path(path), [(name, _data(side)) for name, side in self.sides.items()])

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.sides)})"

    def _repr_html_(self) -> str:
        rows = []
        kinds = {
            notebook.kind_of(side.simulated, _planned(side).estimated)
            for side in self.sides.values()
        }
        for row in self.frame().to_dict("records"):
            side = self.sides[str(row["name"])]
            kind = notebook.kind_of(side.simulated, _planned(side).estimated)
            cells = (_number(row[key], kind, len(kinds)) for key in ("predicted_ms", "measured_ms"))
            ratio = f"{row['against_first']:.2f}x"
            rows.append([row["name"], row["device"], str(row["segments"]), *cells, ratio])
        unit = kinds.pop() if len(kinds) == 1 else "ms"
        heads = ("plan", "device", "segments", f"predicted, {unit}", f"measured, {unit}")
        return notebook.table(
            "Plans side by side", [*heads, "against the first"], rows, numbers=(2, 3, 4, 5)
        )


def compare(
    sides: Mapping[str, Planned | Result | str | os.PathLike[str]]
    | Sequence[Planned | Result | str | os.PathLike[str]],
) -> Comparison:
    """Puts plans side by side: of preferences, devices, dates, objectives or models.

    ``sides`` are results of :func:`nnapi_prof.run`, plans of :func:`nnapi_prof.partition`, or
    folders of bundles; a mapping names them, a sequence is named by model and device.

    Raises UsageError where there are fewer than two.
    """
    if isinstance(sides, Mapping):
        named = {name: _read(side) for name, side in sides.items()}
    else:
        named = {}
        for side in map(_read, sides):
            name = f"{_planned(side).model.name} on {description_parts(side.device)[0]}"
            alike = sum(earlier_name.partition(", no. ")[0] == name for earlier_name in named)
            named[f"{name}, no. {alike + 1}" if alike else name] = side
    if len(named) < 2:
        raise UsageError(f"a comparison takes two or more, {len(named)} given")
    return Comparison(named)


def _read(side: Planned | Result | str | os.PathLike[str]) -> Planned | Result:
    if isinstance(side, Planned | Result):
        return side
    from nnapi_prof.execution.report import last

    planned, ran = read_plan(side), last(Path(side))
    return planned if ran is None else Result(planned, ran)


def _planned(side: Planned | Result) -> Planned:
    return side.planned if isinstance(side, Result) else side


def _data(side: Planned | Result) -> ReportData:
    return side.report_data()


def _row(name: str, side: Planned | Result) -> dict[str, object]:
    planned = _planned(side)
    ran = isinstance(side, Result)
    latencies = side.frame()
    column = "measured_ms" if ran else "predicted_ms"
    on_cpu = latencies.loc[latencies["plan"] == "all-cpu", column]
    return {
        "name": name,
        "model": planned.model.name,
        "device": side.device,
        "segments": len(planned.plan.segments),
        "predicted_ms": side.predicted_ms if isinstance(side, Result) else side.latency_ms,
        "measured_ms": side.latency_ms if ran else float("nan"),
        "all_cpu_ms": on_cpu.iloc[0] if len(on_cpu) else float("nan"),
        "simulated": side.simulated,
        "estimated": planned.estimated,
    }


def _number(ms: float, kind: str, kinds: int) -> str:
    """A cell's latency; labelled where the sides are not all of one kind."""
    if ms != ms:
        return "–"
    return f"{ms:.3f}" if kinds == 1 else f"{ms:.3f} ({kind})"
