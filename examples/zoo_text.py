"""Transformers of the zoo that read tokens: an encoder like BERT, a decoder like Llama."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BertLayer(nn.Module):
    """Attention between all tokens and a perceptron, each followed by a layer norm.

    [N, T, C], same out
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def per_head(self, x: Tensor) -> Tensor:
        """[N, T, C] -> [N, heads, T, C / heads]"""
        n, tokens, width = x.shape
        return x.view(n, tokens, self.heads, width // self.heads).permute(0, 2, 1, 3)

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = (self.per_head(layer(x)) for layer in (self.query, self.key, self.value))
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1)
        y: Tensor = self.out((weights @ v).permute(0, 2, 1, 3).reshape(x.shape))
        return y

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        y: Tensor = self.norm2(x + self.down(F.gelu(self.up(x))))
        return y


class Bert(nn.Module):
    """A narrow encoder like BERT (Devlin et al., 2018), 6 layers.

    ids [N, T] of int64 -> last hidden states [N, T, width], pooled [N, width]
    """

    def __init__(
        self,
        words: int = 1000,
        longest: int = 64,
        width: int = 256,
        heads: int = 4,
        layers: int = 6,
    ) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.Sequential(*(BertLayer(width, heads) for _ in range(layers)))
        self.pool = nn.Linear(width, width)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.layers(self.norm(self.words(ids) + self.positions(places)))
        return x, torch.tanh(self.pool(x[:, 0]))


class RmsNorm(nn.Module):
    """Divides by the root of the mean square (Zhang and Sennrich, 2019). [..., C], same out"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(0.8 + 0.4 * torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class DecoderLayer(nn.Module):
    """Causal attention with rotary positions, keys and values shared by groups of heads; SwiGLU.

    x [N, T, C]; cos and sin [T, C / heads]; mask [T, T], minus infinity where a token must not look
    -> [N, T, C]
    """

    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        shared = groups * self.size
        self.key, self.value = (nn.Linear(width, shared, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def per_head(self, x: Tensor, heads: int) -> Tensor:
        """[N, T, heads * size] -> [N, heads, T, size]"""
        n, tokens, _ = x.shape
        return x.view(n, tokens, heads, self.size).transpose(1, 2)

    def attention(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        q = rotated(self.per_head(self.query(x), self.heads), cos, sin)
        k = rotated(self.per_head(self.key(x), self.groups), cos, sin)
        v = self.per_head(self.value(x), self.groups)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(self.size) + mask, -1)
        y: Tensor = self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return y

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin, mask)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pairs (i, i + size / 2) of each token by its angles. x [N, heads, T, size]"""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Decoder(nn.Module):
    """A narrow decoder like Llama (Touvron et al., 2023), 4 layers, no cache.

    ids [N, T] of int64 -> logits [N, T, words]
    """

    cos: Tensor
    sin: Tensor
    mask: Tensor

    def __init__(
        self,
        words: int = 1000,
        tokens: int = 64,
        width: int = 256,
        heads: int = 4,
        groups: int = 2,
        hidden: int = 688,
        layers: int = 4,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            DecoderLayer(width, heads, groups, hidden) for _ in range(layers)
        )
        self.norm, self.head = RmsNorm(width), nn.Linear(width, words, bias=False)
        size = width // heads
        rates = 10_000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(tokens), rates).repeat(1, 2)  # [T, size]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.full((tokens, tokens), -torch.inf).triu(1))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        y: Tensor = self.head(self.norm(x))
        return y
