"""What tests of files of models share."""

import torch

from nnapi_prof import frontend

IMAGE = frontend.InputSpec((1, 4, 6, 6))


def agree(path, *specs: frontend.InputSpec) -> frontend.loader.Program:
    """Loads, and compares the program with the model on inputs other than the examples."""
    program = frontend.load(path, specs)
    random = torch.Generator().manual_seed(5)
    inputs = [torch.randn(spec.shape, generator=random) for spec in specs]
    expected = program.module(*inputs)
    expected_values = frontend.reference(path)(*inputs)
    assert len(expected) == len(expected_values)
    for ours, theirs in zip(expected, expected_values, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    return program
