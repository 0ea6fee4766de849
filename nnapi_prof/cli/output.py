"""Where a command's words go: results to standard output, everything else to standard error.

Standard output has results only. Under ``--json`` it has exactly one JSON document: the command's
result, or a document ``nnapi-prof/error`` where the command failed before it had one. Notes,
progress and errors go to standard error, the notes through the logger ``nnapi_prof``: INFO is what
a user should know, DEBUG what is done (``--verbose``); ``--quiet`` leaves errors only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from nnapi_prof.api.listener import Listener

LOGGER = logging.getLogger("nnapi_prof")
_PIPE_COLUMNS = 160


class Output:
    """What was asked of one call's output, and what was printed of it.

    ``as_json`` is ``--json``, ``quiet`` is ``--quiet``; ``printed`` tells whether the document
    of ``--json`` is out.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.quiet = False
        self.verbose = False
        self.printed = False
        self.listener: Listener | None = None
        """Of :func:`nnapi_prof.cli.progress.listening`, while there is one."""
        self._stderr: Console | None = None

    @property
    def stderr(self) -> Console:
        """One console for notes and progress, so that notes appear above a moving bar."""
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
        """While this lasts, the logger's records are printed on standard error."""
        handler, level = _Notes(self), LOGGER.level
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
        try:
            yield
        finally:
            LOGGER.removeHandler(handler)
            LOGGER.setLevel(level)


class _Notes(logging.Handler):
    """Notes as they are; in front of debug records, who says it."""

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


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether ``--json`` is among the options: known before they are parsed, for errors in them."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def current() -> Output:
    """The output of the command that runs."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_object(Output)
    return Output() if found is None else found


def as_json() -> bool:
    """Whether the result is to be one JSON document: then :func:`print_document` prints it."""
    return current().as_json


def print_document(document: Mapping[str, Any]) -> None:
    """Prints a command's one JSON document, as :mod:`nnapi_prof.documents` describes it."""
    current().print_document(document)


def stdout() -> Console:
    """For results: wide when nobody watches, so that pipes stay whole; silent under ``--json``.

    No markup: what devices and models say may have brackets of its own.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, quiet=as_json())
    if console.is_terminal:
        return console
    return Console(highlight=False, markup=False, width=_PIPE_COLUMNS, quiet=as_json())


def stderr() -> Console:
    """For progress and notes, so that results can be piped."""
    return current().stderr


def say(text: str) -> None:
    """A note on standard error."""
    LOGGER.info("%s", text)
