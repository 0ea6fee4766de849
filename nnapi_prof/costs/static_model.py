"""What an operation takes on one target, from its shapes: a roofline and a smooth correction.

    latency = sum over operations (o) of roof(o) * exp(correction(o) + forest(o))
              + invocation + in_bytes * per_in_byte + out_bytes * per_out_byte
    roof    = operation_ns + macs * ns_per_mac[kind] + moved * ns_per_byte
              + gathered * ns_per_gathered_byte

The correction is a kernel regression (Matern 3/2 and a linear part) over
:data:`nnapi_prof.costs.static_work.FEATURES` with a few centres. The more an operation is unlike
all that the model was fitted to, the more the stated error becomes that of the roofline alone. The
forest (:mod:`nnapi_prof.costs.static_forest`) is there where tables were long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nnapi_prof.costs.static_bands import ErrorBounds
from nnapi_prof.costs.static_forest import Forest
from nnapi_prof.costs.static_work import Floats, Sample, Work, raw_inputs

LINEAR_WEIGHT = 0.1
"""Prior variance of the linear part's slopes against the kernel's variance of 1."""
FREE = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})
"""Operations that compute and move nothing worth speaking of."""
MOVERS = frozenset({"TRANSPOSE", "PAD", "STRIDED_SLICE", "SLICE", "CONCATENATION", "SPLIT"})
"""Operations that move data and compute nothing."""
SMALL, MOVED_OFF = 0.05, 4.0
MOST_CORRECTION = math.log(4)
"""A correction is at most fourfold, either way: beyond that it is extrapolation."""


@dataclass(frozen=True)
class Roof:
    """The prices of an operation."""

    operation_ns: float
    ns_per_byte: float
    ns_per_mac: Mapping[str, float]
    """By :attr:`Work.rate`; "default" for the others."""
    ns_per_gathered_byte: float = 0.0
    """Of :attr:`Work.gathered`."""

    def ns(self, work: Work) -> float:
        rate = self.ns_per_mac.get(work.rate)
        if rate is None:
            rate = self.ns_per_mac["default"]
        bytes_ns = work.moved * self.ns_per_byte + work.gathered * self.ns_per_gathered_byte
        return self.operation_ns + work.macs * rate + bytes_ns


@dataclass(frozen=True)
class Correction:
    """log(latency / roof) as a function of features and kind."""

    kinds: tuple[str, ...]
    """Of :attr:`Work.rate`: each is a feature of its own, next to the others."""
    mean: Floats = field(repr=False)
    scale: Floats = field(repr=False)
    """Features are (raw - mean) * scale; 0 where the fitted rows did not differ."""
    length: float
    """Of the kernel, in scaled features: how far what was measured speaks for others."""
    centres: Floats = field(repr=False)
    """[m, features], scaled."""
    weights: Floats = field(repr=False)
    """[m + features + 1]: of the centres, of the slopes, of one constant."""

    def inputs(self, works: Sequence[Work]) -> Floats:
        """[n, features], scaled."""
        return scaled(works, self.kinds, self.mean, self.scale)

    def basis(self, x: Floats) -> Floats:
        """[n, m + features + 1] for scaled features."""
        return np.hstack([kernel(x, self.centres, self.length), linear(x)])

    def log_ratio(self, works: Sequence[Work]) -> Floats:
        found: Floats = self.basis(self.inputs(works)) @ self.weights
        return np.clip(found, -MOST_CORRECTION, MOST_CORRECTION)

    def familiar(self, works: Sequence[Work]) -> Floats:
        """0 to 1: how near to a centre each operation is."""
        near: Floats = kernel(self.inputs(works), self.centres, self.length).max(axis=1, initial=0)
        return near


def scaled(works: Sequence[Work], kinds: Sequence[str], mean: Floats, scale: Floats) -> Floats:
    """[n, features + kinds]."""
    raw = raw_inputs(works, kinds)
    found: Floats = (raw - mean) * scale
    return found


def kernel(x: Floats, centres: Floats, length: float) -> Floats:
    """Matern 3/2: (1 + d) exp(-d), d = sqrt(3) |x - centre| / length."""
    square = (x**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * x @ centres.T
    d = np.sqrt(3 * np.maximum(square, 0)) / length
    found: Floats = (1 + d) * np.exp(-d)
    return found


def linear(x: Floats) -> Floats:
    """The linear part of the basis, and the constant."""
    weight = math.sqrt(LINEAR_WEIGHT / x.shape[1])
    return np.hstack([x * weight, np.ones((len(x), 1))])


@dataclass(frozen=True)
class TargetModel:
    """One target of a device."""

    roof: Roof
    correction: Correction | None = None
    forest: Forest | None = None
    invocation_ns: float = 0.0
    ns_per_in_byte: float = 0.0
    ns_per_out_byte: float = 0.0
    errors: ErrorBounds | None = None
    """None where nothing was fitted, so that nobody knows."""
    refused: frozenset[str] = frozenset()
    """Kinds (:attr:`Work.rate`) of which none ran there."""

    def works_ns(self, works: Sequence[Work]) -> Floats:
        """Of each operation, without invocation and transfer."""
        roof = np.array([self.roof.ns(work) for work in works], dtype=float)
        return roof * np.exp(self.log_ratio(works))

    def log_ratio(self, works: Sequence[Work]) -> Floats:
        """What correction and forest multiply the roofline by, as logarithms."""
        found = np.zeros(len(works))
        if self.correction is not None and works:
            found = self.correction.log_ratio(works)
        if self.forest is not None and works:
            found = found + self.forest.log_ratio(works)
        return found

    def sample_ns(self, sample: Sample) -> float:
        """What :class:`Sample` measured, as predicted."""
        return (
            float(self.works_ns(sample.works).sum())
            + sample.invocations * self.invocation_ns
            + sample.in_bytes * self.ns_per_in_byte
            + sample.out_bytes * self.ns_per_out_byte
        )

    def samples_ns(self, samples: Sequence[Sample]) -> Floats:
        """:meth:`sample_ns` of each, faster."""
        owner = np.repeat(np.arange(len(samples)), [len(sample.works) for sample in samples])
        each = self.works_ns([work for sample in samples for work in sample.works])
        fixed = [
            s.invocations * self.invocation_ns
            + s.in_bytes * self.ns_per_in_byte
            + s.out_bytes * self.ns_per_out_byte
            for s in samples
        ]
        found: Floats = np.bincount(owner, weights=each, minlength=len(samples)) + np.array(fixed)
        return found

    def knows(self, work: Work) -> bool:
        """Whether an operation of its type was ever measured there. What only renames (a reshape)
        needs no measurement."""
        return work.kind in FREE or work.rate in self.roof.ns_per_mac

    def uncertainty(self, works: Sequence[Work]) -> float | None:
        """The relative error that nine of ten predictions stay below; None where nobody knows:
        nothing was fitted, or a type was never measured. Of what only moves data
        (:data:`MOVERS`), and less than :data:`SMALL` of the whole, bytes tell enough: it may take
        :data:`MOVED_OFF` times what it is estimated at. Errors of several are put together as
        :mod:`nnapi_prof.costs.static_bands` says."""
        if self.errors is None or not works:
            return None
        ns = self.works_ns(works)
        strange = np.array([not self.knows(work) for work in works])
        share = float(ns[strange].sum() / max(ns.sum(), 1e-9))
        moves = all(w.kind in MOVERS for w, new in zip(works, strange, strict=True) if new)
        if strange.any() and (not moves or share > SMALL):
            return None
        return self.errors.band(works, ns, self.familiar(works)) + MOVED_OFF * share

    def familiar(self, works: Sequence[Work]) -> Floats:
        """0 to 1: how near to what was measured each operation is."""
        if self.correction is None or not works:
            return np.ones(len(works))
        return self.correction.familiar(works)
