"""The origin of an estimate for a chip: simulator, calibration, band, doubts, and what to run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.headline import PHONE_DECIDES
from nnapi_prof.reports.sections import Section
from nnapi_prof.reports.words import calibration_words, count, format_percent, plan_words


def rows(data: ReportData) -> Sequence[Sequence[str]]:
    """Facts; empty of costs that no simulator estimated."""
    origin = data.origin
    if origin is None:
        return []
    fit = origin.calibration
    off = sorted(abs(error) for error in origin.region_errors)
    facts = [
        ("the NPU's times", calibration_words(fit)),
        (
            "nine of ten networks",
            f"lie between {format_percent(1 - math.exp(-fit.spread))} below and"
            f" {format_percent(math.exp(fit.spread) - 1)} above their estimate",
        ),
        (
            "each invocation",
            "costs what the fit to published times says: the simulator does not know it",
        ),
        ("the CPU", f"is estimated for {origin.cpu}"),
    ]
    if off:
        facts.append(
            (
                "sums of units",
                f"were {format_percent(median(off))} off in the median, {format_percent(off[-1])}"
                f" at worst, for {count(len(off), 'region')} that nothing was fitted to",
            )
        )
    whole = "all compiled whole" if origin.stable else "not all compiled whole: the others are sums"
    facts.append(("the plan's regions", f"on the NPU are {whole}"))
    if ties := origin.ties(data.plans):
        named = ", ".join(plan_words(name, separator=", ") for name in ties)
        facts.append(("ties", f"{named}: less than {fit.tie:.0%} behind, within the error"))
    facts += [
        (f"doubt about {label}", text) for label, own in origin.doubts.items() for text in own
    ]
    facts += [(f"no estimate of {label}", why) for label, why in origin.failures.items()]
    facts.append(("what decides", f"nothing here was measured. {PHONE_DECIDES}"))
    return facts


SECTION = Section("estimate", "Estimate", "How this was estimated", rows)
