"""Models drawn at random, as the converter makes them: each operand has one role."""

from hypothesis import settings
from hypothesis import strategies as st

from nnapi_prof.convert import (
    BufferSlice,
    ChannelScales,
    ConstantValue,
    NnapiModel,
    Operand,
    Operation,
)
from nnapi_prof.convert.export_json import operand_bytes
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

SHARED_MACHINE = settings(deadline=None, max_examples=100)
WORDS = st.integers(0, 2**32 - 1)


@st.composite
def operands(draw):
    """Operands with room for small values too."""
    code = draw(st.sampled_from(OperandCode))
    sizes = st.integers(1, 3) if draw(st.booleans()) else WORDS
    dims = tuple(draw(st.lists(sizes, max_size=4))) if code.name.startswith("TENSOR_") else ()
    channels = None
    short = [dim for dim, size in enumerate(dims) if size <= 3]
    if code is OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL and short:
        dim = draw(st.sampled_from(short))
        scale = st.floats(2.0**-100, 2.0**100, width=32)
        scales = draw(st.lists(scale, min_size=dims[dim], max_size=dims[dim]))
        channels = ChannelScales(dim, tuple(scales))
    return Operand(
        code,
        dims,
        draw(st.floats(width=32, allow_nan=False, allow_infinity=False)),
        draw(st.integers(-(2**31), 2**31 - 1)),
        channels,
    )


@st.composite
def values(draw, index, operand):
    """A value of an operand: of its size, or left out; any bytes at all."""
    size = operand_bytes(operand)
    if size is not None and size < 200 and draw(st.booleans()):
        return ConstantValue(index, draw(st.binary(min_size=size, max_size=size) | st.just(b"")))
    if size is None:
        size = draw(WORDS)
    length = size if size < 2**32 else 0
    return ConstantValue(index, BufferSlice(draw(st.integers(0, 9)), draw(WORDS), length))


@st.composite
def models(draw):
    """Models whose operands have one role each, as the converter makes them."""
    all_operands = draw(st.lists(operands(), min_size=1, max_size=8).map(tuple))
    ids = range(len(all_operands))
    roles = draw(st.tuples(*(st.sampled_from("iovt") for _ in ids)))
    id_lists = st.lists(st.sampled_from(ids), max_size=4).map(tuple)
    operations = st.builds(Operation, st.sampled_from(OperationCode), id_lists, id_lists)
    of_role = {role: [i for i in ids if roles[i] == role] for role in "iov"}
    return NnapiModel(
        all_operands,
        tuple(draw(values(i, all_operands[i])) for i in of_role["v"]),
        draw(st.lists(operations, max_size=4).map(tuple)),
        tuple(draw(st.permutations(of_role["i"]))),
        tuple(draw(st.permutations(of_role["o"]))),
    )
