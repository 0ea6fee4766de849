"""Reductions and selections of extreme values."""

import torch
import torch.nn.functional as F

from tests.convert.coverage.rows import numbers, row

X = numbers(2, 3, 4, 5)
MASK = X > -1

ROWS = {
    "mean(dim)": row(lambda x: x.mean(1) + x.mean((1,), keepdim=True).sum(1), X),
    "mean() over all": row(lambda x: x.mean(), X),
    "sum(dim)": row(lambda x: x.sum((2, 3)), X),
    "amax / amin": row(lambda x: x.amax(1) + x.amin(1), X),
    "prod": row(lambda x: x.prod(2), X),
    "any": row(lambda mask: mask.any(1), MASK),
    "all": row(lambda mask: mask.all(1), MASK),
    "argmax / argmin": row(lambda x: (x.argmax(1), x.argmin(-1, keepdim=True)), X),
    "topk": row(lambda x: torch.topk(x, 3), X),
    "var / std / logsumexp": row(lambda x: x.var(1) + x.std(1, unbiased=False) + x.logsumexp(1), X),
    "norm / normalize": row(lambda x: F.normalize(x, dim=1) * x.norm(dim=1, keepdim=True), X),
    # Random numbers of NNAPI's generator are others than PyTorch's: nothing could be compared.
    "multinomial": row(
        lambda x: torch.multinomial(x, 3, replacement=True),
        X[0, 0].abs(),
        missing="multinomial.*draws random numbers",
    ),
}
