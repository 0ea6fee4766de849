"""Branches and loops on the values of tensors: they stay TorchScript, what is around them goes to
NNAPI."""

import pytest
import torch
from torch import Tensor, nn

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend import prepare
from tests.api.test_model import scripted
from tests.bundle.stock import Made, agree, made


class Layered(nn.Module):
    """Layers for all, of which a model uses some."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.conv = nn.Conv2d(3, 4, 3)


class Branch(Layered):
    """Convolution, a branch between two layers, another layer."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.conv(x)).mean((2, 3))
        y = torch.relu(self.layer(y)) if bool(y.sum() > 0.9) else self.other(y) * 2
        return torch.tanh(self.last(y))


class While(Layered):
    """As often as the data want, and how often that was."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.conv(x)).mean((2, 3))
        turns = 0
        while bool(y.abs().max() > 0.05) and turns < 5:
            y = self.layer(y) * 0.5
            turns += 1
        return torch.relu(self.last(y)), y * turns


class Break(Layered):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        for _ in range(4):
            y = y + self.layer(y)
            if bool(y.abs().max() > 3):
                break
        return torch.sigmoid(self.layer(y))


class Numbers(Layered):
    """A number read from a tensor scales one, and selects from one."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        largest = float(y.max().item())
        y = y * largest
        return torch.relu(y + 1) * 2, y[:, int(largest * 3) % 2]


class Lists(Layered):
    """Lists that grow as the data want."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        result = [self.layer(x)]
        for _ in range(3):
            y = self.layer(result[-1])
            if bool(y.mean() > 0):
                result.append(torch.relu(y))
            else:
                result.append(y)
        if bool(x.sum() > 0):
            result.append(x)
        return torch.cat(result), torch.stack(result).sum(0)


class Shapes(Layered):
    """Outputs whose shapes depend on data."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.relu(self.layer(x))
        large = y[:, 0] > 0.1
        return y[large] * 2, torch.nonzero(large), self.layer(y)


class Writes(Layered):
    """A tensor from before the branch is written to in it."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if bool(y.sum() > 0):
            y[0] = 0.0
        return torch.relu(y)


class Named(Layered):
    """A dict is written to, and a constant changes in one branch only."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layer(x)
        a = torch.zeros_like(y)
        named = {"k": y}
        if bool(y.sum() > 0):
            a = a + 1
            named["k"] = a
        pair = (y, a)
        return torch.relu(named["k"]), pair[0] * pair[1]


class Nested(Layered):
    """A branch in a loop in a branch; after it shapes are certain again."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if bool(x[0, 0] > 0):
            for i in range(int(x.abs().max().item()) + 1):
                y = torch.relu(self.layer(y)) + i if bool(y.min() < 0) else y - 1.0
        return self.last(y.tanh()).softmax(-1)


class Overwritten(Layered):
    """What a branch read changes after it, before anything else is known of the branch."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.layer(x)
        result = [y]
        number = 1
        if bool(y.sum() > 0):
            number = len(result) + 2
        rows = torch.masked_select(y, y > 0)
        longer = torch.cat(result)[number - 1 :]
        result.append(x)
        y.add_(1.0)
        return rows * number, longer, torch.cat(result) + y.sum()


IMAGE = (1, 3, 6, 6)
MODELS = {Branch: IMAGE, While: IMAGE, Numbers: IMAGE, Shapes: (5, 4), Overwritten: (3, 4)}
MODELS |= dict.fromkeys((Break, Lists, Writes, Named, Nested), (2, 4))
CUT = {Branch, While, Break, Numbers, Writes, Named, Nested}
"""Those with something for NNAPI behind the control flow."""


def converted(kind: type[nn.Module], *shape: int) -> tuple[Made, nn.Module]:
    """The module for stock PyTorch, and the model."""
    torch.manual_seed(3)
    model = kind().eval()
    return made(prepare(scripted(model), [torch.randn(shape)], "model", keep=True)), model


@pytest.mark.parametrize("kind", MODELS)
def test_control_flow(nnapi_library, kind):
    """Inputs of many sizes, so that each branch is taken."""
    actual, model = converted(kind, *MODELS[kind])
    assert actual.kinds == (["nnapi", "cpu", "nnapi"] if kind in CUT else ["nnapi", "cpu"])
    sentences = map(str, actual.parts.cpu_reasons.values())
    reasons = [sentence for sentence in sentences if "only move data" not in sentence]
    assert reasons
    for reason in reasons:
        assert "it depends on the values of a tensor" in reason
        assert "test_control_flow.py:" in reason
    results = set()
    for seed in range(12):
        torch.manual_seed(seed)
        outputs = agree(actual, model, torch.randn(MODELS[kind]) * (0.1 + seed / 4))
        results.add(tuple(value.shape for value in outputs))
    assert len(results) > 1 or kind not in (Lists, Shapes, Overwritten)


class Returns(Layered):
    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y = self.layer(x)
        if bool(torch.isnan(x).any()):
            raise ValueError("not a number")
        if bool(y.sum() > 0):
            return y, (y[:1], y * 2)
        return x, (y, torch.relu(y))


def test_a_branch_returns_a_tuple_and_a_check_stays(nnapi_library):
    result, model = converted(Returns, 3, 4)
    for sign in (1, -1):
        x = (sign * 9 * model.layer.weight.detach().sum(0)).expand(3, 4).contiguous()
        agree(result, model, x)
    with pytest.raises(torch.jit.Error, match="not a number"):
        result.module(x * float("nan"))


@pytest.mark.parametrize("kind", [Branch, While, Numbers, Shapes])
def test_the_agent_refuses_it(kind):
    with pytest.raises(FrontendError, match=r"test_control_flow\.py:\d+.* depend"):
        prepare(scripted(kind().eval()), [torch.randn(MODELS[kind])], "model")


class Aliased(Layered):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layer(x)
        view = y[0]
        if bool(y.sum() > 0):
            y[0] = 0.0
        return view * 2, y


class Counts(Layered):
    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        y = self.layer(x)
        return y, int(y.max().item())


@pytest.mark.parametrize(
    ("kind", "words"),
    [(Aliased, "writes to a tensor that is read elsewhere"), (Counts, "return tensors")],
)
def test_writes_that_a_view_would_see_and_numbers_as_outputs_are_refused(kind, words):
    with pytest.raises(FrontendError, match=words):
        prepare(scripted(kind().eval()), [torch.randn(2, 4)], "model", keep=True)


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(200, 200)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if bool(y.sum() > 0):
            y = self.layer(y)
        return torch.relu(self.layer(y))


def test_weights_in_branches_are_shared(nnapi_library):
    """A layer that both a branch and NNAPI use stands once in the file."""
    result, model = converted(Wide, 1, 200)
    assert result.kinds == ["nnapi", "cpu", "nnapi"]
    assert 4 * 200 * 200 < result.size < 4 * 200 * 200 + 40_000
    x = torch.randn(1, 200)
    for sign in (1.0, -1.0):
        agree(result, model, sign * x)
