"""Frames per second of a model on processors that work at once: predicted, with what is proven."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nnapi_prof.api import notebook
from nnapi_prof.api import options as arguments
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.events import Listener, Progress, to_log
from nnapi_prof.api.model import Model, loaded
from nnapi_prof.api.plan_search import PLANNING
from nnapi_prof.costs.contention import ASSUMED, Basis, Slowdowns, given
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.profile.options import tell_planning
from nnapi_prof.partition import SearchLimits, ThroughputPlan, plan_throughput
from nnapi_prof.partition.queues import Dispatch

if TYPE_CHECKING:
    import pandas as pd

MOST_IN_FLIGHT = 63
"""The runtime library's queue has room for no more."""
DISPATCHES = (Dispatch.OLDEST,)
"""What the runtime library's queue does."""
PREDICTED: Mapping[Basis, str] = {
    basis: f"predicted from costs that were measured one at a time; {words}"
    for basis, words in {
        Basis.MEASURED: "how processors slow each other down was measured",
        Basis.PARTLY: "how some processors slow each other down was measured, of the others it is"
        f" assumed: {ASSUMED:g} times",
        Basis.ASSUMED: f"that processors slow each other down {ASSUMED:g} times is assumed",
        Basis.GIVEN: "how processors slow each other down was given",
    }.items()
}


@dataclass(frozen=True)
class Throughput:
    """Plans of most frames per second, and their rivals; :func:`nnapi_prof.throughput` makes one.

    All of it is predicted from costs that were measured one at a time, and from a contention.
    """

    model: Model
    device: str
    """The device that it is for, for people."""
    plan: ThroughputPlan = field(repr=False)
    """The plans with their shares, what they load each processor with, and the curve."""
    contention: Slowdowns
    """What it was planned with, and whether that was measured."""
    simulated: bool
    estimated: bool
    """Nothing of its costs was measured."""

    @property
    def frames_per_second(self) -> float:
        """Predicted, with as many frames in flight as were asked for."""
        return self.plan.frames_per_second

    @property
    def most_per_second(self) -> float:
        """No plans and no order of frames do more, by these costs."""
        return self.plan.most_per_second

    @property
    def baselines(self) -> dict[str, float]:
        """What else one could do -> frames per second, with any number of frames in flight."""
        return {rate.rule.value: rate.frames_per_second for rate in self.plan.baselines}

    def curve(self) -> pd.DataFrame:
        """Frames per second and latency (ms) by frames in flight."""
        import pandas as pd

        return pd.DataFrame(
            {
                "frames_in_flight": point.frames_in_flight,
                "frames_per_second": point.frames_per_second,
                "latency_ms": point.latency_ns[0] / 1e6,
                "latency_95_ms": point.latency_ns[1] / 1e6,
                "memory_bytes": point.memory_bytes,
                "how": point.rate.rule.value,
            }
            for point in self.plan.curve
        )

    def __repr__(self) -> str:
        kind = notebook.kind_of(self.simulated, self.estimated)
        return (
            f"Throughput({self.model.name!r} on {self.device!r}, {self.frames_per_second:.4g}"
            f" frames/s by {self.plan.rule.value}, predicted, {kind})"
        )

    def _repr_html_(self) -> str:
        rows = [
            [self.plan.rule.value, f"{self.frames_per_second:.4g}"],
            *([rule, f"{rate:.4g}"] for rule, rate in self.baselines.items()),
            ["no plans do more than", f"{self.most_per_second:.4g}"],
        ]
        return notebook.table(
            f"{self.model.name} on {self.device}", ["how", "frames/s"], rows, numbers=(1,)
        ) + notebook.notes([PREDICTED[self.contention.basis]])


def throughput(
    model: Model | str | os.PathLike[str],
    costs: Costs,
    *,
    contention: float | Mapping[tuple[str, str], float] | None = None,
    frames_in_flight: int | None = None,
    max_latency_ms: float | None = None,
    max_memory_mb: int | None = None,
    seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Throughput:
    """Predicts how many frames a second a model's processors can do at once, and by which plans.

    The plans are a mixture: each frame takes one of them. ``costs`` are those of
    :func:`nnapi_prof.profile` or :func:`nnapi_prof.read_costs`. ``contention`` says how many times
    as long a processor takes while another one is busy: one number for all, or (processor, the
    other one) -> number, processors being ``"cpu"`` and the accelerators' names; None: that of the
    costs, which ``profile(beside=True)`` measured or which is assumed.
    ``frames_in_flight`` limits the frames that wait or run at once (None: any number),
    ``max_latency_ms`` what 95 % of frames take, ``max_memory_mb`` the weights on all processors and
    what frames in flight hand over. Planning takes ``seconds`` at most (None: 30) and a second or
    two of simulated queues; Ctrl-C ends it with the best plans until then. ``progress`` and
    ``listener`` are those of :func:`nnapi_prof.profile`.

    Raises UsageError where an argument is none, PartitionError where a unit runs on no processor
    of the device, or nothing keeps to what is asked.
    """
    listener = listener or to_log(progress)
    chosen = loaded(model)
    arguments.number("frames_in_flight", frames_in_flight, 1, MOST_IN_FLIGHT)
    arguments.number("max_latency_ms", max_latency_ms, 0)
    arguments.number("max_memory_mb", max_memory_mb, 1)
    arguments.number("seconds", seconds, 0)
    if not isinstance(contention, Mapping):
        arguments.number("contention", contention, 1)
    if not isinstance(costs, Costs):
        raise UsageError(f"costs are a {type(costs).__name__}: those of profile() are wanted")
    if costs.model.graph != chosen.graph:
        raise UsageError(f"these costs are of {costs.model!r}, not of {chosen!r}: profile it")
    if costs.objective is not None:
        raise UsageError(
            f"these costs are {costs.objective}: frames per second are of latencies, give the costs"
            " that they were adjusted from"
        )
    slower = costs.contention if contention is None else given(costs.priced.targets, contention)
    with listener.working("planning"):
        plan = plan_throughput(
            chosen.graph,
            costs.priced,
            contention=slower.factors,
            frames_in_flight=frames_in_flight,
            max_latency_ns=None if max_latency_ms is None else max_latency_ms * 1e6,
            max_memory_bytes=None if max_memory_mb is None else max_memory_mb * 1_000_000,
            dispatches=DISPATCHES,
            limits=None if seconds is None else SearchLimits(seconds),
            report=tell_planning(lambda *told: listener.progress(Progress(*told)), PLANNING),
        )
    return Throughput(chosen, costs.device, plan, slower, costs.simulated, costs.estimated)
