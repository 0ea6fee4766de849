"""Where an error over other samples would lie.

An interval is for the same error on other data: as many samples of the same kind as these, drawn
anew, fall into it 19 times of 20. It comes from drawing both sets from the samples (bootstrap), and
is wider by Student's factor where there are few; of a single sample nothing follows. A user's
function that is not a mean over samples needs dozens of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]

COVERAGE = 0.95
DRAWN_COVERAGE = 0.975
"""Of drawn sets: samples show too little of their own tail, and 93 of 100 errors of other data were
where 95 of 100 drawn ones are (tests/precision/test_metrics.py has such data)."""
DRAWS = 1000
"""Of both sets of samples. The ends of an interval are quantiles of these: 12 lie beyond each."""
_CHUNK = 1 << 22
"""Numbers of a block of draws."""


def drawn_counts(
    n: int, weights: Floats, size: int, draws: int, random: np.random.Generator
) -> Iterator[Floats]:
    """How often each of ``n`` samples is in each of ``draws`` sets of ``size``, in blocks
    [draws, n]."""
    block = max(1, _CHUNK // n)
    for start in range(0, draws, block):
        count = min(block, draws - start)
        yield random.multinomial(size, weights, size=count).astype(np.float64)


def with_beyond(row: Floats) -> Floats:
    """[samples, 2] and one more: a new sample differs by more than all ``n`` at hand once in n + 1
    times. It is taken to differ by twice as much as they do."""
    return np.concatenate([row, [[2 * row[:, 0].max(), row[:, 1].mean()]]])


def means_drawn(
    rows: Sequence[Floats], weights: Floats, size: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """The largest mean of several outputs, in as many draws of one set as of another."""
    values = [np.asarray(row[:, 0] / np.where(row[:, 1] > 0, row[:, 1], 1.0)) for row in rows]
    means = [
        np.max([counts @ value / size for value in values], axis=0)
        for counts in drawn_counts(len(weights), weights, size, 2 * DRAWS, random)
    ]
    drawn = np.concatenate(means)
    return drawn[:DRAWS], drawn[DRAWS:]


def interval_ends(apart: Floats, n: int) -> tuple[float, float]:
    """Where an error over other samples lies, from how far drawn ones lie apart; further out where
    ``n`` is small, as drawing from few samples shows too little spread."""
    if apart.size == 0:
        return 0.0, 0.0
    tail, drawn_tail = (1 - COVERAGE) / 2, (1 - DRAWN_COVERAGE) / 2
    factor = stats.t.ppf(1 - tail, n - 1) / stats.norm.ppf(1 - tail) * math.sqrt(n / (n - 1))
    low, high = np.quantile(apart, [drawn_tail, 1 - drawn_tail])
    return min(0.0, float(low * factor)), max(0.0, float(high * factor))
