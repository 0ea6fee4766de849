"""Check files of ExportedPrograms (``.pt2``) before PyTorch loads them, and read classes as dicts.

``torch.export.load`` unpickles the data of tensors, evaluates expressions of sizes and guards as
Python, looks functions up by dotted names, writes names into Python code and loads compiled code.
All of these are checked here, and anything that models do not need is refused by name.

A ``.pt2`` names the classes that its inputs and outputs are nested in: data classes, named tuples,
``ModelOutput`` and caches of transformers. PyTorch rebuilds them where the process has registered
classes of these names, and refuses the file elsewhere. The file also states the field names, so
these classes are read as dicts by their field names.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch._export.serde import serialize as _serialize

from nnapi_prof.errors import ModelFileError, escape_untrusted
from nnapi_prof.frontend.archives import (
    Archive,
    BadPickle,
    check_inner,
    check_saved_tensors,
    look_into,
)
from nnapi_prof.frontend.script_check import is_registered, refusal

serialize: Any = _serialize
"""PyTorch's reader of such files, of which :func:`classes_as_dicts` replaces two functions."""
_deserialize = serialize.deserialize_torch_artifact
_PLAIN = ("builtins.", "collections.OrderedDict", "collections.defaultdict", "collections.deque")
"""Types that PyTorch rebuilds without a registration."""


@contextmanager
def classes_as_dicts() -> Iterator[None]:
    """Makes ``torch.export.load`` return dicts and tuples in place of classes, and omit stored
    example inputs that hold objects of them."""
    original = serialize.treespec_loads

    def loads(text: str) -> Any:
        return original(without_classes(text))

    serialize.treespec_loads = loads
    serialize.deserialize_torch_artifact = _examples
    try:
        yield
    finally:
        serialize.treespec_loads = original
        serialize.deserialize_torch_artifact = _deserialize


def _examples(data: Any) -> Any:
    """Read stored example inputs; None where they hold objects of classes, which are not
    created."""
    if isinstance(data, bytes) and data:
        try:
            check_saved_tensors(data)
        except BadPickle:
            return None
    return _deserialize(data)


def names_classes(text: str) -> bool:
    """Return whether a serialised tree contains classes."""
    return without_classes(text) != json.dumps(json.loads(text))


def without_classes(text: str) -> str:
    """Rewrite a serialised tree: a class with names for its fields becomes a dict, any other class
    a tuple."""
    protocol, tree = json.loads(text)
    return json.dumps([protocol, _without_classes(tree)])


def _without_classes(node: dict[str, Any]) -> dict[str, Any]:
    children = [_without_classes(child) for child in node["children_spec"]]
    kind, context = node["type"], node["context"]
    if kind is not None and not kind.startswith(_PLAIN):
        names = _field_names(context, len(children))
        kind = "builtins.tuple" if names is None else "builtins.dict"
        context = json.dumps(names)
    return {"type": kind, "context": context, "children_spec": children}


def _field_names(context: str | None, n_children: int) -> list[str] | None:
    """Return the names of the fields that have a value, in order; None where none are stated.

    ``context`` is JSON: a list of names, or for a data class two lists, of fields with a value and
    of fields that are None.
    """
    try:
        names = json.loads(context or "null")
    except ValueError:
        return None
    if isinstance(names, list) and len(names) == 2 and all(isinstance(n, list) for n in names):
        names = names[0]
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    fits = is_list and len(names) == n_children == len(set(names))
    return names if fits else None


_AGAIN = "export the model again without it"
_LONGEST = 20_000  # characters of an expression
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_UNPRINTED = re.compile(r"[\"'\\]")
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.\w+)?", re.ASCII)
_PYTHON = re.compile(r"(?:_operator|math)\.[a-z]\w*", re.ASCII)
_NOT_PYTHON = {"attrgetter", "itemgetter", "methodcaller", "call", "setitem", "delitem"}
_TORCH = re.compile(
    r"torch\.(?:_C\.)?(?:sym_\w+|_sym_\w+|_set_grad_enabled|_check|_check_is_size)"
    r"|torch\.amp\.autocast_mode\._(?:enter|exit)_autocast",
    re.ASCII,
)
_SYMBOL = re.compile(r"[A-Za-z]\w{0,60}|-?[\d.]+(?:e[-+]?\d+)?", re.ASCII)
_FUNCTIONS = frozenset(
    (
        # Names that the exporter writes: SymPy's and PyTorch's classes of expressions.
        "Symbol Integer Rational Float Add Mul Pow Mod Max Min Abs Eq Ne Lt Le Gt Ge Not And Or "
        "Equality Unequality StrictLessThan StrictGreaterThan LessThan GreaterThan Piecewise "
        "ExprCondPair Tuple BooleanTrue BooleanFalse true false floor ceiling sqrt log exp "
        "FloorDiv ModularIndexing Where PythonMod CleanDiv CeilToInt FloorToInt CeilDiv LShift "
        "RShift PowByNatural FloatPow FloatTrueDiv IntTrueDiv IsNonOverlappingAndDenseIndicator "
        "TruncToFloat TruncToInt RoundToInt RoundDecimal ToFloat Identity BitwiseFn_bitwise_and "
        "BitwiseFn_bitwise_or BitwiseFn_bitwise_xor int_oo nan oo zoo Infinity NegativeInfinity "
        "IntInfinity NegativeIntInfinity Half One Zero NegativeOne "
        # of guards
        "math int float bool min max abs L inf"
    ).split()
)
_METHODS = {"size", "stride", "storage_offset", "item", "dim", "floor", "ceil", "trunc", "isnan",
            "sqrt", "inf", "nan", "pow"}  # fmt: skip
_FACTORIES = frozenset({"list", "dict", "set", "tuple", "int", "float", "str"})
"""Factories of a ``defaultdict`` among the inputs."""
_NODES = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Attribute,
    ast.Subscript, ast.Tuple, ast.IfExp,
)  # fmt: skip


class _Refused(Exception):
    """The refused construct, as the middle of a sentence."""


def check_export(path: Path) -> None:
    """Checks a ``.pt2``. Raises ModelFileError where it holds code that could run, or something
    that does not belong there."""
    archive = look_into(path)
    older = "serialized_exported_program.json" in archive.sizes
    if not older:
        archive.require_same_to_torch()
    for name, data in _records(archive, older):
        try:
            _check_record(archive, name, data, older)
        except _Refused as refused:
            raise ModelFileError(
                f"{path} is refused: its {escape_untrusted(name, 100)} {refused}", f"{_AGAIN}"
            ) from None
        except RecursionError:
            raise ModelFileError(
                f"{path} is refused: its {escape_untrusted(name, 100)} is nested too deeply",
                _AGAIN,
            ) from None


def _records(archive: Archive, older: bool) -> Iterator[tuple[str, bytes]]:
    """Yields the records that PyTorch would read, except raw bytes of tensors, and other files."""
    if older:
        import zipfile

        with zipfile.ZipFile(archive.path) as file:
            for info in file.infolist():
                if not info.is_dir() and not info.filename.startswith("extra_files"):
                    yield info.filename, file.read(info)
        return
    for name in archive.sizes:
        parts = name.split("/")
        if name.endswith((".json", ".pt")) or "aotinductor" in parts or "obj_" in parts[-1]:
            yield name, archive.read(name) if name.endswith((".json", ".pt")) else b""


def _check_record(archive: Archive, name: str, data: bytes, older: bool) -> None:
    last = name.rpartition("/")[2]
    if "aotinductor" in name.split("/"):
        raise _Refused("is compiled code, which would run")
    if last.startswith(("opaque_obj_", "custom_obj_")):
        raise _Refused("is a pickled object, which could run anything")
    is_program = name.startswith("models/") or last == "serialized_exported_program.json"
    if is_program:
        _check_program(_json(data))
    elif last.endswith("_config.json"):
        _check_config(archive, name, _json(data))
    elif name.endswith(".pt") or (older and name.endswith(".json")):
        if name.startswith(_EXAMPLES) and _takes_classes(archive, name):
            check_inner(archive.path, name, data)  # no object is made: classes_as_dicts
        else:
            _check_tensors(archive, name, data)


_EXAMPLES = "data/sample_inputs/"


def _takes_classes(archive: Archive, examples: str) -> bool:
    """Returns whether the model of some example inputs takes objects of classes."""
    model = f"models/{examples.removeprefix(_EXAMPLES).removesuffix('.pt')}.json"
    program = _json(archive.read(model)) if model in archive.sizes else None
    specs: list[str] = []
    waiting = [program]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
            specs += [text for text in (value.get("in_spec"),) if isinstance(text, str)]
        elif isinstance(value, list):
            waiting += value
    for text in specs:
        _tree(text)
    return any(map(names_classes, specs))


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise _Refused(f"is not JSON ({escape_untrusted(str(error), 100)})") from None


def _check_tensors(archive: Archive, name: str, data: bytes) -> None:
    if not data:
        return
    check_inner(archive.path, name, data)
    try:
        check_saved_tensors(data)
    except BadPickle as error:
        raise _Refused(f"is a pickle that is not loaded: {error}") from None


def _check_config(archive: Archive, name: str, config: Any) -> None:
    """Checks the list of a model's weights or constants: pickled ones must hold tensors only, and a
    record without bytes must not claim elements."""
    entries = config.get("config") if isinstance(config, dict) else None
    if not isinstance(entries, dict):
        raise _Refused("is not a list of tensors")
    folder = name.rpartition("/")[0]
    for key, entry in entries.items():
        _check_name(key)
        file = entry.get("path_name") if isinstance(entry, dict) else None
        if not isinstance(file, str) or "/" in file or f"{folder}/{file}" not in archive.sizes:
            raise _Refused(f"names a file that is not there ({escape_untrusted(str(file), 100)})")
        if file.startswith(("opaque_obj_", "custom_obj_")):
            raise _Refused(
                f"names {escape_untrusted(file, 100)}, a pickled object, which could run anything"
            )
        meta = entry.get("tensor_meta")
        _walk(meta, "tensor_meta")
        if entry.get("use_pickle"):
            _check_tensors(archive, f"{folder}/{file}", archive.read(f"{folder}/{file}"))
        elif isinstance(meta, dict) and archive.sizes[f"{folder}/{file}"] == 0:
            sizes = [size.get("as_int") for size in meta.get("sizes", ())]
            if all(sizes):
                raise _Refused(f"gives {escape_untrusted(key, 100)} no bytes for its elements")


def _check_program(program: Any) -> None:
    if not isinstance(program, dict):
        raise _Refused("is not a program")
    _walk(program, "")


def _walk(value: Any, key: str) -> None:
    """Checks the value of ``key`` in the program's JSON; unknown keys are taken to hold names."""
    if isinstance(value, dict):
        if key == "metadata":
            return  # text on the origin of a node
        for name, inner in value.items():
            _check_name(name)
            _walk(inner, name if isinstance(inner, str | dict | list) else key)
    elif isinstance(value, list):
        for inner in value:
            _walk(inner, key)
    elif isinstance(value, str):
        _CHECKS.get(key, _check_name)(value)


def _free(text: str) -> None:
    """Accepts any text, as PyTorch writes it as a constant."""


def _check_name(text: str) -> None:
    """Checks that a name can be written into Python code between quotes."""
    if _UNPRINTED.search(text) or not text.isprintable():
        raise _Refused(f"has the name {escape_untrusted(text, 100)}, with a quote or line break")


def _identifier(text: str) -> None:
    if text and not _IDENTIFIER.fullmatch(text):
        raise _Refused(f"has the name {escape_untrusted(text, 100)}, which is not an identifier")


def _operator(target: str) -> None:
    named = _OPERATOR.fullmatch(target)
    if named:
        name = f"{named[1]}::{named[2]}"
        why = refusal(name)
        if why is not None and is_registered(name):  # PyTorch itself reports unknown ones
            raise _Refused(f"uses {escape_untrusted(name, 100)}, which is {why}")
    elif not _TORCH.fullmatch(target) and (
        not _PYTHON.fullmatch(target) or target.partition(".")[2] in _NOT_PYTHON
    ):
        raise _Refused(
            f"uses {escape_untrusted(target, 100)}, which is not an operator that models need"
        )


def _expression(text: str) -> None:
    """Checks an expression of sizes or a guard, which PyTorch evaluates as Python."""
    shown = escape_untrusted(text, 100)
    try:
        tree = ast.parse(text, mode="eval") if len(text) <= _LONGEST else None
    except (SyntaxError, ValueError, MemoryError):
        tree = None
    if tree is None:
        raise _Refused(f"has the expression {shown}, which is not an expression of sizes")
    for node in ast.walk(tree):
        fits = isinstance(node, _NODES)
        if isinstance(node, ast.Name):
            fits = node.id in _FUNCTIONS or re.fullmatch(r"[a-z]{1,4}\d+", node.id) is not None
        elif isinstance(node, ast.Call):
            fits = isinstance(node.func, ast.Name | ast.Attribute)
        elif isinstance(node, ast.Attribute):
            fits = node.attr in _METHODS
        elif isinstance(node, ast.Constant):
            fits = _is_constant(node.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.LShift):
            fits = isinstance(node.right, ast.Constant) and node.right.value in range(64)
        if not fits:
            raise _Refused(f"has the expression {shown}, which is not an expression of sizes")


def _is_constant(value: object) -> bool:
    if isinstance(value, str):
        return _SYMBOL.fullmatch(value) is not None
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 1 << 64
    return isinstance(value, bool | float) or value is None


def _tree(text: str) -> None:
    """Checks the nesting of inputs or outputs, which is JSON within JSON."""
    try:
        spec = json.loads(text)
    except ValueError:
        raise _Refused(
            f"nests its inputs as {escape_untrusted(text, 100)}, which is not JSON"
        ) from None
    _check_tree(spec)


def _check_tree(spec: Any) -> None:
    waiting = [spec]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            if "__enum__" in value:
                raise _Refused("nests its inputs by an enumeration of a Python module")
            module = value.get("default_factory_module", "builtins")
            factory = value.get("default_factory_name", "list")
            if module != "builtins" or factory not in _FACTORIES:
                raise _Refused(
                    f"nests its inputs by a function of {escape_untrusted(str(module), 100)}"
                )
            waiting += [*value, *value.values()]
        elif isinstance(value, str):
            try:
                inner = json.loads(value) if value[:1] in ("[", "{", '"') else None
            except ValueError:
                inner = None
            if inner is None:
                _check_name(value)
            else:
                waiting.append(inner)


_CHECKS = {
    "as_string": _free,
    "as_strings": _free,
    "torch_version": _free,
    "target": _operator,
    "as_operator": _operator,
    "expr_str": _expression,
    "guards_code": _expression,
    "in_spec": _tree,
    "out_spec": _tree,
    "name": _identifier,
    "as_name": _identifier,
    "forward_arg_names": _identifier,
    "user_input_name": _identifier,
}
