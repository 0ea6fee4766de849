"""TorchScript files, looked into before they are loaded, and their operators before they run.

Loading compiles the file's code and runs parts of it: ``__setstate__`` of its objects, and defaults
of arguments and fields that are no plain constants. Where there are such parts, the text of the
code must not contain the name of any refused operator, wherever it stands. The rest is checked
exactly, in the graphs of all functions, before any of them is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from nnapi_prof.errors import ModelFileError, visible
from nnapi_prof.frontend.archives import look_into
from nnapi_prof.frontend.operators import CLASSES, NAMESPACES, refusal, refused_words
from nnapi_prof.frontend.pickles import BadPickle, check_script_pickle

_PICKLES = ("data.pkl", "constants.pkl")
"""What is read; ``traced_inputs.pkl`` and ``bytecode.pkl`` are not."""
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
_GETATTR = re.compile(r'\bgetattr\s*\([\w.()\[\]]+, "[^"\\\n]*"\)')


def load_script(path: Path) -> Any:
    """``torch.jit.load`` of a file that was looked into, with nothing of it run but what restores
    its weights. Raises ModelFileError where it is refused."""
    check_before_loading(path)
    unit: Any = torch._C.CompilationUnit()  # torch's stubs of these two are not theirs
    native: Any = torch._C
    module = native.import_ir_module(unit, str(path), torch.device("cpu"), {}, False)
    check_operators(unit, path)
    return torch.jit._recursive.wrap_cpp_module(module)  # type: ignore[no-untyped-call]


def check_before_loading(path: Path) -> None:
    """Looks into a TorchScript file. Raises ModelFileError."""
    archive = look_into(path)
    if not archive.same_to_torch():
        raise ModelFileError(
            f"{path} is truncated or damaged (readers differ on what it holds): save or copy the "
            "file again"
        )
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
                    f"{visible(name, 100)}): save or copy the file again"
                ) from error
    code = [name for name in archive.sizes if name.startswith("code/") and name.endswith(".py")]
    texts = {name: archive.read(name).decode("utf-8", "surrogateescape") for name in code}
    for text in texts.values():
        _check_classes(text, path)
    if any(map(runs_at_load, texts.values())):
        for name, text in texts.items():
            _check_text(text, name, path)


def runs_at_load(text: str) -> bool:
    """Whether a file of code has parts that run when it is compiled or its objects are restored.
    In doubt it has."""
    if "__setstate__" in text or '"""' in text or "'''" in text:
        return True
    headers = []
    for found in _HEADER.finditer(text):
        defaults, end = _header(text, found.end())
        if end is None or not all(map(_PLAIN.fullmatch, defaults)):
            return True
        if not text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip():
            headers.append(range(found.start(), end))
    return any(
        not _PLAIN.fullmatch(field[1])
        for field in _SET_FIELD.finditer(text)
        if not any(field.start() in header for header in headers)
    )


def _header(text: str, at: int) -> tuple[list[str], int | None]:
    """What stands behind each ``=`` of the function's header whose arguments begin at ``at``, up to
    where the next argument may begin; and the header's end, None where it is nothing plain."""
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
    for found in re.finditer(r"\btorch\s*\.\s*classes\s*\.\s*(\w+)", text):
        if found[1] not in CLASSES:
            raise ModelFileError(
                f"{path} uses torch.classes.{visible(found[1], 60)}, which is refused: it is no "
                f"packed weights; {_WITHOUT}"
            )


def _check_text(text: str, name: str, path: Path) -> None:
    words = set(_IDENTIFIER.findall(text))
    bad = sorted(words & refused_words())
    for found in re.finditer(r"\bops\b(?:\.(\w+)\b)?", text):
        if found[1] not in NAMESPACES:
            bad.append(f"ops.{found[1]}" if found[1] else "ops")
    if "getattr" in words and len(re.findall(r"\bgetattr\b", text)) != len(_GETATTR.findall(text)):
        bad.append("getattr")
    if bad:
        raise ModelFileError(
            f"{path}: its code {visible(name, 100)} runs when it is loaded and names "
            f"{visible(bad[0], 60)}, which is refused: models may not reach files, other processes "
            f"or the network; {_WITHOUT}"
        )


def check_operators(unit: Any, path: Path) -> None:
    """Holds every operator of every function against :mod:`.operators`. Raises ModelFileError,
    which names the first that is refused."""
    for function in unit.get_functions():
        for node in _nodes(function.graph):
            why = refusal(node.kind()) if "::" in node.kind() else None
            if why is not None:
                raise ModelFileError(
                    f"{path} uses {visible(node.kind(), 100)} in {visible(function.name, 100)}, "
                    f"which is refused: it is {why}; {_WITHOUT}"
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
