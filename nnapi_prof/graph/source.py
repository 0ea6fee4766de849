"""Finds the line of the user's Python that an operation comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torch import fx

META = "source"
"""Key of a node's :class:`Source` in ``node.meta``."""

_FRAMES = (
    re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)'),  # Python, and scripted modules
    re.compile(r"^\s*(?P<file>\S+)\((?P<line>\d+)\): ", re.MULTILINE),  # traced modules
)
_OF_TORCH = re.compile(r"(^|[\\/])torch[\\/]")


@dataclass(frozen=True, slots=True)
class Source:
    """Module path (``features.3.conv``) and line (``net.py:12``); each empty where unknown."""

    module: str = ""
    line: str = ""


def user_line(trace: str) -> str:
    """Return ``FILE:LINE`` of the frame nearest to the operation that is not PyTorch's own.

    ``trace`` is the stack trace of an exported program's node, the outermost frame first, or the
    source range of a TorchScript node. Empty where it names no frame.
    """
    trace = trace.partition("Serialized ")[0] or trace  # behind it: TorchScript's own text
    frames: list[str] = []
    for pattern in _FRAMES:
        frames = [f"{m['file']}:{m['line']}" for m in pattern.finditer(trace)]
        if frames:
            break
    if pattern is _FRAMES[1]:
        frames.reverse()  # a tracer names the innermost first
    own = [frame for frame in frames if not _OF_TORCH.search(frame)]
    return (own or frames or [""])[-1]


def export_source(node: fx.Node) -> Source:
    """Return the source of a node of an exported program, as far as the node remembers."""
    stack = node.meta.get("nn_module_stack") or {}
    module = str(list(stack.values())[-1][0]) if stack else ""
    return Source(_module_path(module), user_line(str(node.meta.get("stack_trace") or "")))


def script_source(scope: str, source_range: str) -> Source:
    """Return the source of a TorchScript node, from its scope's name and its source range."""
    last = scope.rpartition("/")[2]
    return Source(_module_path(last.rpartition("::")[2]), user_line(source_range))


def _module_path(name: str) -> str:
    """``L['self'].b.conv`` or ``__module.b.conv`` -> ``b.conv``."""
    return re.sub(r"^(L\['self'\]|__module|self)\.?", "", name)


def source_of(nodes: Iterable[fx.Node]) -> Source:
    """Return the source of a unit, of the last of its nodes that has one.

    A node that a pass made has its neighbours' source: its readers', else its inputs'.
    """
    members = list(nodes)
    near = [user for node in members for user in node.users]
    near += [each for node in members for each in node.all_input_nodes]
    for node in (*reversed(members), *near):
        source = node.meta.get(META)
        if isinstance(source, Source) and source != Source():
            return source
    return Source()
