"""Classes among the inputs and outputs of an ExportedProgram, read as dicts by their field names.

A ``.pt2`` names the classes that its inputs and outputs are nested in: data classes, named tuples,
``ModelOutput`` and caches of transformers. PyTorch rebuilds them where the process has registered
classes of these names, and refuses the file elsewhere. The file states the field names beside, so
that no class is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch._export.serde import serialize as _serialize

from nnapi_prof.frontend.archives import BadPickle, check_saved_tensors

serialize: Any = _serialize
"""PyTorch's module that reads such files: what it calls is put in its place for a while."""
_deserialize = serialize.deserialize_torch_artifact
_PLAIN = ("builtins.", "collections.OrderedDict", "collections.defaultdict", "collections.deque")
"""Types that PyTorch rebuilds without a registration."""


@contextmanager
def classes_as_dicts() -> Iterator[None]:
    """While this lasts, ``torch.export.load`` makes dicts and tuples in the place of classes, and
    leaves out stored example inputs that hold objects of them."""
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
    """Read stored example inputs; None where they hold objects of classes, which nothing makes."""
    if isinstance(data, bytes) and data:
        try:
            check_saved_tensors(data)
        except BadPickle:
            return None
    return _deserialize(data)


def names_classes(text: str) -> bool:
    """Whether a serialised tree is nested in classes."""
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

    ``context`` is JSON: a list of names, or of a data class two lists, of fields with a value and
    of those that are None.
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
