"""A float graph in 8 bits as Q/DQ units, by ONNX Runtime's own rules for Qualcomm's NPU.

Activations are asymmetric uint8, weights symmetric int8 by channel.  Ranges are those of the
samples; of random ones the time is right and the accuracy means nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnapi_prof.errors import ConversionError
from nnapi_prof.qnn.graphs import Form, quiet

if TYPE_CHECKING:
    import onnx
    from torch import Tensor

Sample = Mapping[str, np.ndarray[Any, Any]]
"""Input name -> its values, laid as the graph takes them."""
SEED = 0


def quantise_form(form: Form, samples: Sequence[Sample] | None = None) -> Form:
    """The graph in 8 bits; ranges from ``samples``, else from one random batch.

    Raises ConversionError where ONNX Runtime cannot run or quantise it.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    batches = list(samples) if samples else [random_sample(form.model)]

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Hands out the samples once."""

        def __init__(self) -> None:
            self._rest: Iterator[Sample] = iter(batches)

        def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
            sample = next(self._rest, None)
            return None if sample is None else dict(sample)

    unshared = unshare_initializers(form.model)
    with quiet(), tempfile.TemporaryDirectory(prefix="nnapi-prof-qnn-") as folder:
        source, path = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        Form(unshared).write(source)
        try:
            config = get_qnn_qdq_config(
                str(source),
                Reader(),
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
            )
            quantize(str(source), str(path), config)
        except Exception as error:  # of many kinds, none of them ours
            raise ConversionError(
                f"ONNX Runtime cannot quantise the graph ({type(error).__name__}:"
                f" {str(error).splitlines()[0][:200]})",
                "use fp16",
            ) from error
        return Form(onnx.load(str(path)))


def samples_for(model: onnx.ModelProto, inputs: Sequence[Sequence[Tensor]]) -> list[Sample]:
    """Inputs of a program by the names of its graph's, images as the graph takes them.

    Raises ConversionError where they are not its inputs.
    """
    result: list[Sample] = []
    for one in inputs:
        sample: dict[str, np.ndarray[Any, Any]] = {}
        if len(one) != len(model.graph.input):
            raise ConversionError("the graph has not the inputs of the model: use fp16")
        for value, tensor in zip(model.graph.input, one, strict=True):
            shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
            array = tensor.numpy()
            if array.shape != shape:
                array = np.ascontiguousarray(np.moveaxis(array, 1, -1))
            if array.shape != shape:
                raise ConversionError(f"the graph's input {value.name} is not the model's")
            sample[value.name] = array
        result.append(sample)
    return result


def random_sample(model: onnx.ModelProto) -> Sample:
    """Normal numbers for floats, zeros and ones for integers: same each time."""
    import onnx

    generator = np.random.default_rng(SEED)
    sample: dict[str, np.ndarray[Any, Any]] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if np.issubdtype(dtype, np.floating):
            sample[value.name] = generator.standard_normal(shape).astype(dtype)
        else:
            sample[value.name] = generator.integers(0, 2, shape).astype(dtype)
    return sample


def unshare_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which every node has weights of its own.

    Exporters let equal constants share one initializer, also through ``Identity``. The quantiser
    would give a bias that is shared the type of an activation, and the compiler would take fifty
    times as long for a graph that is sixty times as slow.
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    constants = {constant.name: constant for constant in graph.initializer}
    outputs = {value.name for value in graph.output}
    aliases = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Identity"
        and node.input[0] in constants
        and node.output[0] not in outputs
    }
    rest = [node for node in graph.node if node.output[0] not in aliases]
    used: set[str] = set()
    for node in rest:
        for place, name in enumerate(node.input):
            origin = aliases.get(name, name)
            if origin not in constants:
                continue
            if origin in used:
                copy = onnx.TensorProto()
                copy.CopyFrom(constants[origin])
                copy.name = f"{origin}_of_{node.name}_{place}"
                graph.initializer.append(copy)
                node.input[place] = copy.name
            else:
                used.add(origin)
                node.input[place] = origin
    del graph.node[:]
    graph.node.extend(rest)
    return result
