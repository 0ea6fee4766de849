"""How far an estimate may be off: errors out of fold, put together as errors are.

The logarithm of measured / predicted of a sum of operations is taken to be the sum, by their shares
``s`` of it, of an error of each operation (equal operations err alike) and one of each kind:

    spread^2 = own^2 * sum over operations (s^2) + kind^2 * sum over kinds ((sum of s)^2) + whole^2

so that the errors of a network's many layers cancel as far as they do in the samples. A band is
``factor`` times the spread. The factor is conformal: of the samples' own errors divided by their
own spreads, out of fold, that which nine of ten are below.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nnapi_prof.costs.static_work import Floats, Sample, Work

if TYPE_CHECKING:
    from nnapi_prof.costs.static_model import TargetModel

NINE_TENTHS = 0.9
NORMAL = 1.645
"""Normal quantile of nine of ten: what the factor of a sum of many comes to."""
MOST_ERROR = 3.0
"""Typical deviations beyond which an error counts no more when spreads are fitted."""


@dataclass(frozen=True)
class ErrorBounds:
    """Relative errors of predictions, out of fold."""

    half: float
    """Half of the samples' are below."""
    nine_tenths: float
    """Nine of ten are below."""
    own: float
    """Spread of an operation's, alone (a logarithm's standard deviation)."""
    kind: float
    """Spread of what operations of a kind have in common."""
    whole: float
    """Spread of what all operations have in common."""
    factor: float
    """Spreads to a band of nine of ten, of samples like those that were fitted to."""
    focus: float
    """Sum of squared shares of those samples: 1 where each was one operation."""
    strange: float
    """``own`` of operations unlike all that were seen: of the roofline alone."""

    def band(self, works: Sequence[Work], ns: Floats, familiar: Floats) -> float:
        """Relative error that nine of ten predictions of a sum stay below.

        ``ns`` are the parts of the sum, ``familiar`` is 0 to 1 for each.
        """
        total = float(ns.sum())
        shares = ns / total if total > 0 else np.full(len(works), 1 / max(len(works), 1))
        own, kinds = _shares(works, shares, (familiar * self.own, (1 - familiar) * self.strange))
        spread = math.sqrt(own + kinds * self.kind**2 + self.whole**2)
        focus = float(_shares(works, shares, (np.ones(len(works)),))[0])
        pull = min(focus / self.focus, 1.0) if self.focus > 0 else 1.0
        factor = NORMAL + (self.factor - NORMAL) * pull if self.factor > NORMAL else self.factor
        return math.expm1(min(factor * spread, 5.0))


def _shares(
    works: Sequence[Work], shares: Floats, spreads: tuple[Floats, ...]
) -> tuple[float, float]:
    """Sum of squared shares of equal operations, times their spreads; and of kinds."""
    each = sum(spreads)
    own: dict[Work, float] = defaultdict(float)
    kinds: dict[str, float] = defaultdict(float)
    for work, share, spread in zip(works, shares.tolist(), np.asarray(each).tolist(), strict=True):
        own[work] += share * spread
        kinds[work.rate] += share
    return sum(v**2 for v in own.values()), sum(v**2 for v in kinds.values())


def error_bounds(
    model: TargetModel, samples: Sequence[Sample], errors: Floats, plain: Floats
) -> ErrorBounds:
    """From predicted / measured - 1 of each sample, out of fold; ``plain`` of the roofline."""
    logs = np.log1p(np.maximum(errors, -0.99))
    typical = max(1.4826 * float(np.median(np.abs(logs))), 1e-3)
    capped = np.clip(logs, -MOST_ERROR * typical, MOST_ERROR * typical)
    seen = _focus(model, samples)
    own, kind, whole = _spreads(samples, seen, capped)
    spread = np.sqrt(seen @ [own**2, kind**2] + whole**2)
    score = np.abs(logs) / np.maximum(spread, 1e-6)
    n = len(score)
    level = min(math.ceil((n + 1) * NINE_TENTHS) / n, 1.0)
    size = np.abs(errors)
    loose = 1.4826 * float(np.median(np.abs(np.log1p(np.maximum(plain, -0.99)))))
    return ErrorBounds(
        half=float(np.median(size)),
        nine_tenths=float(np.quantile(size, NINE_TENTHS)),
        own=own,
        kind=kind,
        whole=whole,
        factor=float(np.quantile(score, level)),
        focus=float(np.median(seen[:, 0])),
        strange=max(own, loose),
    )


def _focus(model: TargetModel, samples: Sequence[Sample]) -> Floats:
    """[samples, 2]: of operations, and of kinds, the sums of squared shares."""
    each = model.works_ns([work for sample in samples for work in sample.works])
    found, start = [], 0
    for sample, total in zip(samples, model.samples_ns(samples).tolist(), strict=True):
        end = start + len(sample.works)
        shares = each[start:end] / max(total, 1e-9)
        found.append(_shares(sample.works, shares, (np.ones(len(shares)),)))
        start = end
    return np.array(found)


def _spreads(samples: Sequence[Sample], seen: Floats, logs: Floats) -> tuple[float, float, float]:
    """own, kind, whole.

    Of samples of several operations by their mean square; of operations alone what a kind has in
    common by the products of pairs.
    """
    single = np.array([len(sample.works) == 1 for sample in samples])
    if single.mean() < 0.5:
        # Networks' shares are too much alike to tell the two apart: half is taken for either.
        half = float((logs**2).mean()) / 2
        return math.sqrt(half / max(float(seen[:, 0].mean()), 1e-6)), 0.0, math.sqrt(half)
    groups: dict[str, list[float]] = defaultdict(list)
    for sample, log, alone in zip(samples, logs.tolist(), single.tolist(), strict=True):
        if alone:
            groups[sample.works[0].rate].append(log)
    kind_of_all = _shared(list(groups.values()))
    total = float((logs[single] ** 2).mean())
    kind = min(max(kind_of_all, 0.0), total)
    return math.sqrt(total - kind), math.sqrt(kind), 0.0


def _shared(groups: Sequence[Sequence[float]]) -> float:
    """Mean product of two different errors of the same group."""
    products = sum(sum(group) ** 2 - sum(v * v for v in group) for group in groups)
    pairs = sum(len(group) * (len(group) - 1) for group in groups)
    return products / pairs if pairs else 0.0
