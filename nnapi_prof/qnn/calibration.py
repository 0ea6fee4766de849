"""Convert simulated times to a phone's, by published measurements on its chip.

A chip's time is ``a + b x``: ``a`` is the overhead of an invocation, which the simulator does not
know, ``x`` the simulated time (:attr:`.Chip.weights`). The line passes through the smallest
published network, whose time is mostly overhead; ``b`` minimises the relative error, robustly, over
networks of Qualcomm AI Hub Models. In int8 ``a`` is fitted, too, as no such network is published.
``data/published.json`` has these rows with their source. It has simulated times only as ratios to a
published one.

The band is that of split conformal prediction over leave-one-out errors (Barber et al., 2021,
*Predictive inference with the jackknife+*): nine of ten networks lie in it. :class:`ChipOrigin`
says where chip costs come from and how far to trust them.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import Plan
from nnapi_prof.qnn import CHIPS, PREFIX, Chip, NpuGeneration, QnnPrecision

COVERAGE = 0.9
"""Share of networks whose measured time should lie within the band."""
ROBUST = 0.03
"""Relative error beyond which errors count linearly, and below quadratically (soft L1)."""
BORROWED = 2.0
"""Factor on the band where the fit is another chip's or another compiler's."""
FEWEST = 8
"""Smallest number of published networks for a fit."""
MOST_APART = 4.2
"""Largest plausible ratio of v73 to v81: networks with good estimates had 1.8 to this. Beyond it
the graph has a form that v73's simulation handles badly, but no chip was seen to."""
MOST_WORK = 0.8
"""Largest share of the smallest network's time that is not overhead; a guard, which no chip with
published rows reaches."""
TIE = 0.15
"""Smallest relative gain that estimates can show, whatever the band."""


@dataclass(frozen=True, slots=True)
class ChipCalibration:
    """Conversion from simulated times to a chip's, and its errors."""

    chip: str
    precision: QnnPrecision
    overhead_ns: float
    """``a``: overhead of each invocation."""
    slope: float
    """``b``."""
    networks: int
    """Number of published networks that this was fitted to."""
    median_error: float
    """Median relative error of networks left out of the fit."""
    worst_error: float
    within_quarter: float
    """Share of networks left out that were off by 25 % at most."""
    spread: float
    """Half the width of the band, in natural logarithms."""
    device: str
    """The published device."""
    borrowed: bool
    """The fit is another chip's, or for another version of the compiler."""
    qairt: str
    """Version of the simulator that the rows were simulated with."""
    measured_qairt: str
    """Version of the compiler on the devices."""

    def region_ns(self, x_ns: float) -> float:
        """Converts the simulated time of a region to the phone's, without the invocation."""
        return self.slope * x_ns

    def whole_ns(self, x_ns: float, invocations: int = 1) -> float:
        return self.overhead_ns * invocations + self.region_ns(x_ns)

    def band(self, ns: float) -> tuple[float, float]:
        """Returns the bounds that nine of ten published networks lie in."""
        return ns * math.exp(-self.spread), ns * math.exp(self.spread)

    @property
    def order_only(self) -> bool:
        """Whether its errors are so large that only the order of times counts."""
        return self.median_error > 0.1

    @property
    def tie(self) -> float:
        """Smallest relative gain that the estimate can show."""
        return max(TIE, 2 * self.median_error)


def mean_ns(chip: Chip, simulated: Mapping[NpuGeneration, float]) -> float:
    """Returns the weighted geometric mean of simulated times that predicts this chip, in ns; v73's
    counts as :data:`MOST_APART` times v81's at most."""
    most = MOST_APART * simulated[NpuGeneration.V81]
    return math.exp(sum(weight * math.log(min(simulated[s], most)) for s, weight in chip.weights))


@functools.cache
def published() -> dict[str, Any]:
    """Returns the published rows in the package (``data/published.json``)."""
    file = importlib.resources.files("nnapi_prof.qnn") / "data" / "published.json"
    return dict(json.loads(file.read_text(encoding="utf-8")))


def rows(
    chip: Chip, precision: QnnPrecision
) -> tuple[list[str], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns names, simulated and published times (ns) of the networks published for a chip."""
    data = published()
    reference = data["reference"]
    names, x, t = [], [], []
    for name, one in data["networks"].items():
        part = one.get(precision.value, {})
        ms, ratios = part.get("published_ms", {}), part.get("simulated_to_reference")
        if ratios is None or chip.calibrated_on not in ms:
            continue
        base = ms[reference] * 1e6
        times = {s: ratios[s.value] * base for s in NpuGeneration}
        names.append(name)
        x.append(mean_ns(chip, times))
        t.append(ms[chip.calibrated_on] * 1e6)
    return names, np.array(x), np.array(t)


def smallest_network(chip: Chip, precision: QnnPrecision) -> tuple[float, float] | None:
    """Returns the simulated and the published time of the smallest network on a chip, in ns; None
    where none is published."""
    data = published()
    ms = data["smallest_ms"].get(precision.value, {})
    if chip.calibrated_on not in ms:
        return None
    ratios, base = data["smallest_to_reference"][precision.value], ms[data["reference"]] * 1e6
    simulated = mean_ns(chip, {s: ratios[s.value] * base for s in NpuGeneration})
    return simulated, ms[chip.calibrated_on] * 1e6


def fit(
    x: np.ndarray[Any, Any],
    t: np.ndarray[Any, Any],
    smallest: tuple[float, float] | None = None,
) -> tuple[float, float]:
    """Returns ``a`` and ``b`` of ``t = a + b x``, both positive, that minimise the soft L1 norm of
    ``log((a + b x) / t)``; all in ns. The line passes through ``smallest``, an ``(x, t)``, if that
    is known."""
    from scipy.optimize import least_squares

    def line(p: np.ndarray[Any, Any]) -> tuple[float, float]:
        b = math.exp(p[0])
        if smallest is None:
            return math.exp(p[1]), b
        b = min(b, MOST_WORK * smallest[1] / smallest[0])
        return smallest[1] - b * smallest[0], b

    def errors(p: np.ndarray[Any, Any]) -> Any:
        a, b = line(p)
        return np.log((a + b * x) / t)

    start = [float(np.median(np.log(t / x)))]
    if smallest is None:
        start.append(math.log(0.5 * t.min()))
    return line(least_squares(errors, np.array(start), loss="soft_l1", f_scale=ROBUST).x)


def leave_one_out(
    x: np.ndarray[Any, Any],
    t: np.ndarray[Any, Any],
    smallest: tuple[float, float] | None = None,
) -> np.ndarray[Any, Any]:
    """Returns ``log(predicted / measured)`` of each network, predicted from all others."""
    result = []
    for i in range(len(x)):
        others = np.arange(len(x)) != i
        a, b = fit(x[others], t[others], smallest)
        result.append(math.log((a + b * x[i]) / t[i]))
    return np.array(result)


def spread_of(log_errors: Sequence[float] | np.ndarray[Any, Any]) -> float:
    """Returns the conformal quantile of errors, the ``ceil((n + 1) COVERAGE)``-th smallest size."""
    ordered = np.sort(np.abs(log_errors))
    place = min(math.ceil((len(ordered) + 1) * COVERAGE), len(ordered))
    return float(ordered[place - 1])


@functools.cache
def calibrate(chip: Chip, precision: QnnPrecision, qairt: str) -> ChipCalibration:
    """Returns the fit for a chip, or for the one nearest to it with a band twice as wide.

    ``qairt`` is the version of the simulator that is installed. Raises CostError where too few
    networks were published to fit to.
    """
    source = chip if chip.calibrated_on is not None else CHIPS[str(chip.nearest)]
    _, x, t = rows(source, precision)
    if len(x) < FEWEST:
        raise CostError(
            f"{len(x)} networks were published in {precision.value} for {source.name}, too few to"
            " fit to",
            f"use /fp16, or a chip of a later generation than {chip.name}",
        )
    data = published()
    borrowed = source is not chip or qairt != data["simulated_with"]
    smallest = smallest_network(source, precision)
    errors = leave_one_out(x, t, smallest)
    relative = np.abs(np.expm1(errors))
    a, b = fit(x, t, smallest)
    return ChipCalibration(
        chip=chip.name,
        precision=precision,
        overhead_ns=a,
        slope=b,
        networks=len(x),
        median_error=float(np.median(relative)),
        worst_error=float(relative.max()),
        within_quarter=float((relative <= 0.25).mean()),
        spread=spread_of(errors) * (BORROWED if borrowed else 1.0),
        device=str(source.calibrated_on),
        borrowed=borrowed,
        qairt=str(data["simulated_with"]),
        measured_qairt=str(data["measured_with"]),
    )


@dataclass(frozen=True)
class ChipOrigin:
    """The compiler, calibration and phone behind costs on a chip, and doubts about them."""

    calibration: ChipCalibration
    cpu: str
    """Name of the phone whose CPU accompanies the NPU, for display."""
    stable: bool = True
    """Every region of the plan was compiled whole."""
    region_errors: tuple[float, ...] = ()
    """Relative errors of sums of units, for regions that were not part of the fit."""
    doubts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label of a unit or a region -> doubts about its estimate, in sentences."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Label -> why there is no estimate."""

    @property
    def device(self) -> str:
        """The name that ``--device`` takes for it."""
        fit = self.calibration
        return f"{PREFIX}{fit.chip}/{fit.precision.value}"

    def ties(self, plans: Sequence[Plan]) -> tuple[str, ...]:
        """Returns the names of rivals that the first plan beats by less than :attr:`.tie`."""
        best = plans[0]
        return tuple(
            plan.name
            for plan in plans[1:]
            if best.predicted_ns
            and plan.predicted_ns / best.predicted_ns - 1 < self.calibration.tie
            and _placement(plan) != _placement(best)
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the members that :meth:`from_json` reads."""
        fit = asdict(self.calibration) | {"precision": self.calibration.precision.value}
        return asdict(replace(self, calibration=None)) | {"calibration": fit}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ChipOrigin:
        """Reads ``to_json``'s members. Raises KeyError, TypeError or ValueError for others."""
        fit = dict(data["calibration"])
        return cls(
            calibration=ChipCalibration(**fit | {"precision": QnnPrecision(fit["precision"])}),
            cpu=str(data["cpu"]),
            stable=bool(data["stable"]),
            region_errors=tuple(map(float, data["region_errors"])),
            doubts={str(k): tuple(map(str, words)) for k, words in data["doubts"].items()},
            failures={str(k): str(words) for k, words in data["failures"].items()},
        )


def _placement(plan: Plan) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple(sorted((segment.units, segment.target.key) for segment in plan.segments))
