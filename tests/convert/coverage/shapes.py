"""Views, movement, indexing, padding."""

import torch
import torch.nn.functional as F

from tests.convert.coverage.rows import numbers, row

X = numbers(2, 4, 6, 8)
IDS = torch.tensor([[1, 0, 3], [2, 2, 1]])
WORDS = numbers(10, 6)

ROWS = {
    "reshape": row(lambda x: x.transpose(1, 2).reshape(4, -1), X),
    "view": row(lambda x: x.view(2, 24, 8), X),
    "flatten": row(lambda x: F.max_pool2d(x, 2).flatten(1), X),
    "squeeze": row(lambda x: x.squeeze(1) * x.squeeze(), numbers(3, 1, 5)),
    "unsqueeze": row(lambda x: x.unsqueeze(1), numbers(3, 4, 5)),
    "permute / transpose / t": row(lambda x: x.permute(0, 3, 1, 2).transpose(1, 2) + 1, X),
    "contiguous / clone": row(lambda x: x.transpose(1, 2).contiguous().clone() + 1, X),
    "repeat / tile": row(lambda x: x.repeat(2, 1, 3), numbers(2, 3, 4)),
    "expand": row(lambda x: x.expand(3, 4, 5), numbers(3, 1, 5)),
    "cat": row(lambda x: torch.cat([x, x * 2], -1), X),
    "stack": row(lambda x, y: torch.stack([x, y], 1), numbers(2, 3), numbers(2, 3, seed=1)),
    "split / chunk": row(lambda x: (*x.split([1, 3], 1), *x.chunk(3, 2)), X),
    "unbind": row(lambda x: x.unbind(1), numbers(2, 3, 4)),
    "slice": row(lambda x: x[:, 1:, ::2, 1:8:3], X),
    "select / narrow": row(lambda x: x.select(1, 2) + x.narrow(1, 1, 1).squeeze(1), X),
    "index_select": row(lambda x: x.index_select(1, torch.tensor([3, 0, 0])), X),
    "gather": row(lambda x, ids: x.gather(1, ids), numbers(2, 4), IDS),
    "embedding": row(lambda ids: F.embedding(ids, WORDS), IDS),
    "flip": row(lambda x: x.flip(1, 3), X),
    "roll": row(lambda x: x.roll((1, -2), (2, 3)), X),
    "pad constant": row(lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), X),
    "pad reflect": row(lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), X),
    "pad replicate": row(lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), X),
    "pixel_shuffle": row(lambda x: F.pixel_shuffle(x, 2), X),
    "channel_shuffle": row(lambda x: torch.channel_shuffle(x, 2), X),
    "size": row(lambda x: x.view(x.size(0), -1), X),
}
