"""The windows of adaptive pooling."""

from __future__ import annotations


def adaptive_windows(size: int, out: int) -> list[range]:
    """The elements of an axis that each of ``out`` results is made of."""
    return [range(i * size // out, -((-(i + 1) * size) // out)) for i in range(out)]


def equal_windows(size: int, out: int) -> tuple[int, int] | None:
    """(length, stride) of the windows where all are alike, as a plain pooling has them."""
    windows = adaptive_windows(size, out)
    lengths = {len(window) for window in windows}
    steps = {b.start - a.start for a, b in zip(windows, windows[1:], strict=False)}
    if len(lengths) > 1 or len(steps) > 1 or 0 in steps:
        return None
    return len(windows[0]), min(steps, default=len(windows[0]))
