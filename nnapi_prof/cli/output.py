"""Writes a command's results to standard output, and everything else to standard error.

Standard output has results only. With ``--json`` it has exactly one JSON document: the command's
result, or a document ``nnapi-prof/error`` where the command failed before it had one. Notes,
progress and errors go to standard error, the notes through the logger ``nnapi_prof``: INFO has
notes for the user, DEBUG has steps (``--verbose``); ``--quiet`` leaves only errors.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.reports.words import NOISE
from nnapi_prof.reports.words import ms as ms

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from nnapi_prof.api import Listener
    from nnapi_prof.graph.plan import Plan, Segment
    from nnapi_prof.graph.unit import UnitGraph


LOGGER = logging.getLogger("nnapi_prof")
_PIPE_COLUMNS = 160


class Output:
    """The format and state of one call's output.

    ``as_json`` is ``--json``, ``quiet`` is ``--quiet``; ``printed`` is whether the document of
    ``--json`` was printed.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.quiet = False
        self.verbose = False
        self.printed = False
        self.listener: Listener | None = None
        """The listener of :func:`nnapi_prof.cli.progress.listening` during its block."""
        self._stderr: Console | None = None

    @property
    def stderr(self) -> Console:
        """The console for both notes and progress, so that notes appear above a moving bar."""
        if self._stderr is None:
            from rich.console import Console

            self._stderr = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        return self._stderr

    def print_document(self, document: Mapping[str, Any]) -> None:
        """Prints the call's one JSON document. Raises RuntimeError for a second one."""
        if self.printed:
            raise RuntimeError(f"a second document: {document.get('schema')}")
        text = json.dumps(document, indent=1, allow_nan=False)
        self.printed = True
        click.echo(text)

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Prints the logger's records on standard error during a block."""
        handler, level = _Notes(self), LOGGER.level
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
        try:
            yield
        finally:
            LOGGER.removeHandler(handler)
            LOGGER.setLevel(level)


class _Notes(logging.Handler):
    """A handler that prints notes unchanged, and debug records with time and logger."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.levelno == logging.WARNING:
                text = f"warning: {text}"
            if record.levelno < logging.INFO:
                seconds = record.relativeCreated / 1000
                text = f"debug: {seconds:8.3f} s {record.name.removeprefix('nnapi_prof.')}: {text}"
            self.output.stderr.print(text)
        except Exception:
            self.handleError(record)


FORMS = ("html", "md")
"""Formats of reports that are one readable file."""


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Returns whether ``--json`` is among the options, before they are parsed, for errors in
    them."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def current() -> Output:
    """Returns the output of the current command."""
    context = click.get_current_context(silent=True)
    output = None if context is None else context.find_object(Output)
    return Output() if output is None else output


def as_json() -> bool:
    """Returns whether the result must be one JSON document, by :func:`print_document`."""
    return current().as_json


def print_document(document: Mapping[str, Any]) -> None:
    """Prints a command's one JSON document, as :mod:`nnapi_prof.documents` describes it."""
    current().print_document(document)


def stdout() -> Console:
    """Returns the console for results: wide in a pipe, so that lines are not broken; silent with
    ``--json``.

    It has no markup, because texts from devices and models may contain brackets.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, quiet=as_json())
    if console.is_terminal:
        return console
    return Console(highlight=False, markup=False, width=_PIPE_COLUMNS, quiet=as_json())


def stderr() -> Console:
    """Returns the console for progress and notes, so that results can be piped."""
    return current().stderr


def say(text: str) -> None:
    """Prints a note on standard error."""
    LOGGER.info("%s", text)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError while a result is written to ``path`` into a UsageError."""
    from nnapi_prof.errors import UsageError

    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}", "name another --output"
        ) from error


WIDE = 110
"""Width of a terminal with room for all columns of a table."""
_WHOLE = ("target", "device", "serial")
"""Columns with values for options, which are not broken over lines."""


def unit_of(simulated: bool) -> str:
    """Returns the unit for a column's head; simulated latencies are always labelled."""
    return "ms, simulated" if simulated else "ms"


def boxed(title: str, left: Sequence[str], right: Sequence[str] = (), *last: str) -> Table:
    """Returns an empty table: columns of text, of numbers, and of text again. Text that is too long
    for its column continues in the next line."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in left:
        table.add_column(name, overflow="fold", no_wrap=name in _WHOLE)
    for name in right:
        table.add_column(name, justify="right", overflow="fold")
    for name in last:
        table.add_column(name, overflow="fold")
    return table


def plain(left: Sequence[str], right: Sequence[str] = (), *last: str, title: str = "") -> Table:
    """Returns a table like :func:`boxed` without lines, so that programs can split its columns."""
    table = boxed(title, left, right, *last)
    table.box, table.pad_edge = None, False
    return table


def is_wide(console: Console) -> bool:
    """Returns whether there is room for every column, which a pipe always has."""
    return not console.is_terminal or console.width >= WIDE


def line(console: Console, text: str) -> None:
    """Prints a sentence, wrapped between words on a terminal, as one line in a pipe."""
    console.print(text, soft_wrap=not console.is_terminal)


def listed(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Prints sentences about rows of the table above, each with the first cell of its row."""
    from rich.table import Table

    if not console.is_terminal:
        console.print(title)
        for head, text in rows:
            console.print(f"{head:>3}  {text}", soft_wrap=True)
        return
    grid = Table(box=None, show_header=False, pad_edge=False, title=title, title_justify="left")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    console.print(grid)


def units_of(graph: UnitGraph, segment: Segment) -> str:
    """Returns a segment's units: the label of one, or number, first and last of several."""
    label = graph.label(segment.units)
    return label if len(segment.units) == 1 else f"{len(segment.units)}: {label}"


def show_segments(
    console: Console,
    title: str,
    graph: UnitGraph,
    plan: Plan,
    doubt: tuple[str, Callable[[Segment], str]],
    mark: Callable[[Segment], str] = lambda _: "",
) -> None:
    """Prints a plan's segments with their causes. ``doubt`` is the name of a column and its text
    about a segment's latency, ``mark`` is appended to the latency."""
    head, of = doubt
    table = boxed(title, ["#", "target", "units"], ["latency", head])
    for number, each in enumerate(plan.segments):
        latency = f"{ms(each.predicted_ns)}{mark(each)}"
        table.add_row(str(number), each.target.key, units_of(graph, each), latency, of(each))
    console.print(table)
    listed(console, "Why", ((str(i), each.cause) for i, each in enumerate(plan.segments)))


def show_plans(
    console: Console,
    title: str,
    plans: Sequence[Plan],
    doubt: tuple[str, Callable[[Plan], str]] | None = None,
) -> None:
    """Prints plan and baselines, each latency relative to the first one's, and the plan's gain over
    the fastest of them."""
    heads = [] if doubt is None else [doubt[0]]
    table = boxed(title, ["plan"], ["segments", "latency", *heads, "against the plan"])
    best = plans[0].predicted_ns
    for plan in plans:
        cells = [] if doubt is None else [doubt[1](plan)]
        ratio = plan.predicted_ns / best if best else 1.0
        latency = ms(plan.predicted_ns)
        table.add_row(plan.name, str(len(plan.segments)), latency, *cells, f"{ratio:.2f}x")
    console.print(table)
    rules = [plan for plan in plans[1:] if plan.baseline is not None]
    if rules and best:
        rule = min(rules, key=lambda plan: plan.predicted_ns)
        line(console, f"({_against_rule(rule, rule.predicted_ns / best)})")


def _against_rule(rule: Plan, ratio: float) -> str:
    """Returns ``1.17 times as fast as the fastest rule that needs no partitioner, greedy``."""
    name = f"the fastest rule that needs no partitioner, {rule.name}"
    if ratio > 1 + NOISE:
        return f"{ratio:.2f} times as fast as {name}"
    if ratio < 1 - NOISE:
        return f"{1 / ratio - 1:.0%} slower than {name}"
    return f"no faster than {name}"


def check_writable(report: Path) -> None:
    """Raises UsageError for a report that cannot be written, before the work begins."""
    from nnapi_prof.errors import UsageError
    from nnapi_prof.reports import format_of

    if format_of(report) not in FORMS:
        raise UsageError(
            f"-o {report}: go writes {' or '.join(FORMS)}; `nnapi-prof report` makes the other"
            " forms of the bundle that it leaves"
        )
    if report.is_dir():
        raise UsageError(f"-o {report} is a folder", "name the report's file in it")
    bundle = report.with_suffix(".nnprof")
    if bundle.exists() and not (bundle / "manifest.json").is_file():
        raise UsageError(f"{bundle} exists and is not a bundle", "name another -o or remove it")
