"""Clocks, temperatures and throttling of a device while it was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.rounds import Round

HISTORY_COLUMNS = (
    "measurement", "measured_at", "label", "target", "round", "runs", "mhz_before", "mhz_after",
    "celsius_before", "celsius_after", "throttled", "repeats",
)  # fmt: skip


@dataclass(frozen=True)
class Readings:
    """What the device told in all rounds; ``(lowest, median, highest)``, None where it is mute."""

    measurements: int
    rounds: int
    mhz: tuple[float, float, float] | None
    celsius: tuple[float, float, float] | None
    throttled: int
    """Rounds during which the device was held back by heat."""
    tells_throttling: bool
    repeated: int
    """Rounds that were measured again, after waiting, for one that was throttled."""


def history_frame(measurements: Iterable[Measurement]) -> pd.DataFrame:
    """One row a round, measurements in the order in which they were made (numbered from 1).

    A measurement that kept no rounds has one row with its own readings. ``throttled`` is None where
    the device does not tell.
    """
    rows = []
    ordered = sorted(measurements, key=lambda m: m.measured_at)
    for number, m in enumerate(ordered, start=1):
        whole = Round(
            len(m.samples_ns),
            (m.cpu_khz_before, m.cpu_khz_after),
            (m.thermal_mc_before, m.thermal_mc_after),
        )
        for index, each in enumerate(m.rounds or (whole,)):
            rows.append(
                {
                    "measurement": number,
                    "measured_at": m.measured_at,
                    "label": m.label,
                    "target": m.target.key,
                    "round": index,
                    "runs": each.runs,
                    "mhz_before": _thousandth(each.cpu_khz[0]),
                    "mhz_after": _thousandth(each.cpu_khz[1]),
                    "celsius_before": _thousandth(each.thermal_mc[0]),
                    "celsius_after": _thousandth(each.thermal_mc[1]),
                    "throttled": each.throttled,
                    "repeats": each.repeats,
                }
            )
    frame = pd.DataFrame(rows, columns=list(HISTORY_COLUMNS))
    return frame.astype({"throttled": object, "repeats": object})


def readings(history: pd.DataFrame) -> Readings:
    """The history in a few numbers."""
    told = history["throttled"].notna()
    return Readings(
        measurements=int(history["measurement"].nunique()),
        rounds=len(history),
        mhz=_spread(history, "mhz"),
        celsius=_spread(history, "celsius"),
        throttled=int((history["throttled"] == True).sum()),  # noqa: E712 - None is neither
        tells_throttling=bool(told.any()),
        repeated=int(history["repeats"].notna().sum()),
    )


def doubtful(measurements: Iterable[Measurement]) -> list[dict[str, str | float]]:
    """The measurements that a reader should not trust blindly, worst spread first."""
    rows: list[dict[str, str | float]] = [
        {
            "label": m.label,
            "target": m.target.key,
            "median_ms": m.summary.median_ns / 1e6,
            "spread": m.summary.relative_spread,
            "flags": "; ".join(m.flags),
        }
        for m in measurements
        if m.usable and m.flags
    ]
    return sorted(rows, key=lambda row: -float(row["spread"]))


def _spread(history: pd.DataFrame, name: str) -> tuple[float, float, float] | None:
    known = pd.concat([history[f"{name}_before"], history[f"{name}_after"]]).dropna()
    if known.empty:
        return None
    return float(known.min()), float(known.median()), float(known.max())


def _thousandth(value: int | None) -> float:
    return math.nan if value is None else value / 1000
