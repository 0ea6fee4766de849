"""Choose few plans of a model that are good on many phones, as a package outside the core.

The core does not import it: an entry point adds the command, its public name loads the function.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nnapi_prof.execution.objectives import ValidatedOptions, seconds_option
from nnapi_prof.options import option


@dataclass(frozen=True, kw_only=True)
class FleetOptions(ValidatedOptions):
    """Options of :func:`nnapi_prof.fleet`."""

    k: int = field(
        default=3, metadata=option("Largest number of plans.", 1, 16, flag="-k, --plans")
    )
    objective: str = field(
        default="mean",
        metadata=option(
            "Regret to minimise: the weighted mean of all phones, or the largest.",
            choices=("mean", "worst"),
        ),
    )
    seconds: float | None = seconds_option("the search for plans", "120")
