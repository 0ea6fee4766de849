"""Make the ONNX graph of a PyTorch model for Qualcomm's compiler, in floats or 8 bits.

The model is exported once (``torch.onnx``), then ONNX Runtime's own tools for QNN fuse GELU and
layer norm and make image inputs channels last, as Qualcomm AI Hub does.

In 8 bits a graph has Q/DQ units, by ONNX Runtime's own rules for Qualcomm's NPU. Activations are
asymmetric uint8, weights symmetric int8 by channel. Ranges are those of the samples; with random
ones the time is right, but the accuracy is meaningless.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnapi_prof.errors import ConversionError
from nnapi_prof.qnn.rewrites import (
    join_biases,
    scale_by_convolution,
    shuffle_last,
    unshare_initializers,
)

if TYPE_CHECKING:
    import onnx
    import torch
    from torch import Tensor
    from torch.export import ExportedProgram

OPSET = 18
TRACED_OPSET = 17
SMALL = 64
"""Constants of more numbers are weights, whose values do not change an estimate; smaller ones may
be shapes, limits or scales."""
INLINE_LIMIT = 1 << 30
"""Largest model in bytes with its weights in the file itself; protobuf takes less than 2 GiB."""


@dataclass(frozen=True)
class Form:
    """An ONNX graph as the compiler gets it."""

    model: onnx.ModelProto

    @property
    def hash(self) -> str:
        return canonical_hash(self.model)

    def write(self, path: Path) -> Path:
        """Writes the graph, with its weights in a separate file where they are large."""
        import onnx

        large = self.model.ByteSize() > INLINE_LIMIT
        onnx.save_model(
            self.model,
            str(path),
            save_as_external_data=large,
            all_tensors_to_one_file=True,
            location=f"{path.name}.data",
        )
        return path


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses warnings and logs of the exporter and of ONNX Runtime's tools."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def export_onnx(
    program: ExportedProgram | torch.nn.Module,
    examples: Sequence[Tensor],
    output_names: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """Exports to ONNX with all weights inside. Raises ConversionError, naming the cause."""
    import onnx
    import torch
    from torch.export import ExportedProgram

    options: dict[str, Any] = {"dynamo": True, "opset_version": OPSET, "verbose": False}
    if output_names is not None:
        options["output_names"] = list(output_names)
    try:
        with quiet(), tempfile.TemporaryDirectory(prefix="nnapi-prof-qnn-") as folder:
            if isinstance(program, ExportedProgram):
                exported = program
            else:
                exported = torch.export.export(program, tuple(examples), strict=False)
            result = torch.onnx.export(exported, **options)
            if result is None:
                raise ConversionError("torch.onnx made no model")
            path = Path(folder) / "model.onnx"
            result.save(str(path))
            model = onnx.load(str(path))
    except ConversionError:
        raise
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # which names the operator
            cause = cause.__cause__
        first = next((line for line in str(cause).splitlines() if line.strip()), "")
        raise ConversionError(
            f"torch.onnx cannot export the model ({type(cause).__name__}: {first[:300]}): rewrite"
            " that part, or leave it to the CPU"
        ) from error
    return model


def export_by_trace(program: ExportedProgram) -> onnx.ModelProto:
    """Exports by the older, tracing exporter, which gives the form of Qualcomm AI Hub's models.

    The compiler handles some networks well in the form of one exporter only. Raises ConversionError
    where this one does not support an operator.
    """
    import onnx
    import torch

    examples, named = program.example_inputs or ((), {})
    # It logs the graph of an operator that it does not support: to stdout, which may be a document.
    torch._C._jit_set_onnx_log_output_stream("stderr")
    try:
        with quiet(), torch.no_grad(), tempfile.TemporaryDirectory(prefix="nnapi-prof-") as folder:
            path = Path(folder) / "model.onnx"
            torch.onnx.export(
                program.module(),
                tuple(examples),
                str(path),
                kwargs=named or None,
                dynamo=False,
                opset_version=TRACED_OPSET,
                training=torch.onnx.TrainingMode.PRESERVE,
            )
            return onnx.load(str(path))
    except Exception as error:  # of many kinds
        raise ConversionError(f"torch.onnx cannot trace the model: {error}") from error


def preprocess(model: onnx.ModelProto, last: bool = True) -> Form:
    """Fuses operations that the compiler has as one.

    With ``last`` the result is the graph to compile: image inputs are channels last, as their
    layout change is not a cost of the network, and parts are :func:`rewritten`. Otherwise regions
    are cut from it, and rewritten themselves.
    """
    import onnx
    from onnxruntime.quantization.execution_providers.qnn import qnn_preprocess_model

    work = onnx.ModelProto()
    work.CopyFrom(model)
    del work.metadata_props[:]
    _strip(work)
    images = [value.name for value in work.graph.input if last and _is_image(value)]
    with quiet(), tempfile.TemporaryDirectory(prefix="nnapi-prof-qnn-") as folder:
        source, path = Path(folder) / "in.onnx", Path(folder) / "out.onnx"
        Form(work).write(source)
        changed = qnn_preprocess_model(
            str(source), str(path), fuse_layernorm=True, inputs_to_make_channel_last=images or None
        )
        result = onnx.load(str(path if changed else source))
    return rewritten(result) if last else Form(result)


def rewritten(model: onnx.ModelProto) -> Form:
    """Rewrites a graph in place to the form that the compiler handles best in either precision."""
    shuffle_last(model, shapes_of(model))
    return Form(model)


def float_form(form: Form) -> Form:
    """Returns a copy in the form that the compiler handles best in fp16. In 8 bits it would take
    nothing of some graphs in that form, such as EfficientFormer's."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(form.model)
    shapes = shapes_of(model)
    scale_by_convolution(model, shapes)
    join_biases(model, shapes)
    return Form(model)


def _strip(model: onnx.ModelProto) -> None:
    """Removes metadata on Python's source lines, on which the tools fail."""
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]


def _is_image(value: onnx.ValueInfoProto) -> bool:
    """Returns whether a value is a float tensor [N, C, H, W] or [N, C, D, H, W]."""
    import onnx

    kind = value.type.tensor_type
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    return len(kind.shape.dim) in (4, 5) and kind.elem_type in floats


def shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all values and constants; unknown sizes are 0."""
    import onnx

    outline = onnx.ModelProto()
    outline.CopyFrom(model)
    for constant in outline.graph.initializer:
        if int(np.prod(constant.dims, dtype=np.int64)) > SMALL:  # only small ones give shapes
            constant.ClearField("raw_data")
            constant.ClearField("float_data")
    graph = onnx.shape_inference.infer_shapes(outline).graph
    shapes = {
        value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    return shapes | {constant.name: tuple(constant.dims) for constant in graph.initializer}


def attends(model: onnx.ModelProto) -> bool:
    """Returns whether two computed values are multiplied, as attention does. Exporters write that
    in forms that the compiler treats differently."""
    constants = {constant.name for constant in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "Constant" and not constants.issuperset(filter(None, node.input)):
            continue
        constants.update(node.output)
    return any(
        node.op_type == "MatMul" and not constants.intersection(node.input)
        for node in model.graph.node
    )


def count_macs(model: onnx.ModelProto) -> float:
    """Returns the number of multiply-accumulates in convolutions and products."""
    shapes = shapes_of(model)
    total = 0.0
    for node in model.graph.node:
        out = shapes.get(node.output[0], ())
        read = [shapes.get(name, ()) for name in node.input[:2]]
        if node.op_type == "Conv" and read[1]:
            total += math.prod(out) * math.prod(read[1][1:])
        elif node.op_type == "ConvTranspose" and read[1]:
            total += math.prod(read[0]) * math.prod(read[1][1:])
        elif node.op_type in ("MatMul", "Gemm") and read[0]:
            transposed = any(a.name == "transA" and a.i for a in node.attribute)
            total += math.prod(out) * read[0][0 if transposed else -1]
    return total


def canonical_hash(model: onnx.ModelProto) -> str:
    """Returns a hash that does not depend on names, the order of independent nodes in the file, or
    the values of float weights, none of which moves an estimate by a microsecond. Weights that are
    all equal count by value, as the compiler removes additions of zeros and scaling by ones.

    Each value is identified by the nodes that compute it, from the inputs on.
    """
    import onnx
    from onnx import numpy_helper

    graph = model.graph
    names: dict[str, str] = {"": ""}
    quantised = any(node.op_type == "QuantizeLinear" for node in graph.node)
    for index, value in enumerate(graph.input):
        kind = value.type.tensor_type
        sizes = [d.dim_value for d in kind.shape.dim]
        names[value.name] = f"input {index} {kind.elem_type} {sizes}"
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    for constant in graph.initializer:
        text = f"{constant.data_type} {list(constant.dims)}"
        n = int(np.prod(constant.dims, dtype=np.int64))
        values = numpy_helper.to_array(constant)
        if quantised or n <= SMALL or constant.data_type not in floats:
            text += hashlib.sha256(values.tobytes()).hexdigest()
        elif values.flat[0] == values.flat[-1] and (values == values.flat[0]).all():
            text += f" of {values.flat[0]}"
        names[constant.name] = text
    digests = []
    for node in graph.node:
        attributes = sorted(
            (attribute.name, attribute.SerializeToString(deterministic=True))
            for attribute in node.attribute
        )
        text = repr((node.domain, node.op_type, [names[name] for name in node.input], attributes))
        digest = hashlib.sha256(text.encode()).hexdigest()
        digests.append(digest)
        for place, name in enumerate(node.output):
            names[name] = f"{digest} {place}"
    opsets = sorted((one.domain, one.version) for one in model.opset_import)
    outputs = [names[value.name] for value in graph.output]
    return hashlib.sha256(repr((opsets, sorted(digests), outputs)).encode()).hexdigest()


Sample = Mapping[str, np.ndarray[Any, Any]]
"""Input name -> its values, in the graph's layout."""
SEED = 0


def quantise_form(form: Form, samples: Sequence[Sample] | None = None) -> Form:
    """Returns the graph in 8 bits, with ranges from ``samples`` or else one random batch.

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
    """Returns inputs of a program by their names in the graph, images in its layout.

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
    """Returns normal numbers for floats, zeros and ones for integers; the same each time."""
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
