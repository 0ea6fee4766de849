"""Builds the proof of a plan in documents."""

from __future__ import annotations

from nnapi_prof.documents import schema as s

PROOF = s.described(
    s.nullable(
        s.obj(
            kind=s.described(
                s.choice("exact", "bound_met", "gap"),
                "every plan was looked at or ruled out, a lower bound is met, or lies below",
            ),
            least_ns=s.described(
                s.NUMBER, "of the best plan found; this one may have fewer segments"
            ),
            bound_ns=s.described(s.NUMBER, "no plan takes less"),
            gap=s.described(
                s.NUMBER_OR_NULL,
                "how far the best plan can be above the optimum, relative; 0 if proven, null where"
                " nothing is known",
            ),
            found_by=s.described(s.TEXT, "the step of the search that found the best plan"),
            bounded_by=s.described(s.TEXT, "the step that proved the bound"),
            constrained=s.described(s.TRUTH, "it covers plans that meet the constraints"),
            objective=s.described(
                s.TEXT_OR_NULL,
                "what least_ns and bound_ns are millionths of, as `energy in mJ`; null for latency",
            ),
        )
    ),
    "what is proven about the least latency; null for baselines",
)
