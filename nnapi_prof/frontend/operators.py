"""Which operators a model's file may call: what models need, and nothing that reaches files,
processes, the network or memory that is not theirs.

TorchScript and exported programs are code of whoever sent them. Their operators are held against
this list before anything of them runs.
"""

from __future__ import annotations

import functools

import torch

NAMESPACES = frozenset(
    (
        "aten prim prims prepacked quantized _quantized quantization quantized_decomposed sparse "
        "mkldnn mkldnn_prepacked onednn torchao torchvision torchaudio fbgemm profiler pt2e_quant "
        "higher_order export"
    ).split()
)
"""Namespaces of operators that compute. Others are refused: those of packages that read images and
sound (``image``, ``torchaudio_ffmpeg``), that speak to other processes (``c10d``), unknown ones."""

DENIED = frozenset(
    (
        "aten::from_file aten::save aten::_print aten::_nested_view_from_buffer "
        "aten::_nested_view_from_buffer_copy aten::_sparse_coo_tensor_unsafe "
        "aten::_sparse_compressed_tensor_unsafe aten::_sparse_csr_tensor_unsafe "
        "aten::_sparse_csc_tensor_unsafe aten::_sparse_bsr_tensor_unsafe "
        "aten::_sparse_bsc_tensor_unsafe aten::_cuda_getCurrentRawStream aten::record_stream "
        "prim::rpc_async prim::rpc_sync prim::rpc_remote prim::PythonOp prim::IgnoredPythonOp "
        "mkldnn::data_ptr"
    ).split()
)
"""Files, other processes, addresses, and tensors made without a look at their indices."""

TEXT_TAKERS = frozenset(
    (
        # Operators that take text which is a mode, an equation or just text.
        "Delete Float Int __contains__ __getitem__ __interpolate __upsample _assert_async "
        "_assert_scalar _convolution_mode _functional_assert_async _functional_assert_scalar "
        "_linalg_check_errors _linalg_eigh _linalg_svd _mixed_dtypes_linear _set_item _sparse_mm "
        "_sparse_mm_reduce_impl _sparse_semi_structured_linear _sparse_semi_structured_tile add "
        "any capitalize center clear conv1d conv2d conv3d copy count device dict div div_ divide "
        "divide_ einsum endswith eq expandtabs fft_fft fft_fft2 fft_fftn fft_hfft fft_hfft2 "
        "fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft "
        "fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn find format ge gelu gelu_ "
        "gelu_backward get get_autocast_dtype gt hash index index_reduce index_reduce_ isalnum "
        "isalpha isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle "
        "isupper items join keys le len linalg_cond linalg_eigh linalg_eigvalsh linalg_lstsq "
        "linalg_matrix_norm linalg_norm linalg_qr linalg_svd linalg_svdvals list ljust lower "
        "lstrip lt meshgrid nanquantile ne ord pad pad_sequence partition percentFormat pop "
        "popitem quantile remove replace rfind rindex rjust rpartition rsplit rstrip scatter "
        "scatter_ scatter_reduce scatter_reduce_ searchsorted segment_reduce setdefault slice "
        "sort sorted split splitlines startswith stft strip swapcase title update upper values "
        "warn zfill istft scaled_dot_product_attention bucketize "
        # of other namespaces
        "ModuleContainerIndex RaiseException StringIndex access_subclass_inner_tensor "
        "_record_function_enter _record_function_enter_new qconv1d_pointwise qconv2d_pointwise "
        "qconv3d_pointwise qconv_pointwise qlinear_pointwise _convolution_pointwise "
        "_convolution_pointwise_ _convolution_transpose_pointwise _linear_pointwise conv2d_prepack"
    ).split()
)
"""Any other operator with an argument that is text is taken for one that names a file or a host."""

HIGHER_ORDER = frozenset(
    (
        "cond while_loop scan map_impl associative_scan wrap wrap_with_set_grad_enabled "
        "wrap_with_autocast hints_wrapper auto_functionalized auto_functionalized_v2 with_effects "
        "flex_attention out_dtype strict_mode tag_activation_checkpoint invoke_subgraph "
        "checkpoint_activation"
    ).split()
)
"""Operators whose arguments are graphs, which are checked as any other."""

CLASSES = frozenset("quantized rnn sparse xnnpack mkldnn".split())
"""Namespaces of ``torch.classes`` whose objects hold packed weights."""


def refusal(name: str) -> str | None:
    """Why a model may not call the operator ``namespace::name`` (without overload); None where it
    may. Of an operator that no package registered yet the name alone is judged."""
    namespace, _, base = name.partition("::")
    if namespace not in NAMESPACES:
        return "no operator that models need to compute"
    if name in DENIED or base.startswith("_test_"):
        return "one that reaches files, other processes or memory outside the model"
    if namespace == "higher_order":
        return None if base in HIGHER_ORDER else "one that runs other code"
    if base not in TEXT_TAKERS and _takes_text(name):
        return "one that takes text, which may name a file or a host"
    return None


def is_registered(name: str) -> bool:
    """Whether this process has the operator ``namespace::name``."""
    namespace, _, base = name.partition("::")
    return bool(_schemas(name)) or hasattr(getattr(torch.ops, namespace), base)


def _takes_text(name: str) -> bool:
    return any("str" in str(a.type) for schema in _schemas(name) for a in schema.arguments)


def _schemas(name: str) -> list[torch.FunctionSchema]:
    return torch._C._jit_get_schemas_for_operator(name)


@functools.cache
def refused_words() -> frozenset[str]:
    """Names of all refused operators that TorchScript's text could call without a namespace, or by
    the name of a builtin."""
    names = {name for schema in torch._C._jit_get_all_schemas() if (name := schema.name)}
    builtin = {name for name in names if name.startswith(("aten::", "prim::"))}
    refused = {name for name in builtin if refusal(name) is not None} | DENIED
    return frozenset(name.partition("::")[2] for name in refused)
