"""What targets refuse, as one table: operation, reason, how many units, which targets."""

from __future__ import annotations

import pandas as pd

from nnapi_prof.costs.region import CostModel
from nnapi_prof.reports.frames import all_targets
from nnapi_prof.reports.words import targets_words

REFUSAL_COLUMNS = ("operation", "reason", "n_units", "units", "targets", "where")


def refusals_by_reason(costs: CostModel) -> pd.DataFrame:
    """One row for each operation and reason, the most frequent first.

    ``units`` are those that met it, ascending, ``targets`` the keys of the targets that gave it,
    ``where`` the same in words.
    """
    every = [target.key for target in all_targets(costs)]
    units: dict[tuple[str, str], set[int]] = {}
    targets: dict[tuple[str, str], dict[str, None]] = {}
    for (unit, target), sentence in sorted(costs.refusals.items()):
        operation = costs.graph.units[unit].label.partition(" ")[0]
        place = operation, sentence.removeprefix("refused: ")
        units.setdefault(place, set()).add(unit)
        targets.setdefault(place, {})[target.key] = None
    rows = [
        {
            "operation": operation,
            "reason": reason,
            "n_units": len(found),
            "units": tuple(sorted(found)),
            "targets": tuple(targets[operation, reason]),
            "where": targets_words(targets[operation, reason], every),
        }
        for (operation, reason), found in sorted(
            units.items(), key=lambda item: (-len(item[1]), min(item[1]))
        )
    ]
    return pd.DataFrame(rows, columns=list(REFUSAL_COLUMNS))
