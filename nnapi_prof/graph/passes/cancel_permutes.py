"""Permutes of permutes."""

from __future__ import annotations

import torch
from torch import fx

from nnapi_prof.graph.node import calls

aten = torch.ops.aten


def cancel_permutes(graph: fx.Graph) -> int:
    """Lets a permute of a permute read the first one's input; an identity falls away.

    Given:
        %p [1, 4, 4, 8] = permute(%a [1, 8, 4, 4], [0, 2, 3, 1])
        %q [1, 8, 4, 4] = permute(%p, [0, 3, 1, 2])
        %r [1, 8, 4, 4] = relu(%q)
    Result:
        %r [1, 8, 4, 4] = relu(%a)

    %p stays when something else reads it. Returns the number of permutes merged or dropped.
    """
    changed = 0
    for node in calls(graph):
        if node.target is not aten.permute.default:
            continue
        first = node.args[0]
        assert isinstance(first, fx.Node)
        if first.target is not aten.permute.default:
            continue
        source = first.args[0]
        assert isinstance(source, fx.Node)
        inner, outer = _dims(first), _dims(node)
        merged = [inner[d] for d in outer]
        if merged == sorted(merged):
            node.replace_all_uses_with(source)
            graph.erase_node(node)
        else:
            node.args = (source, merged)
        if not first.users:
            graph.erase_node(first)
        changed += 1
    return changed


def _dims(node: fx.Node) -> list[int]:
    dims = node.args[1]
    assert isinstance(dims, list | tuple)
    return [d for d in dims if isinstance(d, int)]
