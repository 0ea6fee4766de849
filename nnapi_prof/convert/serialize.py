"""NnapiModel -> bytes: PyTorch's serialized NNAPI model, version 1 (PROTOCOL.md, section 4).

Little-endian 32-bit words throughout; stock PyTorch (``torch.classes._nnapi.Compilation``) and the
device agent read the same bytes. A model with scales for each channel, which PyTorch's format
cannot say, has version 2: the same, and a table of them at its end. Stock PyTorch refuses that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from nnapi_prof.convert.model import BufferSlice, NnapiModel

FORMAT_VERSION = 1
CHANNEL_VERSION = 2
"""Of models that end with a table of channel scales."""
SOURCE_IMMEDIATE = 0
SOURCE_NUMBERED_BUFFER = 2

HEADER = struct.Struct("<6i")
OPERAND = struct.Struct("<iIfi")
VALUE = struct.Struct("<iiI")
OPERATION = struct.Struct("<iII")
SLICE = struct.Struct("<3I")


def _pack_words(values: Iterable[int]) -> bytes:
    items = tuple(values)
    return struct.pack(f"<{len(items)}I", *items)


def serialize(model: NnapiModel) -> bytes:
    """The bytes of a model; the numbered buffers that its values name travel apart."""
    sources = [
        SLICE.pack(v.source.buffer, v.source.offset, v.source.length)
        if isinstance(v.source, BufferSlice)
        else v.source
        for v in model.values
    ]
    channels = [(i, o.channels) for i, o in enumerate(model.operands) if o.channels is not None]
    parts = [
        HEADER.pack(
            CHANNEL_VERSION if channels else FORMAT_VERSION,
            len(model.operands),
            len(model.values),
            len(model.operations),
            len(model.inputs),
            len(model.outputs),
        )
    ]
    parts += [OPERAND.pack(o.type, len(o.dims), o.scale, o.zero_point) for o in model.operands]
    for value, source in zip(model.values, sources, strict=True):
        numbered = isinstance(value.source, BufferSlice)
        kind = SOURCE_NUMBERED_BUFFER if numbered else SOURCE_IMMEDIATE
        parts.append(VALUE.pack(value.operand, kind, len(source)))
    parts += [OPERATION.pack(o.code, len(o.inputs), len(o.outputs)) for o in model.operations]
    parts += [_pack_words(operand.dims) for operand in model.operands]
    parts += [source + bytes(-len(source) % 4) for source in sources]
    parts += [_pack_words(o.inputs + o.outputs) for o in model.operations]
    parts += [_pack_words(model.inputs), _pack_words(model.outputs)]
    if channels:
        parts.append(_pack_words([len(channels)]))
    for index, channel_scales in channels:
        parts.append(_pack_words([index, channel_scales.dim, len(channel_scales.scales)]))
        parts.append(struct.pack(f"<{len(channel_scales.scales)}f", *channel_scales.scales))
    return b"".join(parts)
