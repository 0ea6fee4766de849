import torch
from torch import nn


def layer(n_in: int, n_out: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(n_in, n_out, 3, stride, 1), nn.ReLU6())


class Net(nn.Module):
    """Classifies each pixel of an image into four classes."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(layer(3, 32, 2), layer(32, 64, 2), layer(64, 64))
        self.gate = nn.Conv2d(64, 64, 1)
        self.up = nn.Upsample(scale_factor=4, mode="bilinear")
        self.head = nn.Sequential(layer(64, 32), layer(32, 32), nn.Conv2d(32, 4, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = self.down(image)
        features = features * torch.sigmoid(self.gate(features))
        return self.head(self.up(features)).softmax(1)


torch.manual_seed(0)
torch.jit.save(torch.jit.trace(Net().eval(), torch.rand(1, 3, 96, 96)), "net.pt")
