"""QUANTIZED_LSTM for its tests: its inputs, and the LSTM that they stand for."""

from dataclasses import dataclass

import numpy as np

from tests.emulator.kernels.recurrent import Cell, Omitted, Quantised
from tests.emulator.nnapi import (
    TENSOR_INT32,
    TENSOR_QUANT8_ASYMM_SIGNED,
    TENSOR_QUANT8_SYMM,
    TENSOR_QUANT16_SYMM,
)


@dataclass(frozen=True)
class Cell8:
    """QUANTIZED_LSTM on integers; None is left out."""

    w: list
    r: list
    b: list
    norm: list
    p: tuple = (None, None, None)
    proj: np.ndarray | None = None
    proj_b: np.ndarray | None = None
    w_scale: float = 0.00784314
    p_scale: float = 2.0**-14
    norm_scale: float = 3.05182e-05
    proj_scale: float = 0.00392157
    x_quant: tuple = (0.0078125, 0)
    h_quant: tuple = (3.05176e-05, 0)
    c_scale: float = 3.05176e-05
    intermediate: tuple = (0.007059, 0.007812, 0.007059, 0.007812)
    hidden: tuple = (0, 0.007)
    clips: tuple = (0.0, 0.0)

    @property
    def b_scale(self):
        """Of the biases: in the unit of the normalised gates, or of products with the input."""
        with_norm = self.norm_scale / 1024
        return with_norm if self.norm[3] is not None else self.w_scale * self.x_quant[0]

    def inputs(self, x, h, c):
        def group(values, code, scale):
            return [Omitted(code) if v is None else Quantised.of(v, code, scale) for v in values]

        return [
            Quantised.of(x, TENSOR_QUANT8_ASYMM_SIGNED, *self.x_quant),
            *group([*self.w, *self.r], TENSOR_QUANT8_SYMM, self.w_scale),
            *group(self.p, TENSOR_QUANT16_SYMM, self.p_scale),
            *group(self.b, TENSOR_INT32, self.b_scale),
            *group([self.proj], TENSOR_QUANT8_SYMM, self.proj_scale),
            *group([self.proj_b], TENSOR_INT32, self.proj_scale * self.hidden[1]),
            Quantised.of(h, TENSOR_QUANT8_ASYMM_SIGNED, *self.h_quant),
            Quantised.of(c, TENSOR_QUANT16_SYMM, self.c_scale),
            *group(self.norm, TENSOR_QUANT16_SYMM, self.norm_scale),
            *self.clips,
            *self.intermediate,
            *self.hidden,
        ]

    def outputs(self, batch):
        units, outputs = self.w[3].shape[0], self.r[3].shape[1]
        h = (TENSOR_QUANT8_ASYMM_SIGNED, (batch, outputs), *self.h_quant)
        return [h, (TENSOR_QUANT16_SYMM, (batch, units), self.c_scale, 0), h]

    def real(self):
        """The same LSTM in real numbers."""

        def of(values, scale):
            return [None if v is None else np.asarray(v) * float(scale) for v in values]

        return Cell(
            of(self.w, self.w_scale),
            of(self.r, self.w_scale),
            of(self.b, self.b_scale),
            of(self.p, self.p_scale),
            of(self.norm, self.norm_scale),
            proj=of([self.proj], self.proj_scale)[0],
            proj_b=of([self.proj_b], self.proj_scale * self.hidden[1])[0],
            cell_clip=self.clips[0],
            proj_clip=self.clips[1],
        )


def left_out(values, cifg):
    return [None, *values[1:]] if cifg else values


def some_cell8(rng, inputs, units, outputs, *, cifg, peephole, projection, norm, **others):
    outputs = outputs if projection else units
    i8 = (-127, 128)

    def gates(limits, *shape, there=True):
        matrices = [rng.integers(*limits, shape) for _ in range(4)]
        return left_out(matrices, cifg) if there else [None] * 4

    p = gates((-16000, 16000), units, there=peephole)
    bias = (-(10**7), 10**7) if norm else (-5000, 5000)
    return Cell8(
        gates(i8, units, inputs),
        gates(i8, units, outputs),
        gates(bias, units),
        gates((3000, 30000), units, there=norm),
        (p[0], p[1], p[3]),
        rng.integers(*i8, (outputs, units)) if projection else None,
        rng.integers(-2000, 2000, outputs) if projection == 2 else None,
        intermediate=(0.0015,) * 4 if norm else (2.0**-12,) * 4,
        x_quant=(0.0078125, 3),
        h_quant=(0.0078125, -4 if projection else 0),
        hidden=(-5 if projection else 0, 0.0078125),
        **others,
    )
