"""What one operation computes and moves: plain numbers, from which the static model tells time."""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = {
    **{"float32": 4, "relaxed": 4, "float16": 2, "int32": 4, "quant16": 2},
    **{"quant8": 1, "quant8_signed": 1, "quant8_symm": 1, "per_channel": 1, "bool8": 1},
}
"""Kind of data, by the names of the simulated phones' descriptions -> bytes of an element."""


@dataclass(frozen=True, slots=True)
class Work:
    """One operation. Sizes are of NHWC images; what has none counts as one of 1 x 1."""

    kind: str
    """NNAPI's name: ``CONV_2D``."""
    data: str
    """A key of :data:`ELEMENT_BYTES`."""
    macs: float
    """Multiply-accumulates; elements written where there are no weights (pooling too)."""
    in_bytes: float
    out_bytes: float
    weight_bytes: float
    pixels: float
    """Height x width of the output, times the batch."""
    width: float
    """Of the output, in pixels."""
    in_channels: float
    """Of one group."""
    out_channels: float
    kernel: float = 1.0
    """Height x width of the window."""
    stride: float = 1.0
    n_inputs: int = 1
    rank: int = 4
    """The highest of its tensors."""

    @property
    def moved(self) -> float:
        """All bytes: activations read and written, and weights."""
        return self.in_bytes + self.out_bytes + self.weight_bytes

    @property
    def gathered(self) -> float:
        """Bytes of all windows that a convolution reads: what is laid out to compute it as a
        product of matrices. None where a window is one pixel, and none of a depthwise
        convolution, which is computed in place."""
        if self.kernel == 1:
            return 0.0
        if self.kind == "CONV_2D":
            return self.pixels * self.kernel * self.in_channels * ELEMENT_BYTES[self.data]
        if self.kind == "GROUPED_CONV_2D":  # how many groups there are is not known
            return self.in_bytes * self.kernel / self.stride**2
        return 0.0

    @property
    def rate(self) -> str:
        """The key of its rate of arithmetic: the kind, whether a plain convolution has a window
        (matrix products run at another rate), and the data unless that is float32."""
        kind = "CONV_2D 1x1" if self.kind == "CONV_2D" and self.kernel == 1 else self.kind
        return kind if self.data == "float32" else f"{kind}/{self.data}"
