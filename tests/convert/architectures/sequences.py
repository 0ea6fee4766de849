"""Sound and text without attention: recurrences and convolutions over lines."""

import torch
import torch.nn.functional as F
from torch import nn


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
    "lstm_tagger": lambda: (Tagger(), (torch.randint(0, 50, (2, 7)),)),
    "wav2vec": lambda: (Wav2Vec(), (torch.randn(1, 200),)),
    "vits": lambda: (Vits(), (torch.randn(1, 8, 10),)),
    "tacotron": lambda: (Tacotron(), (torch.randn(2, 6, 9),)),
    "pointnet": lambda: (PointNet(), (torch.randn(2, 3, 16),)),
    "two_towers": lambda: (
        TwoTowers(),
        (torch.randint(0, 20, (3,)), torch.randint(0, 30, (3, 4)), torch.randn(3, 4)),
    ),
}
