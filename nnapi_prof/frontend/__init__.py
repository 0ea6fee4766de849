"""Turn a model file or module into a normalised graph (:mod:`nnapi_prof.graph`).

The table lists the forms of operations in a Program's graph. ``x`` is a tensor node, lists have
full length, dims are non-negative, sizes concrete; arguments are positional unless named.

=============================  =====================================================================
concept                        the only form
=============================  =====================================================================
convolution of every kind      convolution.default(x, w, b | None, stride, padding, dilation,
                               transposed, output_padding, groups)
padding="same", uneven         constant_pad_nd, then convolution with padding 0
linear, x @ constant           linear.default(x, w, b | None)
batch norm                     folded; else batch_norm.default(x, w, b, mean, var, False, 0.0, eps,
                               False), w and b always present
add, subtract, multiply, ...   add/sub/mul/div.Tensor(x, other), other a tensor node or a number;
                               a constant comes second in add and mul; no alpha
number - x                     add(mul(x, -1), number)
relu, clamp(min=0)             relu.default(x)
relu6, clamp(0, 6)             hardtanh.default(x, 0.0, 6.0)
hardtanh, clamp(-1, 1)         hardtanh.default(x, -1.0, 1.0)
other clamps and hardtanhs     clamp.default(x, min | None, max | None)
activations                    sigmoid, hardsigmoid, hardswish, silu, tanh: .default(x)
a & b, greater, absolute, ...  bitwise_and.Tensor, gt.Tensor, abs.default, ...: one name each, see
                               passes/overloads.py
zeros_like, new_full, ...      constants
x[mask] = one value            where.self(mask, value, x)
scatters at constant places    index_select of cat([x, values]); sums by a product; one_hot: eq
softmax, log_softmax           softmax.int(x, dim), log_softmax.int(x, dim)
max pool                       max_pool2d.default(x, kernel, stride, padding, dilation, ceil_mode)
average pool                   avg_pool2d.default(x, kernel, stride, padding, ceil_mode,
                               count_include_pad, divisor_override | None)
adaptive average pool,         adaptive_avg_pool2d.default(x, [h, w])
mean of H, W with keepdim
mean                           mean.dim(x, dims ascending, keepdim)
cat, stack                     cat.default([...], dim), after views for stack
view, reshape, flatten,        view.default(x, sizes); reshape.default(x, sizes) where eager's
squeeze, unsqueeze             strides forbid a view: lower both alike
permute, transpose, t, movedim permute.default(x, dims)
slice, narrow, split, chunk    slice.Tensor(x, dim, start, end, step)
select, unbind                 slice.Tensor, then view
split and assignment of parts  slice.Tensor and cat.default; fill: expand of one constant
flip, roll, repeat, other pads flip/roll/repeat/pad.default; tile, rot90, hstack ... in these terms
1-d layers (conv1d, ...)       2-d layers on [N, C, 1, L], between reshapes
ranks above 4                  reshapes around operations of rank 4, where possible
pad with a constant            constant_pad_nd.default(x, pad, value), no zero pairs at the end
resize                         upsample_nearest2d.vec(x, [h, w], None),
                               upsample_bilinear2d.vec(x, [h, w], align_corners, None), ...; scales
                               that sizes cannot express: .vec(x, None, ..., [sh, sw])
change of element type         _to_copy.default(x, dtype=...), also the implicit ones of cat,
                               softmax, sum, any, ...
bytes of an input as floats    dequantize_per_tensor.default(x, 1.0, 0, ...)
quantised values               uint8 or int8 tensors between quantize_per_tensor.default(x, scale,
                               zero_point, quant_min, quant_max, dtype) and dequantize_per_tensor
                               of the same arguments; operators in between compute in floats
quantised weights              integer constants behind dequantize_per_tensor.default or
                               dequantize_per_channel.default
moves of quantised values      on the integers
integers of a narrower range   the type's full range, with a clamp where needed
fake quantisation              quantize and dequantize
scales that are computed, and  arithmetic on floats
integers of more than 8 bits
change of dim order            clone.default(x, memory_format=...): the only clones there are
dropout, identity, detach ...  removed
=============================  =====================================================================

Everything else keeps PyTorch's form. ``getitem`` reads the values of nodes with several.
"""

from nnapi_prof.frontend.inputs import InputSpec, parse_input_spec
from nnapi_prof.frontend.loader import ModelKind, load, model_kind, prepare, reference

__all__ = [
    "InputSpec",
    "ModelKind",
    "load",
    "model_kind",
    "parse_input_spec",
    "prepare",
    "reference",
]
