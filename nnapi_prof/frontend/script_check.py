"""Check TorchScript files before they are loaded, and their operators before they run.

TorchScript and exported programs are code from their sender. Their operators are checked against a
list of those that models need, which reach no files, processes, network or foreign memory.

Loading compiles the file's code and runs parts of it: ``__setstate__`` of its objects, and defaults
of arguments and fields that are not plain constants. Where there are such parts, the text of the
code must not contain the name of any refused operator anywhere. The rest is checked exactly, in the
graphs of all functions, before any of them is called.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from nnapi_prof.errors import ModelFileError, escape_untrusted
from nnapi_prof.frontend.archives import CLASSES, BadPickle, check_script_pickle, look_into

NAMESPACES = frozenset(
    (
        "aten prim prims prepacked quantized _quantized quantization quantized_decomposed sparse "
        "mkldnn mkldnn_prepacked onednn torchao torchvision torchaudio transformers fbgemm "
        "profiler pt2e_quant higher_order export"
    ).split()
)
"""Namespaces of operators that compute. Others are refused: those that read images and sound
(``image``, ``torchaudio_ffmpeg``) or talk to other processes (``c10d``), and unknown ones."""

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
"""Operators on files, other processes or addresses, or that make tensors with unchecked indices."""

TEXT_TAKERS = frozenset(
    (
        # The text is a mode, an equation or just text.
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
        "_convolution_pointwise_ _convolution_transpose_pointwise _linear_pointwise conv2d_prepack "
        "choose_qparams_affine quantize_affine dequantize_affine"
    ).split()
)
"""Operators that may take text. Any other text argument is assumed to name a file or a host."""

HIGHER_ORDER = frozenset(
    (
        "cond while_loop scan map_impl associative_scan wrap wrap_with_set_grad_enabled "
        "wrap_with_autocast hints_wrapper auto_functionalized auto_functionalized_v2 with_effects "
        "flex_attention out_dtype strict_mode tag_activation_checkpoint invoke_subgraph "
        "checkpoint_activation"
    ).split()
)
"""Operators whose arguments are graphs, which are checked like any other graph."""


def refusal(name: str) -> str | None:
    """Returns why a model may not call the operator ``namespace::name`` (without overload); None
    where it may. An operator that no package has registered yet is judged by its name alone."""
    namespace, _, base = name.partition("::")
    if namespace not in NAMESPACES:
        return "not an operator that models need to compute"
    if name in DENIED or base.startswith("_test_"):
        return "one that reaches files, other processes or memory outside the model"
    if namespace == "higher_order":
        return None if base in HIGHER_ORDER else "one that runs other code"
    if base not in TEXT_TAKERS and _takes_text(name):
        return "one that takes text, which may name a file or a host"
    return None


def is_registered(name: str) -> bool:
    """Returns whether this process has the operator ``namespace::name``."""
    namespace, _, base = name.partition("::")
    return bool(_schemas(name)) or hasattr(getattr(torch.ops, namespace), base)


def _takes_text(name: str) -> bool:
    return any("str" in str(a.type) for schema in _schemas(name) for a in schema.arguments)


def _schemas(name: str) -> list[torch.FunctionSchema]:
    return torch._C._jit_get_schemas_for_operator(name)


@functools.cache
def refused_words() -> frozenset[str]:
    """Returns the names of all refused operators that TorchScript's text could call without a
    namespace, or by the name of a builtin."""
    names = {name for schema in torch._C._jit_get_all_schemas() if (name := schema.name)}
    builtin = {name for name in names if name.startswith(("aten::", "prim::"))}
    refused = {name for name in builtin if refusal(name) is not None} | DENIED
    return frozenset(name.partition("::")[2] for name in refused)


# Files


_PICKLES = ("data.pkl", "constants.pkl")
"""Pickles that loading reads; ``traced_inputs.pkl`` and ``bytecode.pkl`` are not read."""
_WITHOUT = "save the model without it"
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_HEADER = re.compile(r"\bdef\s+\w+\s*\(")
_SET_FIELD = re.compile(r"^[ \t]*\w+\s*:[^=\n]*=(?!=)\s*(.*)$", re.MULTILINE)
_PLAIN = re.compile(
    r"""(?:True|False|None|CONSTANTS\.c\d+|float\(["'](?:-?inf|nan)["']\)|-?[\d.]+(?:e[-+]?\d+)?
    |annotate\([\w.\[\], ]+,\ *(?:\[\]|\{\}|None)\)|torch\.device\("\w+"\)
    |"[^"\\\n]*"|'[^'\\\n]*'|[\[\](),\s])*""",
    re.VERBOSE,
)
_ARITHMETIC = ("aten::add", "aten::sub", "aten::mul", "aten::div")
_GETATTR = re.compile(r'\bgetattr\s*\([\w.()\[\]]+, "[^"\\\n]*"\)')


def load_script(path: Path) -> Any:
    """Checks a file and loads it as ``torch.jit.load`` does; only code that restores its weights
    runs. Raises ModelFileError where the file is refused."""
    check_before_loading(path)
    unit: Any = torch._C.CompilationUnit()  # torch's stubs of these two are wrong
    native: Any = torch._C
    module = native.import_ir_module(unit, str(path), torch.device("cpu"), {}, False)
    check_operators(unit, path)
    script: Any = torch.jit._recursive.wrap_cpp_module(module)  # type: ignore[no-untyped-call]
    _restore_numbers(script)
    return script


def _restore_numbers(script: Any) -> None:
    """Turns float64 tensors without dimensions, as traces store numbers, back into numbers.

    With an integer operand such a tensor gives float64, but the model's number gave float32.
    PyTorch's optimiser does the same in these operators before the first run
    (torch/csrc/jit/passes/canonicalize_graph_fuser_ops.cpp), and here models run without it.
    """
    for module in script.modules():
        for method in map(module._c._get_method, module._c._method_names()):
            graph = method.graph
            for node in (node for kind in _ARITHMETIC for node in graph.findAllNodes(kind)):
                other = list(node.inputs())[1]
                value: Any = other.toIValue() if other.node().kind() == "prim::Constant" else None
                scalar = isinstance(value, torch.Tensor) and value.ndim == 0
                if scalar and value.dtype is torch.float64:
                    with graph.insert_point_guard(node):
                        node.replaceInput(1, graph.insertConstant(value.item()))


def check_before_loading(path: Path) -> None:
    """Checks a TorchScript file without loading it. Raises ModelFileError."""
    archive = look_into(path)
    archive.require_same_to_torch()
    if "model.json" in archive.sizes:
        raise ModelFileError(f"{path} is of PyTorch 1.0 to 1.3: load and save it with PyTorch 1.4")
    for name in archive.sizes:
        if name in _PICKLES or name.endswith(".debug_pkl"):
            folder = name.removesuffix(".pkl")
            try:
                check_script_pickle(archive.read(name), archive.sizes, folder)
            except BadPickle as error:
                raise ModelFileError(
                    f"{path} cannot be loaded as TorchScript: {error} (in its "
                    f"{escape_untrusted(name, 100)})",
                    "save or copy the file again",
                ) from error
    code = [name for name in archive.sizes if name.startswith("code/") and name.endswith(".py")]
    texts = {name: archive.read(name).decode("utf-8", "surrogateescape") for name in code}
    for text in texts.values():
        _check_classes(text, path)
    if any(map(runs_at_load, texts.values())):
        for name, text in texts.items():
            _check_text(text, name, path)


def runs_at_load(text: str) -> bool:
    """Returns whether a file of code has parts that run when it is compiled or its objects are
    restored; true in case of doubt."""
    if "__setstate__" in text or '"""' in text or "'''" in text:
        return True
    headers = []
    for match in _HEADER.finditer(text):
        defaults, end = _header(text, match.end())
        if end is None or not all(map(_PLAIN.fullmatch, defaults)):
            return True
        if not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip():
            headers.append(range(match.start(), end))
    return any(
        not _PLAIN.fullmatch(field[1])
        for field in _SET_FIELD.finditer(text)
        if not any(field.start() in header for header in headers)
    )


def _header(text: str, at: int) -> tuple[list[str], int | None]:
    """Parses the function header whose arguments begin at ``at``. Returns the text after each
    ``=``, up to where the next argument may begin, and the header's end; that is None where the
    header is not plain."""
    depth, start, defaults = 1, None, []
    while at < len(text):
        char = text[at]
        if char in "\"'":
            end = next((i for i in range(at + 1, len(text)) if text[i] in f"{char}\n\\"), -1)
            if end < 0 or text[end] != char:
                break
            at = end
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char in "#\\":
            break
        elif char == "=" and start is None:
            start = at + 1
        if start is not None and (depth == 0 or (depth == 1 and char == ",")):
            defaults.append(text[start:at])
            start = None
        if depth == 0:
            return defaults, at
        at += 1
    return defaults, None


def _check_classes(text: str, path: Path) -> None:
    for match in re.finditer(r"\btorch\s*\.\s*classes\s*\.\s*(\w+)", text):
        if match[1] not in CLASSES:
            raise ModelFileError(
                f"{path} uses torch.classes.{escape_untrusted(match[1], 60)}, which is refused: it"
                f" is not packed weights; {_WITHOUT}"
            )


def _check_text(text: str, name: str, path: Path) -> None:
    words = set(_IDENTIFIER.findall(text))
    bad = sorted(words & refused_words())
    for match in re.finditer(r"\bops\b(?:\.(\w+)\b)?", text):
        if match[1] not in NAMESPACES:
            bad.append(f"ops.{match[1]}" if match[1] else "ops")
    if "getattr" in words and len(re.findall(r"\bgetattr\b", text)) != len(_GETATTR.findall(text)):
        bad.append("getattr")
    if bad:
        raise ModelFileError(
            f"{path}: its code {escape_untrusted(name, 100)} runs when it is loaded and names "
            f"{escape_untrusted(bad[0], 60)}, which is refused: models may not reach files, other"
            f" processes or the network; {_WITHOUT}"
        )


def check_operators(unit: Any, path: Path) -> None:
    """Checks every operator of every function by :func:`refusal`. Raises ModelFileError, which
    names the first refused one."""
    for function in unit.get_functions():
        for node in _nodes(function.graph):
            why = refusal(node.kind()) if "::" in node.kind() else None
            if why is not None:
                raise ModelFileError(
                    f"{path} uses {escape_untrusted(node.kind(), 100)} in"
                    f" {escape_untrusted(function.name, 100)}, which is refused: it is {why};"
                    f" {_WITHOUT}"
                )


def _nodes(graph: Any) -> Iterator[Any]:
    waiting = [graph]
    while waiting:
        block = waiting.pop()
        for node in block.nodes():
            yield node
            waiting += node.blocks()
            for name in node.attributeNames():
                kind = node.kindOf(name)
                if kind == "g":
                    waiting.append(node.g(name))
                elif kind == "gs":
                    waiting += node.gs(name)
