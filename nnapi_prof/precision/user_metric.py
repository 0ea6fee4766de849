"""A metric by its name: one of :mod:`.metrics`, or a function of the user's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nnapi_prof.errors import UsageError, did_you_mean
from nnapi_prof.precision.metrics import (
    BuiltInMetric,
    ErrorEstimate,
    FloatOutputs,
    Floats,
    Metric,
    MetricKind,
    interval_ends,
    means_drawn,
)
from nnapi_prof.precision.sample_files import is_function, user_function

USER_DRAWS = 200
"""The same where a user's function is called for each."""


def metric_of(name: str) -> Metric:
    """The metric that ``--metric`` names. Raises UsageError."""
    if is_function(name):
        return UserMetric(name, user_function(name))
    kinds = {kind.value: kind for kind in MetricKind}
    if name not in kinds:
        raise UsageError(
            f"no metric {name!r}{did_you_mean(name, kinds)}: there are {', '.join(kinds)}, and a "
            "function of your own as module:function"
        )
    return BuiltInMetric(kinds[name])


@dataclass(frozen=True)
class UserMetric:
    """``function(outputs, targets)``: a number, smaller is better (the share of wrong classes, a
    loss), of all samples at once.

    ``outputs`` is the model's output as one tensor, a tuple of them where there are several; their
    samples are joined along the first dimension. So are the targets, where they are numbers, or
    tensors or arrays of one shape; else they come as a list.
    """

    name: str
    function: Callable[..., Any] = field(repr=False, compare=False)

    @property
    def needs_targets(self) -> bool:
        return True

    def estimate(
        self,
        outputs: Sequence[Floats],
        reference: FloatOutputs,
        targets: Sequence[Any] | None = None,
    ) -> ErrorEstimate:
        n = reference.n_samples
        if targets is None or len(targets) != n:
            count = "no targets" if targets is None else f"{len(targets)} targets"
            raise UsageError(
                f"the metric {self.name} needs a target for each of {n} samples, there are {count}",
                "give them with the calibration data, as (inputs, target)",
            )
        if all(map(np.array_equal, outputs, reference.outputs)):
            return ErrorEstimate(0.0, 0.0, 0.0, n)
        mine, theirs = (
            [torch.from_numpy(output).float() for output in every]
            for every in (outputs, reference.outputs)
        )
        wishes = _stack_targets(targets)

        def added(samples: NDArray[np.int64]) -> float:
            chosen = torch.from_numpy(samples)
            answers = (
                [targets[i] for i in samples] if wishes is None else _join_samples(wishes, chosen)
            )
            return self._call([_join_samples(o, chosen) for o in mine], answers) - self._call(
                [_join_samples(o, chosen) for o in theirs], answers
            )

        error = added(np.arange(n))
        return ErrorEstimate(error, *self._interval(error, added, n), n)

    def _interval(
        self, error: float, added: Callable[[NDArray[np.int64]], float], n: int
    ) -> tuple[float, float]:
        if n < 2 or not math.isfinite(error):
            return -math.inf, math.inf
        random = np.random.default_rng(0)
        alone = self._alone(added, n)
        if alone is not None and math.isclose(float(alone.mean()), error, abs_tol=1e-9):
            # A mean over samples. Where hardly any changes, those that did not change are no proof
            # that none would: half a sample more, one step up and one down.
            step = float(np.abs(alone).max()) or 1.0
            rows = [np.stack([np.append(alone, [step, -step]), np.ones(n + 2)], axis=1)]
            weights = np.append(np.ones(n), [0.25, 0.25]) / (n + 0.5)
            first, other = means_drawn(rows, weights, n, random)
            ends = interval_ends(other - first, n)
        else:
            apart = [
                added(random.integers(0, n, n)) - added(random.integers(0, n, n))
                for _ in range(USER_DRAWS)
            ]
            ends = interval_ends(np.array(apart), n)
        return error + ends[0], error + ends[1]

    def _alone(self, added: Callable[[NDArray[np.int64]], float], n: int) -> Floats | None:
        """Returns the function's value for each sample alone; None where it refuses one."""
        try:
            return np.array([added(np.array([i])) for i in range(n)])
        except UsageError:
            return None

    def _call(self, outputs: Sequence[Tensor], targets: Any) -> float:
        try:
            answer = self.function(outputs[0] if len(outputs) == 1 else tuple(outputs), targets)
            number = float(answer)
        except Exception as error:  # the user's code may raise anything
            words = " ".join(str(error).split()) or type(error).__name__
            raise UsageError(f"the metric {self.name} failed: {words}") from error
        if math.isnan(number):
            raise UsageError(f"the metric {self.name} gave NaN, a number is needed")
        return number


def _join_samples(values: Tensor, samples: Tensor) -> Tensor:
    """Joins some of [all samples, first, ...] as [samples x first, ...]."""
    chosen = values[samples]
    return chosen.flatten(0, 1) if chosen.dim() > 1 else chosen


def _stack_targets(targets: Sequence[Any]) -> Tensor | None:
    """Targets as one tensor [samples, ...]; None where they are neither tensors of one shape nor
    numbers."""
    if not all(isinstance(t, Tensor | np.ndarray | np.generic | int | float) for t in targets):
        return None
    tensors = [torch.as_tensor(t) for t in targets]
    return torch.stack(tensors) if len({t.shape for t in tensors}) == 1 else None
