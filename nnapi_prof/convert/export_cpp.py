"""A region as a C++ class that builds and compiles its NNAPI model once and executes it many times.

The class is a header and a source without a common runtime, so an app may contain several.
``data/region*.j2`` has the code that all classes share; this module writes the tables that differ.
NNAPI's functions are found with dlsym, not linked. A program can therefore use functions of later
Android versions (devices by name, bursts) where a phone has them and still run on earlier ones,
whatever ``__ANDROID_API__`` it was compiled for.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnapi_prof.convert import BufferSlice, NnapiModel, Operand
from nnapi_prof.convert.export_json import (
    ELEMENTS,
    RegionDescription,
    Weights,
    operand_bytes,
    require_consistent,
    require_inside,
    short_float32,
)
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph import MAX_RANK, DimOrder, TensorType
from nnapi_prof.graph.plan import Preference
from nnapi_prof.nnapi.codes import OperandCode

if TYPE_CHECKING:
    from jinja2 import Environment


DATA = Path(__file__).resolve().parent / "data"
WIDTH = 100
"""Width of the generated code, in columns."""

_ELEMENTS = {
    OperandCode.TENSOR_FLOAT32: "kFloat32",
    OperandCode.TENSOR_FLOAT16: "kFloat16",
    OperandCode.TENSOR_INT32: "kInt32",
    OperandCode.TENSOR_BOOL8: "kBool8",
    OperandCode.TENSOR_QUANT8_ASYMM: "kUint8",
    OperandCode.TENSOR_QUANT8_SYMM: "kInt8",
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: "kInt8",
    OperandCode.TENSOR_QUANT16_SYMM: "kInt16",
    OperandCode.TENSOR_QUANT16_ASYMM: "kUint16",
}
_OVERLOADS = {
    "float": ("kFloat32",),
    "std::int32_t": ("kInt32",),
    "std::uint8_t": ("kUint8", "kBool8"),
    "std::int8_t": ("kInt8",),
    "std::uint16_t": ("kUint16", "kFloat16"),
    "std::int16_t": ("kInt16",),
    "bool": ("kBool8",),
}
"""C++ type -> the operand types whose elements it may hold."""

_PREFERENCES = {
    Preference.LOW_POWER: "kLowPower",
    Preference.FAST_SINGLE_ANSWER: "kFastSingleAnswer",
    Preference.SUSTAINED_SPEED: "kSustainedSpeed",
}
_REQUIRED = (
    *("Model_create", "Model_addOperand", "Model_setOperandValue"),
    *("Model_setOperandValueFromMemory", "Model_addOperation", "Model_identifyInputsAndOutputs"),
    *("Model_finish", "Model_free", "Memory_createFromFd", "Memory_free", "Compilation_create"),
    *("Compilation_setPreference", "Compilation_finish", "Compilation_free", "Execution_create"),
    *("Execution_setInput", "Execution_setInputFromMemory", "Execution_setOutput"),
    *("Execution_startCompute", "Execution_free", "Event_wait", "Event_free"),
)
"""NNAPI's functions that exist from Android 8.1 on; those of ``_LATER`` came with Android 10."""
_LATER = (
    *("getDeviceCount", "getDevice", "Device_getName", "Compilation_createForDevices"),
    *("Execution_compute", "Burst_create", "Execution_burstCompute", "Burst_free"),
)
_TAKEN = frozenset(
    (
        "ChannelQuant",
        "Channels",
        "Element",
        "Impl",
        "Nnapi",
        "Operand",
        "Operation",
        "Options",
        "Preference",
        "Source",
        "Span",
        "Status",
        "Tensor",
        "Value",
    )
)
"""Names that the generated files already use."""


@dataclass(frozen=True)
class CppClass:
    """Texts of a class; ``header`` goes to a file called ``header_file``."""

    name: str
    header_file: str
    header: str
    source: str


def class_name(words: str) -> str:
    """Returns a C++ class name from a model's name: ``mobilenet_v2`` -> ``MobilenetV2``."""
    parts = re.findall(r"[A-Za-z0-9]+", words)
    name = "".join(
        part[0].upper() + (part[1:].lower() if part.isupper() else part[1:]) for part in parts
    )
    if not name or name[0].isdigit():
        name = f"Model{name}"
    return f"{name}Model" if name in _TAKEN else name


def to_cpp(described: RegionDescription, stem: str, weights: Weights) -> CppClass:
    """Returns the class of a region, for files ``stem``.h and ``stem``.cpp.

    ``weights`` is the region's weights file (:func:`nnapi_prof.convert.export_json.lay_out`), which
    the class is given at run time. The text depends on nothing else. Raises SerializationError
    where no class is possible: a size is unknown, or NNAPI would refuse a value.
    """
    region = described.region
    model = region.model
    inputs = _boundary("input", region.inputs, model.inputs, region.input_types, model)
    outputs = _boundary("output", region.outputs, model.outputs, region.output_types, model)
    name = class_name(stem)
    context = {
        "name": name,
        "guard": f"NNAPI_PROF_{re.sub('[^A-Z0-9]+', '_', name.upper())}_H",
        "header": f"{stem}.h",
        "level": region.level,
        "operations": model.operations,
        "summary": [*_summary(inputs, outputs, region.buffers, weights)],
        "preference": _PREFERENCES[described.preference],
        "relaxed": "true" if described.relaxed else "false",
        "device": "nullptr" if described.device is None else _string(described.device),
        "inputs": inputs,
        "outputs": outputs,
        "overloads": [
            (type_, " | ".join(f"bit(Element::{element})" for element in elements))
            for type_, elements in _OVERLOADS.items()
        ],
        "weights": weights if region.buffers else None,
        "channels": any(operand.channels for operand in model.operands),
        "header_rows": _initialiser_rows(f"0x{byte:02x}" for byte in weights.header[:40]),
        "tables": [*_tables(model, inputs, outputs, weights)],
        "required": _REQUIRED,
        "later": _LATER,
    }
    environment = _environment()
    header = environment.get_template("region.h.j2").render(context)
    source = environment.get_template("region.cpp.j2").render(context)
    return CppClass(name, f"{stem}.h", header, source)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(DATA),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )


@dataclass(frozen=True)
class _Boundary:
    """Input or output: its name in the graph, its operand in the model, and its type in PyTorch."""

    name: str
    index: int
    operand: Operand
    type: TensorType

    @property
    def n_bytes(self) -> int:
        return operand_bytes(self.operand) or 0

    @property
    def count(self) -> int:
        return self.n_bytes // ELEMENTS[self.operand.type].itemsize


def _boundary(
    kind: str,
    names: Sequence[str],
    ids: Sequence[int],
    types: Sequence[TensorType],
    model: NnapiModel,
) -> list[_Boundary]:
    boundaries = []
    for name, index, type_ in zip(names, ids, types, strict=True):
        one = _Boundary(name, index, model.operands[index], type_)
        if one.operand.type not in _ELEMENTS or not one.n_bytes:
            raise SerializationError(
                f"{kind} {name!r} is {type_}: a C++ class takes and gives tensors of known sizes"
            )
        boundaries.append(one)
    return boundaries


def _summary(
    inputs: Sequence[_Boundary],
    outputs: Sequence[_Boundary],
    buffers: Sequence[bytes],
    weights: Weights,
) -> Iterator[str]:
    for kind, rows in (("input", inputs), ("output", outputs)):
        for one in rows:
            line = f"  {kind:<7} {_string(one.name)}: {one.type.device_dtype} "
            yield line + str(list(one.operand.dims))
            if one.type.quant is not None:
                yield f"          {one.type.quant}"
            if one.type.dim_order is DimOrder.CHANNELS_LAST:
                yield f"          channels last, for PyTorch's {list(one.type.shape)}"
            elif len(one.type.shape) > MAX_RANK:
                yield f"          PyTorch's {list(one.type.shape)}, its first dimensions as one"
    yield f"  weights {weights.n_bytes:,} bytes, in a file" if buffers else "  weights none"


def _tables(
    model: NnapiModel,
    inputs: Sequence[_Boundary],
    outputs: Sequence[_Boundary],
    weights: Weights,
) -> Iterator[str]:
    """Yields the model as C++ tables, each with the name that the source's template reads."""
    names = {one.index: _string(one.name) for one in (*inputs, *outputs)}
    operands, dims = [], []
    for index, operand in enumerate(model.operands):
        fields = f"{operand.type:d}, {len(operand.dims)}, {_float(operand.scale)}"
        shape = "x".join(map(str, operand.dims))
        note = " ".join(filter(None, (f"{index}: {operand.type.name}", shape, names.get(index))))
        operands += _noted([f"{{{fields}, {_int(operand.zero_point)}}},"], note)
        dims += _initialiser_rows((f"{size}u" for size in operand.dims), f"{index}")
    yield _table("Operand", "kOperands", operands)
    yield _table("std::uint32_t", "kDims", dims, "Of each operand in turn.")
    channels = []
    for index, operand in enumerate(model.operands):
        if operand.channels is not None:
            scales = f"kScales{index}"
            lines = "\n    ".join(_initialiser_rows(map(_float, operand.channels.scales)))
            yield f"constexpr float {scales}[] = {{\n    {lines}\n}};"
            counts = f"{operand.channels.dim}, {len(operand.channels.scales)}"
            channels.append(f"{{{index}, {{{counts}, {scales}}}}},")
    if channels:
        yield _table("Channels", "kChannels", channels)
    values, words = _values(model, weights)
    yield _table("std::uint32_t", "kWords", words, "Small constants, in the device's byte order.")
    yield _table("Value", "kValues", values)
    yield _table(
        "Operation",
        "kOperations",
        [f'{{{o.code:d}, {len(o.inputs)}, {len(o.outputs)}, "{o.code.name}"}},'
         for o in model.operations],
    )  # fmt: skip
    arguments = []
    for index, o in enumerate(model.operations):
        arguments += _initialiser_rows(map(str, o.inputs + o.outputs), f"{index}: {o.code.name}")
    yield _table("std::uint32_t", "kArguments", arguments, "Operands: inputs, then outputs.")
    for kind, rows in (("Input", inputs), ("Output", outputs)):
        yield _table(
            "std::uint32_t", f"k{kind}Operands", _initialiser_rows(str(one.index) for one in rows)
        )
        for i, one in enumerate(rows):
            sizes = ", ".join(f"{size}u" for size in one.operand.dims)
            yield f"constexpr std::uint32_t k{kind}Dims{i}[] = {{{sizes}}};"
        yield _table(
            "Tensor",
            f"k{kind}s",
            [_tensor_literal(one, f"k{kind}Dims{i}") for i, one in enumerate(rows)],
        )


def _tensor_literal(one: _Boundary, dims: str) -> str:
    last = "true" if one.type.dim_order is DimOrder.CHANNELS_LAST else "false"
    return (
        f"{{{_string(one.name)}, Element::{_ELEMENTS[one.operand.type]}, {last},"
        f" {len(one.operand.dims)}, {dims}, {one.count}, {one.n_bytes},"
        f" {_float(one.operand.scale)}, {_int(one.operand.zero_point)}}},"
    )


def _values(model: NnapiModel, weights: Weights) -> tuple[list[str], list[str]]:
    """Returns the rows of kValues, and the small values as rows of words."""
    rows, words = [], []
    n_words = 0
    lengths = tuple(map(len, weights.buffers))
    for index, source in sorted(require_consistent(model).items()):
        operand = model.operands[index]
        if isinstance(source, BufferSlice):
            require_inside(source, lengths, f"the value of operand {index}")
            place = weights.offsets[source.buffer] + source.offset
            rows.append(f"{{{index}, Source::kWeights, {place}, {source.length}}},")
            continue
        rows.append(f"{{{index}, Source::kWords, {n_words}, {len(source)}}},")
        if not source:
            continue
        integers = np.frombuffer(source + bytes(-len(source) % 4), "<u4")
        n_words += len(integers)
        note = _describe_operand(operand, source)
        words += _initialiser_rows((f"0x{word:08x}u" for word in integers), f"{index}: {note}")
    return rows, words


def _describe_operand(operand: Operand, source: bytes) -> str:
    """Returns the first numbers of a value, for a comment."""
    element = ELEMENTS.get(operand.type)
    if element is None or len(source) % element.itemsize:
        return operand.type.name
    numbers = [str(number) for number in np.frombuffer(source, element)[:4]]
    if len(source) > 4 * element.itemsize:
        numbers.append("...")
    return f"{operand.type.name} {', '.join(numbers)}"


def _table(type_: str, name: str, rows: Sequence[str], note: str = "") -> str:
    """Returns ``constexpr Span<TYPE> NAME`` over an array of these rows; a null one without rows,
    because C++ has no empty arrays."""
    comment = f"// {note}\n" if note else ""
    if not rows:
        return f"{comment}constexpr Span<{type_}> {name} = {{nullptr, 0}};"
    body = "\n".join(f"    {row}" for row in rows)
    return (
        f"{comment}constexpr {type_} {name}Array[] = {{\n{body}\n}};\n"
        f"constexpr Span<{type_}> {name} = spanOf({name}Array);"
    )


def _initialiser_rows(items: Iterable[str], note: str = "") -> list[str]:
    """Returns the items of an initialiser, as many to a line as fit, with a comment."""
    text = " ".join(f"{item}," for item in items)
    return _noted(textwrap.wrap(text, WIDTH - 20, break_on_hyphens=False), note)


def _noted(lines: list[str], note: str) -> list[str]:
    """Returns the lines with a comment: after the first line, or above it where it is too long."""
    if not lines or not note:
        return lines
    first, *rest = lines
    if 4 + len(first) + 4 + len(note) > WIDTH:
        return [f"// {note}", *lines]
    return [f"{first}  // {note}", *rest]


def _float(value: float) -> str:
    """Returns the float literal of exactly this value."""
    if value - value != 0.0:  # not finite
        raise SerializationError(f"an operand has the scale {value}, which C++ cannot say")
    return f"{short_float32(value)!r}f"


def _int(value: int) -> str:
    """Returns an int literal. The smallest int cannot be written as a negated literal."""
    return str(value) if value > -(2**31) else f"{value + 1} - 1"


def _string(text: str) -> str:
    """Returns a C++ string literal; all but plain ASCII is in octal ('?' too: no trigraphs)."""
    plain = "".join(
        chr(byte)
        if (chr(byte).isalnum() and byte < 128) or chr(byte) in "_.- /"
        else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{plain}"'
