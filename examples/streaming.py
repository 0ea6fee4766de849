"""A model with state, on NNAPI: a speech detector that processes a sound piece by piece.

It is written like silero-vad: state is in attributes, which appear with the first piece, and an
argument that is not a tensor is the rate. nnapi_prof turns the state into inputs and outputs; the
caller of the converted module keeps it. With an NNAPI available (docs/stock-pytorch.md):

    python examples/streaming.py

saves vad.pt and vad.nnapi.pt, runs both on two seconds, and prints how far they differ.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

RATE, PIECE = 16000, 512


class Detector(nn.Module):
    """Returns the probability of speech ``[1, 1]`` in each piece of a sound ``[1, 512]``."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Conv1d(1, 32, 16, 8), nn.ReLU(), nn.Conv1d(32, 64, 3, 2), nn.ReLU())
        )
        self.memory = nn.LSTMCell(64, 64)
        self.head = nn.Linear(64, 1)
        self.context = torch.zeros([0])
        self.state = torch.zeros([0])
        self.last_rate = 0

    def forward(self, piece: Tensor, rate: int) -> Tensor:
        n_kept = 64 if rate == 16000 else 32
        if self.last_rate != rate:
            self.context = torch.zeros(piece.shape[0], n_kept)
            self.state = torch.zeros(2, piece.shape[0], 64)
        sound = torch.cat([self.context, piece], dim=1)
        features = self.encoder(sound.unsqueeze(1)).mean(2)
        hidden, cell = self.memory(features, (self.state[0], self.state[1]))
        self.state = torch.stack([hidden, cell])
        self.context = sound[:, -n_kept:]
        self.last_rate = rate
        return torch.sigmoid(self.head(hidden))


def stream(module: nn.Module, sound: Tensor) -> Tensor:
    """Returns a converted module's output for each piece of a sound ``[1, samples]``."""
    context, state = torch.zeros(1, 64), torch.zeros(2, 1, 64)
    heard = []
    for piece in sound.split(PIECE, dim=1):
        speech, context, state = module(piece, context, state)
        heard.append(speech)
    return torch.cat(heard)


def main() -> None:
    """Saves, converts, streams and compares."""
    import nnapi_prof as nnp

    torch.manual_seed(0)
    detector = torch.jit.script(Detector().eval())
    torch.jit.save(detector, "vad.pt")
    converted = nnp.convert_model("vad.pt", [(1, PIECE), RATE])
    torch.jit.save(converted, "vad.nnapi.pt")
    sound = torch.randn(1, 2 * RATE // PIECE * PIECE)
    with torch.no_grad():
        expected = torch.cat([detector(piece, RATE) for piece in sound.split(PIECE, dim=1)])
        apart = (stream(converted, sound) - expected).abs().max()
    print(f"{len(expected)} pieces, largest difference {apart:.1g}")


if __name__ == "__main__":
    main()
