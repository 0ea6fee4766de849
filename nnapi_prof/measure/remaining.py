"""How many measurements the phases after the present one may need: for the time left only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nnapi_prof.costs.measurement import Key
from nnapi_prof.graph.plan import Target
from nnapi_prof.measure.grid import Job

REFINING = 0.2
"""Measurements of refining by those before it: 0.19 (47 to 247) and 0.42 (74 to 175) in profiles of
MobileNetV2 on two simulated phones."""


def expected_later(
    units: Sequence[Job],
    chains: Sequence[Job],
    leaders: Collection[Target],
    have: Collection[Key],
    refine: bool,
) -> Mapping[str, int]:
    """Phase -> measurements that are expected after it.

    Chains are measured on targets that a plan may use, of which ``leaders`` are the most; refining
    follows where anything before it was new. Under other preferences and in refining nobody can
    know.
    """

    def new(jobs: Sequence[Job]) -> int:
        return sum(job.key not in have and job.spec.target in leaders for job in jobs)

    n_chains = new(chains)
    last = round(REFINING * (new(units) + n_chains)) if refine else 0
    n_units = new(units)
    return {
        "trial": n_units + n_chains + last,
        "units": n_chains + last,
        "preferences": n_chains + last,
        "chains": last,
    }
