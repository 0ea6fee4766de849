"""The origin of a chip's costs: what a reader must know before he believes one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nnapi_prof.graph.plan import Plan
from nnapi_prof.qnn.calibration import ChipCalibration
from nnapi_prof.qnn.chips import PREFIX, QnnPrecision


@dataclass(frozen=True)
class ChipOrigin:
    """The compiler, calibration and phone behind costs on a chip, and what is odd about them."""

    calibration: ChipCalibration
    cpu: str
    """The phone whose CPU stands beside the NPU, for people."""
    stable: bool = True
    """Every region of the plan was compiled whole."""
    region_errors: tuple[float, ...] = ()
    """Relative errors of sums of units, of regions that nothing was fitted to."""
    doubts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label of a unit or a region -> what is odd about its estimate, in sentences."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Label -> why there is no estimate."""

    @property
    def device(self) -> str:
        """The name that ``--device`` takes for it."""
        fit = self.calibration
        return f"{PREFIX}{fit.chip}/{fit.precision.value}"

    def ties(self, plans: Sequence[Plan]) -> tuple[str, ...]:
        """Names of rivals that the first plan beats by less than the estimate can see."""
        best = plans[0]
        return tuple(
            plan.name
            for plan in plans[1:]
            if best.predicted_ns
            and plan.predicted_ns / best.predicted_ns - 1 < self.calibration.tie
            and _placement(plan) != _placement(best)
        )

    def to_json(self) -> dict[str, Any]:
        """The members of :meth:`from_json`."""
        fit = asdict(self.calibration) | {"precision": self.calibration.precision.value}
        return asdict(replace(self, calibration=None)) | {"calibration": fit}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ChipOrigin:
        """Raises KeyError, TypeError or ValueError where it is none."""
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
