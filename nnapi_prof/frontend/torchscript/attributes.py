"""Attributes that a TorchScript model writes while it runs: what it keeps from run to run."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend.torch_logging import essential_line, quiet_torch, run_once
from nnapi_prof.frontend.torchscript.builtins import all_nodes

_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "detach expand flatten narrow permute reshape select slice squeeze t transpose unsqueeze"
        " view view_as"
    ).split()
) | {"prim::unchecked_cast"}
"""Nodes whose result may share the memory of their first input."""


@dataclass(frozen=True, slots=True)
class KeptAttribute:
    """An attribute of a model or of its parts (``rnn.hidden``) that one run leaves to the next.

    ``type`` is TorchScript's, ``first`` what the file has in it, ``settled`` what it holds after a
    run, whose shapes stay from then on: a tensor, or tuples, lists and dicts of some.
    """

    path: str
    type: str
    first: Any
    settled: Any

    @property
    def first_tensors(self) -> list[Tensor]:
        """The first values of its tensors: zeros, where the file does not say."""
        settled = _tensors(self.settled)
        first = _tensors(self.first)
        if _form(first) == _form(settled):
            return first
        return [torch.zeros_like(value) for value in settled]


def kept_attributes(
    model: torch.jit.ScriptModule, examples: Sequence[Tensor], name: str
) -> list[KeptAttribute]:
    """Finds what ``model`` keeps from run to run, seen on ``examples``; leaves it as it is.

    Raises FrontendError where that is no tensor, or grows with every run.
    """
    with quiet_torch():
        types = _written(model)
        if not types:
            return []
        used = copy.deepcopy(model)
        held = [_held(used, types)]
        try:
            for scale in (1.0, 0.5):
                with run_once():
                    used(*(_scaled(example, scale) for example in examples))
                held.append(_held(used, types))
        except Exception as error:
            raise FrontendError(
                f"{name} writes to its attributes ({', '.join(types)}) and does not run a second"
                f" time: {essential_line(error)}"
            ) from error
    before, settled, after = held
    kept = []
    for path, kind in types.items():
        _check_form(path, settled[path], after[path], name)
        was_same_form = _form(_tensors(before[path])) == _form(_tensors(settled[path]))
        if not _equal(settled[path], after[path]) or (
            was_same_form and not _equal(before[path], settled[path])
        ):
            kept.append(KeptAttribute(path, kind, before[path], settled[path]))
    return kept


def _written(model: torch.jit.ScriptModule) -> dict[str, str]:
    """Path and type of what the code of ``model`` may read first and write later, or writes in
    place."""
    graph = model.inlined_graph
    paths = {next(graph.inputs()).debugName(): ""}
    types: dict[str, str] = {}
    written: dict[str, None] = {}
    for node in all_nodes(graph):
        kind = node.kind()
        if kind in ("prim::GetAttr", "prim::SetAttr"):
            owner = paths.get(node.inputsAt(0).debugName())
            if owner is None:
                continue
            path = f"{owner}.{node.s('name')}".lstrip(".")
            if kind == "prim::GetAttr":
                paths[node.output().debugName()] = path
                types.setdefault(path, str(node.output().type()))
            else:
                written[path] = None
        elif kind.startswith("aten::") and kind.endswith("_") and not kind.endswith("__"):
            changed = paths.get(_base(node.inputsAt(0)))
            if changed is not None:
                written[changed] = None
    filled = _filled_first(graph, set(written))
    return {path: types[path] for path in written if path in types and path not in filled}


def _filled_first(graph: Any, written: set[str]) -> set[str]:
    """Those that every run writes before it reads them: outside of branches and loops."""
    paths, seen, filled = {next(graph.inputs()).debugName(): ""}, set[str](), set[str]()
    for node in graph.nodes():
        inner = (n for block in node.blocks() for n in all_nodes(block))
        for each, at_top in ((node, True), *((n, False) for n in inner)):
            if each.kind() not in ("prim::GetAttr", "prim::SetAttr"):
                continue
            owner = paths.get(each.inputsAt(0).debugName())
            if owner is None:
                continue
            path = f"{owner}.{each.s('name')}".lstrip(".")
            if each.kind() == "prim::GetAttr":
                paths[each.output().debugName()] = path
            elif at_top and path not in seen:
                filled.add(path)
            seen.add(path)
    return filled & written


def _base(value: Any) -> str:
    """The name of the value whose memory ``value`` shows."""
    while value.node().kind() in _VIEWS:
        value = value.node().inputsAt(0)
    return str(value.debugName())


def _held(model: torch.jit.ScriptModule, paths: Sequence[str] | dict[str, str]) -> dict[str, Any]:
    """Copies the present values of the attributes."""
    return {
        path: pytree.tree_map_only(
            Tensor, lambda t: t.detach().clone(), operator.attrgetter(path)(model)
        )
        for path in paths
    }


def _scaled(example: Tensor, scale: float) -> Tensor:
    return example * scale if example.is_floating_point() else example.clone()


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def _form(tensors: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    return [(tuple(value.shape), value.dtype) for value in tensors]


def _equal(one: Any, other: Any) -> bool:
    pairs = zip(_tensors(one), _tensors(other), strict=True)
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def _check_form(path: str, settled: Any, after: Any, name: str) -> None:
    forms = _form(_tensors(settled)), _form(_tensors(after))
    if forms[0] != forms[1]:
        sizes = ["x".join(map(str, form[0][0])) if form else "nothing" for form in forms]
        raise FrontendError(
            f"{name} keeps state in {path}, which grows from run to run ({sizes[0]}, then"
            f" {sizes[1]}): keep a fixed number of values there"
        )
    numbers = [
        [leaf for leaf in pytree.tree_leaves(value) if not isinstance(leaf, Tensor)]
        for value in (settled, after)
    ]
    if numbers[0] != numbers[1]:
        raise FrontendError(
            f"{name} keeps a number in {path}, which changes from run to run ({numbers[0][0]}, then"
            f" {numbers[1][0]}): keep it in a tensor"
        )
