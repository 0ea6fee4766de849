"""Choose the dim order of every value for the whole graph at once, and cancel permutes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow
from torch import fx

from nnapi_prof.graph import DimOrder
from nnapi_prof.graph.dim_order import (
    LIES_LAST,
    Layout,
    can_be_channels_last,
    is_plain_input,
    layout_of,
    moves_from_last,
    moves_to_last,
    orders_agree,
    reads_either,
    transposed_bytes,
    wanted_order,
    writes_either,
)
from nnapi_prof.graph.node import calls, insert_call, makes_tensor, set_order, type_of
from nnapi_prof.graph.quantisation import is_weight, set_quantisation
from nnapi_prof.passes import Site, apply_rules, erase_unused

aten = torch.ops.aten
_INFINITE = 2**30
_FORMATS = {
    DimOrder.CHANNELS_LAST: torch.channels_last,
    DimOrder.CONTIGUOUS: torch.contiguous_format,
}


def assign_dim_order(graph: fx.Graph) -> int:
    """Annotates every value with its dim order, and inserts clones where orders differ.

    Given:
        %x [1, 3, 8, 8] placeholder
        %c [1, 8, 8, 8] = convolution(%x, ...)
        %r [1, 8, 8, 8] = relu(%c)
        %p [1, 8, 1, 1] = adaptive_avg_pool2d(%r, [1, 1])
        %f [1, 8]       = view(%p, [1, 8])
    Result:
        %k [1, 3, 8, 8, channels_last] = clone(%x, memory_format=torch.channels_last)
        %c, %r, %p channels_last; %f contiguous (one pixel: the same memory)

    Placeholders, outputs of the graph and constants are contiguous; the converter transposes
    constants. Placeholders with LIES_LAST in their ``meta`` are channels last, and an output node
    with it reads either order. Arguments that name dimensions keep PyTorch's logical dimensions.

    Phases:
    1. Each value gets a variable, contiguous or channels last; graph.dim_order fixes some.
    2. The cheapest assignment is a minimum cut: a value pays for its bytes once if any reader
       requires the other order, however many do. Among equally cheap cuts the one with most values
       channels last is taken, so a clone precedes a chain of followers instead of splitting it.
    3. Clones are inserted, one for each value and order, shared by all readers.

    Returns the number of clones inserted.
    """
    for node in graph.nodes:
        is_last = node.op == "placeholder" and LIES_LAST in node.meta
        if is_last and can_be_channels_last(type_of(node)):
            set_order(node, DimOrder.CHANNELS_LAST)
    if not any(LIES_LAST in n.meta or layout_of(n) is Layout.WANTS for n in graph.nodes):
        return 0
    for node in _cheapest_channels_last(graph):
        set_order(node, DimOrder.CHANNELS_LAST)
    for node in calls(graph):
        if layout_of(node) is Layout.FOLLOWS and _dim_order_of(node) is DimOrder.CHANNELS_LAST:
            _raise_ranks(graph, node)
    return _insert_clones(graph)


def _dim_order_of(node: fx.Node) -> DimOrder:
    return type_of(node).dim_order


def _is_free(node: fx.Node) -> bool:
    """Returns whether the node's value may have either order."""
    computed = node.op == "call_function" and makes_tensor(node) and not is_weight(node)
    return computed and can_be_channels_last(type_of(node))


def _cheapest_channels_last(graph: fx.Graph) -> list[fx.Node]:
    """Returns the nodes that are channels last in the cheapest assignment (phases 1 and 2)."""
    network = _Network()
    free = [node for node in graph.nodes if _is_free(node)]
    for node in free:
        layout = layout_of(node)
        if layout is Layout.WANTS:
            network.edge(network.CHANNELS_LAST, network.vertex(node), _INFINITE)
        elif moves_to_last(node):
            network.edge(network.CHANNELS_LAST, network.vertex(node), _cost(node))
        elif layout is not Layout.FOLLOWS and not writes_either(node):
            network.edge(network.vertex(node), network.CONTIGUOUS, _INFINITE)
    for source in graph.nodes:
        if source.op == "output" or is_weight(source) or not makes_tensor(source):
            continue
        if can_be_channels_last(type_of(source)):
            _price(network, source)
    last = network.channels_last_side()
    return [node for node in free if network.vertex(node) in last]


def _price(network: _Network, source: fx.Node) -> None:
    """Adds the cost of readers that require another order than that of ``source`` to the network.

    ``some_last`` is on the channels-last side if any reader is, ``some_contiguous`` on the other
    side if any reader is; each is cut from the source once.
    """
    cost = _cost(source)
    fixed = (
        network.CONTIGUOUS
        if _dim_order_of(source) is DimOrder.CONTIGUOUS
        else network.CHANNELS_LAST
    )
    own = network.vertex(source) if _is_free(source) else fixed
    some_last, some_contiguous = network.extra(), network.extra()
    network.edge(some_last, own, cost)
    network.edge(own, some_contiguous, cost)
    for reader in source.users:
        is_output = reader.op == "output"
        if LIES_LAST in reader.meta if is_output else reads_either(reader, type_of(source)):
            continue
        if moves_from_last(reader):
            network.edge(network.CHANNELS_LAST, own, cost)  # else it moves elements itself
            continue
        follows = reader.op != "output" and layout_of(reader) in (Layout.WANTS, Layout.FOLLOWS)
        follows = follows and _is_free(reader) and not is_plain_input(reader, source)
        wants = network.vertex(reader) if follows else network.CONTIGUOUS
        network.edge(wants, some_last, _INFINITE)
        network.edge(some_contiguous, wants, _INFINITE)


def _cost(node: fx.Node) -> int:
    """Returns the cost of moving all elements of a value."""
    return max(1, transposed_bytes(type_of(node)) // 64)


class _Network:
    """Flow network over values; the source side of a cut is channels last."""

    CHANNELS_LAST = 0
    CONTIGUOUS = 1

    def __init__(self) -> None:
        self._vertices: dict[fx.Node, int] = {}
        self._n = 2
        self._capacity: dict[tuple[int, int], int] = {}

    def extra(self) -> int:
        self._n += 1
        return self._n - 1

    def vertex(self, node: fx.Node) -> int:
        if node not in self._vertices:
            self._vertices[node] = self.extra()
        return self._vertices[node]

    def edge(self, start: int, end: int, capacity: int) -> None:
        """Adds a cost ``capacity`` for cutting ``start`` (channels last) from ``end``
        (contiguous)."""
        if start != end:
            before = self._capacity.get((start, end), 0)
            self._capacity[start, end] = min(before + capacity, _INFINITE)

    def channels_last_side(self) -> set[int]:
        """Returns the vertices of the largest source side among all minimum cuts.

        From these the sink cannot be reached in the residual network (Picard and Queyranne, 1980).
        They are found by walking the network backwards from the sink.
        """
        keys = list(self._capacity)
        rows, columns = (np.array([key[i] for key in keys], dtype=np.int32) for i in (0, 1))
        values = np.array([self._capacity[key] for key in keys], dtype=np.int32)
        capacity = coo_array((values, (rows, columns)), shape=(self._n, self._n)).tocsr()
        flow = maximum_flow(capacity, self.CHANNELS_LAST, self.CONTIGUOUS).flow
        residual: Any = capacity - flow
        residual.data = np.maximum(residual.data, 0)
        residual.eliminate_zeros()
        backwards = residual.T.tocsr()
        reaching = breadth_first_order(backwards, self.CONTIGUOUS, return_predecessors=False)
        return set(range(self._n)) - {int(vertex) for vertex in reaching}


def _raise_ranks(graph: fx.Graph, node: fx.Node) -> None:
    """Views operands of lower rank as rank 4, because broadcasting aligns last dimensions and the
    last dimension in memory is now the channel."""
    if torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return
    for source in node.all_input_nodes:
        shape = type_of(source).shape
        if is_weight(source) or len(shape) >= 4:
            continue
        with graph.inserting_before(node):
            target_shape = [1] * (4 - len(shape)) + list(shape)
            raised = insert_call(graph, aten.view.default, (source, target_shape))
        if can_be_channels_last(type_of(raised)) and orders_agree(type_of(raised)):
            set_order(raised, DimOrder.CHANNELS_LAST)
        node.replace_input_with(source, raised)


def _insert_clones(graph: fx.Graph) -> int:
    inserted = 0
    for source in list(graph.nodes):
        if source.op == "output" or is_weight(source) or not makes_tensor(source):
            continue
        if not can_be_channels_last(type_of(source)):
            continue
        other = [
            r for r in source.users if wanted_order(r, source) not in (None, _dim_order_of(source))
        ]
        if other:
            _clone_for(graph, source, other)
            inserted += 1
    return inserted


def _clone_for(graph: fx.Graph, source: fx.Node, readers: Iterable[fx.Node]) -> None:
    """Inserts one clone of ``source`` to the other order, before its first reader."""
    changed = next(order for order in DimOrder if order is not _dim_order_of(source))
    first_reader = min(readers)
    with graph.inserting_before(first_reader):
        clone = insert_call(
            graph, aten.clone.default, (source,), {"memory_format": _FORMATS[changed]}
        )
    set_quantisation(clone, type_of(source).quant)
    set_order(clone, changed)
    for reader in readers:
        reader.replace_input_with(source, clone)


# Permutes that cancel each other, or that become a dim order.


def cancel_permutes(graph: fx.Graph) -> int:
    """Makes a permute of a permute read the first one's input, and removes identities.

    Given:
        %p [1, 4, 4, 8] = permute(%a [1, 8, 4, 4], [0, 2, 3, 1])
        %q [1, 8, 4, 4] = permute(%p, [0, 3, 1, 2])
        %r [1, 8, 4, 4] = relu(%q)
    Result:
        %r [1, 8, 4, 4] = relu(%a)

    %p stays if another node reads it. Returns the number of permutes merged or dropped.
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


# Permutes of flattened images


def lift_permutes(graph: fx.Graph) -> int:
    """Turns a permute of flattened pixels into one of the image, which can become a dim order.

    Given:
        %v [1, 8, 16] = view(%x [1, 8, 4, 4], ...)
        %p [1, 16, 8] = permute(%v, [0, 2, 1])
    Result:
        %p [1, 4, 4, 8] = permute(%x, [0, 2, 3, 1])
        %v [1, 16, 8]   = view(%p, ...)

    It does the same from flattened pixels to an image. Returns the number of permutes replaced.
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
    """Returns whether ``flat`` is the image's ``[N, C, H * W]``, and ``dims`` turn it into ``[N, H
    * W, C]``, apart from dimensions of size 1."""
    n, c, h, w = image
    real = [axis for axis, size in enumerate(flat) if size != 1]
    if [flat[axis] for axis in real] != [size for size in (n, c, h * w) if size != 1]:
        return False
    *first, channels, pixels = real
    return [axis for axis in dims if flat[axis] != 1] == [*first, pixels, channels]
