"""Permutes that cancel each other, or that a dim order can take up."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from nnapi_prof.graph.node import calls, type_of
from nnapi_prof.passes.rewrite import Site, apply_rules, erase_unused

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


# Permutes of images that were flattened


def lift_permutes(graph: fx.Graph) -> int:
    """Lets a permute of pixels in a line be one of the image, whose dim order can take it up.

    Given:
        %v [1, 8, 16] = view(%x [1, 8, 4, 4], ...)
        %p [1, 16, 8] = permute(%v, [0, 2, 1])
    Result:
        %p [1, 4, 4, 8] = permute(%x, [0, 2, 3, 1])
        %v [1, 16, 8]   = view(%p, ...)

    and the same backwards, from a line of pixels to an image. Returns the permutes replaced.
    """
    changed = apply_rules(graph, {aten.permute.default: _from_image})
    changed += apply_rules(graph, dict.fromkeys(_VIEWS, _to_image))
    if changed:
        erase_unused(graph)
    return changed


_VIEWS = (aten.view.default, aten.reshape.default)


def _from_image(site: Site) -> fx.Node | None:
    view = site.input()
    if view.target not in _VIEWS:
        return None
    image = view.args[0]
    assert isinstance(image, fx.Node)
    shape = type_of(image).shape
    if not _is_image(shape) or not _swaps(type_of(view).shape, site.args["dims"], shape):
        return None
    permuted = site.call(aten.permute.default, image, [0, 2, 3, 1])
    return site.view(permuted, list(site.type.shape))


def _to_image(site: Site) -> fx.Node | None:
    permute, shape = site.input(), site.type.shape
    if permute.target is not aten.permute.default or not _is_image(shape):
        return None
    line, dims = permute.args
    assert isinstance(line, fx.Node) and isinstance(dims, list | tuple)
    back = [dims.index(axis) for axis in range(len(dims))]
    if not _swaps(type_of(permute).shape, back, shape):
        return None
    n, c, h, w = shape
    pixels = site.view(line, [n, h, w, c])
    return site.call(aten.permute.default, pixels, [0, 3, 1, 2])


def _is_image(shape: Sequence[int]) -> bool:
    return len(shape) == 4 and shape[1] > 1 and shape[2] > 1 and shape[3] > 1


def _swaps(flat: Sequence[int], dims: Sequence[int], image: Sequence[int]) -> bool:
    """Whether ``flat`` is ``[N, C, H * W]`` of the image, and ``dims`` make it ``[N, H * W, C]``;
    dimensions of size 1 may stand anywhere."""
    n, c, h, w = image
    real = [axis for axis, size in enumerate(flat) if size != 1]
    if [flat[axis] for axis in real] != [size for size in (n, c, h * w) if size != 1]:
        return False
    *first, channels, pixels = real
    return [axis for axis in dims if flat[axis] != 1] == [*first, pixels, channels]
