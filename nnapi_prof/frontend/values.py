"""Values for a model's inputs, from an ``.npz`` file: lengths, masks and positions mean something.

They are stored in a copy of the model, where every later step finds them: as bundled inputs of
TorchScript, as the example inputs of an ExportedProgram.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.bundled_inputs import InflatableArg, bundle_inputs

from nnapi_prof.errors import InputSpecError, escape_untrusted, non_regular_kind, option_name
from nnapi_prof.frontend import export
from nnapi_prof.frontend.inputs import InputSpec
from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported, read_nested
from nnapi_prof.frontend.structure import flat_inputs
from nnapi_prof.frontend.torch_logging import essential_line, quiet_torch, run_once
from nnapi_prof.frontend.torchscript.interpreter import forward_arguments
from nnapi_prof.frontend.trees import bind_inputs

MARK = "@"
"""What a text begins with that names a file of values."""
MAX_BYTES = 1 << 31


def write_with_values(path: Path, inputs: Sequence[str], folder: Path) -> Path:
    """Write a copy of the model of ``path`` that stores the values of its tensors.

    ``inputs`` are texts, one of them ``@FILE.npz``: an array for each tensor, by the name of its
    argument or, as ``numpy.savez`` calls them without names, in order; the others are numbers and
    texts by name. Raises ModelFileError, and InputSpecError where the values do not fit.
    """
    files = [text for text in inputs if text.startswith(MARK)]
    others = [text for text in inputs if not text.startswith(MARK)]
    if len(files) > 1:
        raise InputSpecError(
            f"{len(files)} files of values were stated", "put all arrays into one, with numpy.savez"
        )
    file = Path(files[0].removeprefix(MARK))
    target = folder / path.name
    if model_kind(path) is ModelKind.EXPORTED:
        program = read_exported(path)
        names = [node.name for node in export.tensor_inputs(program)]
        tensors = _arranged(_arrays(file), names, path.name, file)
        export.check_specs(program, [InputSpec.of(value) for value in tensors], path.name)
        _try(lambda: export.eager(program)(*tensors), path.name, file)
        program._example_inputs = export.nested_arguments(program)(tensors)
        with quiet_torch():
            torch.export.save(program, target)
        return target
    nested = read_nested(path)
    types = {argument.name: str(argument.type) for argument in forward_arguments(nested)}
    model = flat_inputs(nested, path.name, bind_inputs(others, types, path.name).values)
    names = [argument.name for argument in forward_arguments(model)]
    tensors = _arranged(_arrays(file), names, path.name, file)
    _try(lambda: model(*tensors), path.name, file)
    with quiet_torch():
        whole = tuple(InflatableArg(value=value, fmt="{}") for value in tensors)
        torch.jit.save(bundle_inputs(model, [whole]), str(target))
    return target


def _arrays(file: Path) -> dict[str, Tensor]:
    if what := non_regular_kind(file):
        raise InputSpecError(f"{file} is {what}", "give an .npz file of the values of inputs")
    try:
        with np.load(file, allow_pickle=False) as archive:
            sizes = sum(info.file_size for info in archive.zip.infolist())
            if sizes > MAX_BYTES:
                raise InputSpecError(f"{file} unpacks to {sizes:,} bytes, which no inputs have")
            arrays = {name: archive[name] for name in archive.files}
        return {name: _tensor_of_array(array) for name, array in arrays.items()}
    except (OSError, ValueError, TypeError, AttributeError, EOFError) as error:
        reason = escape_untrusted(
            str(error).splitlines()[0] if str(error) else type(error).__name__, 200
        )
        raise InputSpecError(
            f"{file} cannot be read as arrays ({reason})", "write it with numpy.savez"
        ) from error


def _tensor_of_array(array: npt.NDArray[np.generic]) -> Tensor:
    """An array as a tensor; float64, NumPy's own, in the float32 of models."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    tensor = tensor.reshape(array.shape)
    return tensor.float() if tensor.dtype is torch.float64 else tensor


def _arranged(
    arrays: dict[str, Tensor], names: Sequence[str], model: str, file: Path
) -> tuple[Tensor, ...]:
    """The arrays in the order of the model's arguments, which are ``names``."""
    unnamed = [f"arr_{index}" for index in range(len(arrays))]
    if list(arrays) == unnamed and len(arrays) <= len(names):
        return tuple(arrays.values())
    if extra := [name for name in arrays if name not in names]:
        raise InputSpecError(
            f"{file} has {', '.join(extra)}, and the inputs of {model} are {', '.join(names)}",
            "name the arrays after them, or give arrays without names in their order",
        )
    first = names[: len(arrays)]
    if missing := [name for name in first if name not in arrays]:
        raise InputSpecError(
            f"{file} has no array for the input {missing[0]} of {model}: its inputs are"
            f" {', '.join(names)}"
        )
    return tuple(arrays[name] for name in first)


def _try(run: object, model: str, file: Path) -> None:
    assert callable(run)
    try:
        with quiet_torch(), run_once():
            run()
    except Exception as error:
        raise InputSpecError(
            f"{model} does not run on the values of {file}: {essential_line(error)}",
            f"give others with {option_name('input', MARK + 'FILE.npz')}",
        ) from error
