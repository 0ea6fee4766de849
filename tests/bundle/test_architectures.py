"""Architectures in small, from traced, scripted and exported models to modules of parts."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.bundle.stock import make
from tests.convert.architectures import ARCHITECTURES

NOT_SCRIPTABLE = {"bert", "deeplab", "flow", "fpn", "t5", "two_towers"}
"""Those whose Python TorchScript's own compiler does not take."""

ON_CPU = {"ssd": {"gather"}}
"""What may stay on the CPU; nothing of the others does."""

OTHERWISE = pytest.mark.again("traced here; other architectures are scripted and exported")


def marks(number: int, kind: str) -> tuple[pytest.MarkDecorator, ...]:
    """Each architecture is traced; every third is scripted, and every third exported, too."""
    if kind == "traced":
        return ()
    return (pytest.mark.slow, *(() if number % 3 == (kind == "exported") else (OTHERWISE,)))


CASES = [
    pytest.param(name, kind, marks=marks(number, kind))
    for number, name in enumerate(ARCHITECTURES)
    for kind in ("traced", "scripted", "exported")
    if kind != "scripted" or name not in NOT_SCRIPTABLE
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_architecture(nnapi_library, name, kind):
    torch.manual_seed(0)
    model, inputs = ARCHITECTURES[name]()
    model.eval()
    with quiet_torch(), torch.no_grad():
        returned = model(*inputs)
        match kind:
            case "traced":
                traced = torch.jit.trace(model, inputs, strict=False, check_trace=False)
            case "scripted":
                traced = torch.jit.script(model)
            case _:
                traced = torch.export.export(model, inputs)
    product = make(traced, inputs)
    assert product.stays() <= ON_CPU.get(name, set())
    if name not in ON_CPU:
        assert product.kinds == ["nnapi"]
    expected = [value for value in tree_leaves(returned) if isinstance(value, torch.Tensor)]
    with torch.no_grad():
        actual = tree_leaves(product.module(*inputs))
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        atol = 1e-5 * max(1.0, theirs.float().abs().max().item())
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=atol)
