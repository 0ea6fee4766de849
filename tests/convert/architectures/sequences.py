"""Transformers: masks, shifted windows, caches, queries. Sound and text without attention:
recurrences and convolutions over lines."""

import math
from itertools import product

import torch
import torch.nn.functional as F
from torch import nn


class ViT(nn.Module):
    """Patches, a class token, PyTorch's own encoder layers."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.position = nn.Parameter(torch.randn(1, 17, 16) * 0.1)
        self.layers = nn.Sequential(*(VitBlock(16, 4) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(16, eps=1e-6), nn.Linear(16, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.position
        return self.head(self.norm(self.layers(x))[:, 0])


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def windows(x, size: int):
    """[n, h, w, c] -> [n * windows, size * size, c]"""
    n, h, w, c = x.shape
    x = x.view(n, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, c)


class SwinBlock(nn.Module):
    """Attention in windows shifted by roll, with a bias for each distance and a mask."""

    def __init__(self, width, side, size, shift):
        super().__init__()
        self.size, self.shift, self.heads = size, shift, 2
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.table = nn.Parameter(torch.randn((2 * size - 1) ** 2, 2))
        ys, xs = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        places = torch.stack([ys, xs]).flatten(1)
        apart = places[:, :, None] - places[:, None] + size - 1
        self.register_buffer("index", apart[0] * (2 * size - 1) + apart[1])
        labels = torch.zeros(1, side, side, 1)
        bands = slice(0, -size), slice(-size, -shift), slice(-shift, None)
        for label, (rows, columns) in enumerate(product(bands, bands)):
            labels[:, rows, columns] = label
        labels = windows(labels, size).squeeze(2)
        self.register_buffer("mask", (labels[:, None] != labels[:, :, None]) * -100.0)

    def attention(self, x):
        n, length, width = x.shape
        qkv = self.qkv(x).reshape(n, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.table[self.index.view(-1)].view(length, length, -1).permute(2, 0, 1)
        scores = scores + bias[None]
        if self.shift > 0:
            many = self.mask.shape[0]
            scores = scores.view(n // many, many, self.heads, length, length)
            scores = (scores + self.mask[None, :, None]).view(-1, self.heads, length, length)
        return self.project((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, length, width))

    def forward(self, x):
        n, h, w, c = x.shape
        y = self.norm1(x)
        if self.shift > 0:
            y = torch.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
        y = self.attention(windows(y, self.size))
        y = y.view(n, h // self.size, w // self.size, self.size, self.size, c)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        if self.shift > 0:
            y = torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.blocks = nn.Sequential(SwinBlock(16, 8, 4, 2))
        self.norm, self.reduce = nn.LayerNorm(64), nn.Linear(64, 16, bias=False)

    def forward(self, x):
        x = self.blocks(self.patch(x).permute(0, 2, 3, 1))
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.reduce(self.norm(torch.cat(parts, -1))).mean((1, 2))


class Bert(nn.Module):
    """Ids, types and a mask of int64; tanh pooling."""

    def __init__(self):
        super().__init__()
        self.words, self.types = nn.Embedding(60, 16, padding_idx=0), nn.Embedding(2, 16)
        self.positions = nn.Embedding(12, 16)
        self.norm = nn.LayerNorm(16, eps=1e-12)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.norm1, self.norm2, self.pool = nn.LayerNorm(16), nn.LayerNorm(16), nn.Linear(16, 16)
        self.register_buffer("ids", torch.arange(12)[None])

    def heads(self, x):
        return x.view(x.size(0), x.size(1), 4, 4).permute(0, 2, 1, 3)

    def forward(self, ids, types, mask):
        x = self.words(ids) + self.types(types) + self.positions(self.ids[:, : ids.size(1)])
        x = self.norm(x)
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(4) + hidden, -1)
        y = torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous()
        x = self.norm1(x + self.o(y.view(y.size(0), y.size(1), 16)))
        x = self.norm2(x + self.down(F.gelu(self.up(x))))
        return {"last": x, "pooled": torch.tanh(self.pool(x[:, 0]))}


class Gpt2(nn.Module):
    """Causal, with keys and values of earlier tokens; the head is the table of words."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(40, 16), nn.Embedding(16, 16)
        self.norm1, self.norm2, self.last = nn.LayerNorm(16), nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.o = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.register_buffer("causal", torch.ones(16, 16).tril().bool()[None, None])

    def forward(self, ids, keys, values):
        past, length = keys.size(2), ids.size(1)
        place = torch.arange(past, past + length)[None]
        x = self.words(ids) + self.positions(place)
        q, k, v = self.qkv(self.norm1(x)).split(16, dim=2)
        q, k, v = (t.view(t.size(0), length, 2, 8).transpose(1, 2) for t in (q, k, v))
        k, v = torch.cat((keys, k), dim=2), torch.cat((values, v), dim=2)
        scores = torch.matmul(q, k.transpose(-1, -2)) / 8**0.5
        causal = self.causal[:, :, past : past + length, : past + length]
        scores = torch.where(causal, scores, torch.tensor(-1e9))
        y = torch.matmul(scores.softmax(-1), v).transpose(1, 2).reshape(x.size(0), length, 16)
        x = x + self.o(y)
        y = self.up(self.norm2(x))
        y = 0.5 * y * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y.pow(3.0))))
        x = self.last(x + self.down(y))
        return F.linear(x, self.words.weight), k, v


class Llama(nn.Module):
    """RMS norm, rotary positions, grouped heads, SwiGLU, scaled_dot_product_attention."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(16) + 0.5)
        self.q, self.k, self.v = (nn.Linear(16, n, bias=False) for n in (16, 8, 8))
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)
        angles = torch.outer(torch.arange(6.0), 1.0 / 100 ** (torch.arange(0, 4, 2) / 4))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def norm(self, x):
        return self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def turned(self, x):
        first, second = x[..., :2], x[..., 2:]
        return x * self.cos + torch.cat((-second, first), -1) * self.sin

    def forward(self, x):
        n, length, _ = x.shape
        y = self.norm(x)
        q = self.turned(self.q(y).view(n, length, 4, 4).transpose(1, 2))
        k = self.turned(self.k(y).view(n, length, 2, 4).transpose(1, 2))
        v = self.v(y).view(n, length, 2, 4).transpose(1, 2)
        k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(n, length, 16)
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Detr(nn.Module):
    """A backbone, sine positions of a mask's sums, encoder and decoder, queries, boxes."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 7, 4, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1)
        )
        self.queries = nn.Embedding(5, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True)
        self.classes, self.boxes = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x, mask):
        x = self.backbone(x)
        n, _c, h, w = x.shape
        small = F.interpolate(mask[None].float(), size=(h, w)).to(torch.bool)[0]
        seen = ~small
        ys, xs = seen.cumsum(1, dtype=torch.float32), seen.cumsum(2, dtype=torch.float32)
        scale = 10 ** (2 * torch.arange(4) / 8)
        places = torch.cat([ys[..., None] / scale, xs[..., None] / scale], -1)
        places = torch.cat([places.sin(), places.cos()], -1).flatten(1, 2)
        x = x.flatten(2).permute(0, 2, 1) + places
        hidden = small.flatten(1)
        memory = self.encoder(x, src_key_padding_mask=hidden)
        result = self.decoder(
            self.queries.weight[None].repeat(n, 1, 1), memory, memory_key_padding_mask=hidden
        )
        return {"logits": self.classes(result), "boxes": self.boxes(result).sigmoid()}


class T5(nn.Module):
    """Biases by buckets of distance, no scale, cross attention by einsum."""

    def __init__(self):
        super().__init__()
        self.words, self.bias = nn.Embedding(30, 16), nn.Embedding(8, 2)
        self.q, self.k, self.v = (nn.Linear(16, 16, bias=False) for _ in range(3))

    def forward(self, ids, memory):
        x = self.words(ids)
        places = torch.arange(ids.size(1))[:, None] - torch.arange(memory.size(1))[None]
        far = torch.clamp(places.abs(), max=3) + torch.where(places > 0, 4, 0)
        bias = self.bias(far).permute(2, 0, 1)[None]
        q, k, v = (
            layer(t).view(t.size(0), t.size(1), 2, 8)
            for layer, t in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) + bias, dim=-1)
        return x + torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2)


class MobileVit(nn.Module):
    """Convolutions around attention between the pixels of equal place in their patches."""

    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.SiLU(), nn.Conv2d(8, 16, 1))
        self.block = VitBlock(16, 2)
        self.fuse = nn.Conv2d(24, 8, 3, padding=1)
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)

    def forward(self, x):
        y = self.local(x)
        n, c, h, w = y.shape
        rows, columns = math.ceil(h / 2), math.ceil(w / 2)
        y = F.interpolate(y, size=(2 * rows, 2 * columns), mode="bilinear", align_corners=False)
        y = y.reshape(n * c * rows, 2, columns, 2).transpose(1, 2)
        y = y.reshape(n, c, rows * columns, 4).transpose(1, 3).reshape(n * 4, rows * columns, c)
        y = self.block(y)
        y = y.view(n, 4, rows * columns, c).transpose(1, 3).reshape(n * c * rows, columns, 2, 2)
        y = y.transpose(1, 2).reshape(n, c, 2 * rows, 2 * columns)
        y = F.interpolate(y, size=(h, w), mode="bilinear", align_corners=False)
        return self.fuse(torch.cat((self.stem(x), y), dim=1))


def words(high, *shape):
    return torch.randint(0, high, shape)


def padded():
    """A picture, and which of its columns are padding."""
    return torch.randn(1, 3, 32, 32), (torch.arange(32) > 25).expand(1, 32, 32)


def token():
    """Ids, and the keys and values of five earlier tokens."""
    return words(40, 1, 3), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)


TRANSFORMERS = {
    "vit": lambda: (ViT(), (torch.randn(1, 3, 32, 32),)),
    "swin": lambda: (Swin(), (torch.randn(1, 3, 32, 32),)),
    "bert": lambda: (Bert(), (words(60, 2, 9), words(2, 2, 9), words(2, 2, 9))),
    "gpt2": lambda: (Gpt2(), token()),
    "llama": lambda: (Llama(), (torch.randn(1, 6, 16),)),
    "detr": lambda: (Detr(), padded()),
    "t5": lambda: (T5(), (words(30, 1, 4), torch.randn(1, 6, 16))),
    "mobilevit": lambda: (MobileVit(), (torch.randn(1, 3, 24, 28),)),
}


class Tagger(nn.Module):
    """Ids through a bidirectional LSTM; a class for each."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(12, 5)

    def forward(self, ids):
        result, (hidden, _) = self.lstm(self.embedding(ids))
        return self.fc(result), hidden


class Wav2Vec(nn.Module):
    """Strided convolutions over sound, group norm after the first, weighted by length."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv1d(1, 8, 10, 5, bias=False), nn.GroupNorm(8, 8)
        self.rest = nn.ModuleList(nn.Conv1d(8, 8, 3, 2) for _ in range(2))
        self.layer_norm = nn.LayerNorm(8)
        self.position = nn.Conv1d(8, 8, 4, padding=2, groups=2)

    def forward(self, sound):
        x = (sound - sound.mean(-1, keepdim=True)) / torch.sqrt(sound.var(-1, keepdim=True) + 1e-5)
        x = F.gelu(self.norm(self.first(x[:, None])))
        for layer in self.rest:
            x = F.gelu(layer(x))
        x = self.layer_norm(x.transpose(1, 2))
        y = self.position(x.transpose(1, 2))[:, :, :-1]  # one too many for an even kernel
        return x + F.gelu(y).transpose(1, 2)


class Vits(nn.Module):
    """Transposed convolutions over lines, dilated residual blocks, gates of tanh and sigmoid."""

    def __init__(self):
        super().__init__()
        self.pre = nn.Conv1d(8, 16, 7, padding=3)
        self.up = nn.ConvTranspose1d(16, 8, 8, 4, padding=2)
        self.dilated = nn.ModuleList(
            nn.Conv1d(8, 16, 3, dilation=rate, padding=rate) for rate in (1, 3)
        )
        self.post = nn.Conv1d(8, 1, 7, padding=3, bias=False)

    def forward(self, x):
        x = self.up(F.leaky_relu(self.pre(x), 0.1))
        for layer in self.dilated:
            tanh, sigmoid = torch.chunk(layer(x), 2, dim=1)
            x = x + torch.tanh(tanh) * torch.sigmoid(sigmoid)
        return torch.tanh(self.post(F.leaky_relu(x)))


class Tacotron(nn.Module):
    """An LSTM cell, step after step, with attention over the encoder's outputs."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Conv1d(6, 8, 5, padding=2)
        self.cell = nn.LSTMCell(8, 8)
        self.query, self.fc = nn.Linear(8, 8, bias=False), nn.Linear(16, 3)

    def forward(self, x):
        memory = F.relu(self.encode(x)).transpose(1, 2)  # [n, t, 8]
        h = c = memory.new_zeros(memory.size(0), 8)
        context, frames = memory.mean(1), []
        for _ in range(3):
            h, c = self.cell(context, (h, c))
            weights = torch.softmax(torch.bmm(memory, self.query(h)[:, :, None]).squeeze(2), -1)
            context = torch.bmm(weights[:, None], memory).squeeze(1)
            frames.append(self.fc(torch.cat([h, context], -1)))
        return torch.stack(frames, 1)


class PointNet(nn.Module):
    """A cloud of points, turned by a matrix that it predicts itself."""

    def __init__(self):
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU())
        self.matrix = nn.Linear(8, 9)
        self.features, self.fc = nn.Conv1d(3, 8, 1), nn.Linear(8, 4)

    def forward(self, points):
        matrix = self.matrix(torch.max(self.turn(points), 2)[0]).view(-1, 3, 3) + torch.eye(3)
        x = torch.bmm(points.transpose(2, 1), matrix).transpose(2, 1)
        return F.log_softmax(self.fc(F.relu(self.features(x)).amax(2)), dim=1)


class TwoTowers(nn.Module):
    """A recommender: bags of ids, products of features."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(20, 8), nn.Embedding(30, 8)
        self.dense, self.top = nn.Linear(4, 8), nn.Linear(8 + 3, 1)

    def forward(self, users, items, numbers):
        vectors = torch.stack(
            [self.users(users), self.items(items).sum(1), torch.relu(self.dense(numbers))], 1
        )
        products = torch.matmul(vectors, vectors.transpose(1, 2))
        rows, columns = torch.tril_indices(3, 3, offset=-1)
        flat = products[:, rows, columns]
        return torch.sigmoid(self.top(torch.cat([vectors[:, 2], flat], 1)))


SEQUENCES = {
    "lstm_tagger": lambda: (Tagger(), (words(50, 2, 7),)),
    "wav2vec": lambda: (Wav2Vec(), (torch.randn(1, 200),)),
    "vits": lambda: (Vits(), (torch.randn(1, 8, 10),)),
    "tacotron": lambda: (Tacotron(), (torch.randn(2, 6, 9),)),
    "pointnet": lambda: (PointNet(), (torch.randn(2, 3, 16),)),
    "two_towers": lambda: (TwoTowers(), (words(20, 3), words(30, 3, 4), torch.randn(3, 4))),
}
