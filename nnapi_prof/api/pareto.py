"""Latency against accuracy: targets and precisions of all regions, chosen together."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from nnapi_prof.api import options as arguments
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.events import Listener, Progress, to_log
from nnapi_prof.api.front import Pareto
from nnapi_prof.api.model import Model, loaded
from nnapi_prof.errors import UsageError, spelled
from nnapi_prof.partition import SearchLimits

ACCURACY_S = 120.0
"""Measuring errors may take so many seconds, about."""


def pareto(
    model: Model | str | os.PathLike[str],
    costs: Costs,
    *,
    metric: str = "relative",
    budgets: Sequence[float] = (),
    seconds: float | None = None,
    accuracy_s: float = ACCURACY_S,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Pareto:
    """Latency against accuracy: for every budget of error the fastest plan, targets and precisions
    of its regions chosen together, and what simple rules give beside it.

    ``costs`` are of :func:`nnapi_prof.profile` with ``precisions``. The error of each unit in each
    precision, and that of every plan, is measured on the calibration data by running it on this
    host in NNAPI's own arithmetic, with as many samples as ``accuracy_s`` seconds allow about (two
    at least). ``metric`` is what an error is: ``relative`` (root mean square of outputs less their
    mean), ``mean``, ``largest``, ``cosine``, ``top1``, or ``"module:function"`` of outputs and
    targets. Plans are searched for within ``budgets`` (0.02: 2 %), and within usual ones beside;
    each search may take ``seconds`` (None: 10). ``progress`` and ``listener`` are those of
    :func:`nnapi_prof.profile`.

    Raises UsageError where the costs know one precision only, or the metric does not fit.
    """
    from nnapi_prof.api.front_search import search_front

    for budget in budgets:
        arguments.number("budgets", budget, 0)
    arguments.number("seconds", seconds, arguments.LEAST_SECONDS, arguments.MOST_SECONDS)
    arguments.number("accuracy_s", accuracy_s, 0)
    if loaded(model).graph != costs.model.graph:
        raise UsageError(f"these costs are of {costs.model!r}, not of {model!r}: profile it")
    if costs.calibration is None or len(costs.precisions) < 2:
        raise UsageError(
            spelled(
                "the front needs costs in several precisions: name them with --precisions",
                "these costs know one precision only: profile(model, ..., precisions=['float32',"
                " 'relaxed', 'int8'])",
            )
        )
    limits = SearchLimits() if seconds is None else SearchLimits(seconds=seconds)
    return search_front(costs, metric, budgets, limits, accuracy_s, listener or to_log(progress))
