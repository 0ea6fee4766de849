"""Functions: arithmetic, logic, element types, reductions, views, movement, indexing."""

import torch
import torch.nn.functional as F

from tests.convert.coverage.rows import numbers, row

X, Y = numbers(2, 3, 5), numbers(2, 3, 5, seed=1)
POSITIVE = X.abs() + 0.1
MASK = X > 0
ROW = numbers(5)

ARITHMETIC = {
    "add / sub / mul / div (tensor,tensor)": row(
        lambda x, y: ((x + y) * y - torch.sub(x, y, alpha=2)) / (y.abs() + 1), X, numbers(3, 1)
    ),
    "add / mul with Python scalar": row(lambda x: x * 3 + 2.5, X),
    "add_ / mul_ (in-place)": row(lambda x: (x * 1.5).add_(2).mul_(x), X),
    "add with constant tensor": row(lambda x: x + ROW, X),
    "rsub": row(lambda x: 2 - x, X),
    "floor_divide / div rounding": row(
        lambda x: torch.floor_divide(x * 7, 2.0) + torch.div(x * 7, 2.0, rounding_mode="trunc"), X
    ),
    "remainder / atan2": row(lambda x: torch.remainder(x * 7, 2.5), X),
    "pow": row(lambda x: x**2 + (x.abs() + 1) ** 0.5 + (x.abs() + 1) ** x, X),
    "maximum / minimum": row(lambda x, y: torch.maximum(x, y) + torch.minimum(x, y), X, Y),
    "eq/ne/gt/ge/lt/le": row(
        lambda x, y: ((x > y), (x >= 0), (x < y), (x <= 0), (x == y), (x != 0)), X, Y
    ),
    "logical_and/or/not": row(
        lambda a, b: (a & b, torch.logical_or(a, b), torch.logical_not(a), a ^ b), MASK, ~MASK
    ),
    "where": row(lambda x, y: torch.where(x > y, x, 0.5), X, Y),
    "masked_fill": row(lambda x, mask: x.masked_fill(mask, -5.0), X, MASK[0]),
    "abs/exp/log/neg/sqrt": row(
        lambda x: x.exp() + x.log() + x.neg() + x.sqrt() + (-x).abs(), POSITIVE
    ),
    "rsqrt": row(torch.rsqrt, POSITIVE),
    "sin": row(torch.sin, X),
    "cos": row(torch.cos, X),
    "floor": row(lambda x: torch.floor(x * 3), X),
    "ceil / round / sign": row(lambda x: torch.ceil(x * 3) + torch.round(x * 3) + torch.sign(x), X),
    "reciprocal": row(torch.reciprocal, POSITIVE),
    "square": row(torch.square, X),
    "to(dtype)": row(lambda x: (x.to(torch.int32), (x * 3).to(torch.float16).float()), X),
    "to(device) / detach": row(lambda x: x.to("cpu").detach() + 1, X),
    "zeros_like / full": row(
        lambda x: x + torch.zeros_like(x) + torch.full((3, 5), 0.5) + torch.ones(5), X
    ),
    "cumsum / sort / triu": row(lambda x: torch.cumsum(x, 1), X),
}


BATCH = numbers(2, 3, 4, 5)
ABOVE = BATCH > -1

REDUCTIONS = {
    "mean(dim)": row(lambda x: x.mean(1) + x.mean((1,), keepdim=True).sum(1), BATCH),
    "mean() over all": row(lambda x: x.mean(), BATCH),
    "sum(dim)": row(lambda x: x.sum((2, 3)), BATCH),
    "amax / amin": row(lambda x: x.amax(1) + x.amin(1), BATCH),
    "prod": row(lambda x: x.prod(2), BATCH),
    "any": row(lambda mask: mask.any(1), ABOVE),
    "all": row(lambda mask: mask.all(1), ABOVE),
    "argmax / argmin": row(lambda x: (x.argmax(1), x.argmin(-1, keepdim=True)), BATCH),
    "topk": row(lambda x: torch.topk(x, 3), BATCH),
    "var / std / logsumexp": row(
        lambda x: x.var(1) + x.std(1, unbiased=False) + x.logsumexp(1), BATCH
    ),
    "norm / normalize": row(lambda x: F.normalize(x, dim=1) * x.norm(dim=1, keepdim=True), BATCH),
    # Random numbers of NNAPI's generator are others than PyTorch's: nothing could be compared.
    "multinomial": row(
        lambda x: torch.multinomial(x, 3, replacement=True),
        BATCH[0, 0].abs(),
        missing="multinomial.*draws random numbers",
    ),
}


IMAGE = numbers(2, 4, 6, 8)
IDS = torch.tensor([[1, 0, 3], [2, 2, 1]])
WORDS = numbers(10, 6)

SHAPES = {
    "reshape": row(lambda x: x.transpose(1, 2).reshape(4, -1), IMAGE),
    "view": row(lambda x: x.view(2, 24, 8), IMAGE),
    "flatten": row(lambda x: F.max_pool2d(x, 2).flatten(1), IMAGE),
    "squeeze": row(lambda x: x.squeeze(1) * x.squeeze(), numbers(3, 1, 5)),
    "unsqueeze": row(lambda x: x.unsqueeze(1), numbers(3, 4, 5)),
    "permute / transpose / t": row(lambda x: x.permute(0, 3, 1, 2).transpose(1, 2) + 1, IMAGE),
    "contiguous / clone": row(lambda x: x.transpose(1, 2).contiguous().clone() + 1, IMAGE),
    "repeat / tile": row(lambda x: x.repeat(2, 1, 3), numbers(2, 3, 4)),
    "expand": row(lambda x: x.expand(3, 4, 5), numbers(3, 1, 5)),
    "cat": row(lambda x: torch.cat([x, x * 2], -1), IMAGE),
    "stack": row(lambda x, y: torch.stack([x, y], 1), numbers(2, 3), numbers(2, 3, seed=1)),
    "split / chunk": row(lambda x: (*x.split([1, 3], 1), *x.chunk(3, 2)), IMAGE),
    "unbind": row(lambda x: x.unbind(1), numbers(2, 3, 4)),
    "slice": row(lambda x: x[:, 1:, ::2, 1:8:3], IMAGE),
    "select / narrow": row(lambda x: x.select(1, 2) + x.narrow(1, 1, 1).squeeze(1), IMAGE),
    "index_select": row(lambda x: x.index_select(1, torch.tensor([3, 0, 0])), IMAGE),
    "gather": row(lambda x, ids: x.gather(1, ids), numbers(2, 4), IDS),
    "embedding": row(lambda ids: F.embedding(ids, WORDS), IDS),
    "flip": row(lambda x: x.flip(1, 3), IMAGE),
    "roll": row(lambda x: x.roll((1, -2), (2, 3)), IMAGE),
    "pad constant": row(lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), IMAGE),
    "pad reflect": row(lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), IMAGE),
    "pad replicate": row(lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), IMAGE),
    "pixel_shuffle": row(lambda x: F.pixel_shuffle(x, 2), IMAGE),
    "channel_shuffle": row(lambda x: torch.channel_shuffle(x, 2), IMAGE),
    "size": row(lambda x: x.view(x.size(0), -1), IMAGE),
}
