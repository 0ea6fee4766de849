"""The base of all commands: common options, and a ``--help`` with examples and numbers' units."""

from __future__ import annotations

import difflib
import functools
import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import click

from nnapi_prof.cli.output import LOGGER, Output
from nnapi_prof.costs import ConditionOptions
from nnapi_prof.documents import FORMATS, plugins
from nnapi_prof.options import options_of

if TYPE_CHECKING:
    from nnapi_prof.bisection.diagnosis import Bisection
    from nnapi_prof.cli.convert_files import OutputFiles

# Maps removed options and commands to their closest replacements.
#
# An entry stays for one minor version after the removal; then the usual error for an unknown option
# is enough.

_TRANSFORM = (
    "`--calibration MODULE:FUNCTION` names a function that returns an iterable of inputs, such as a"
    " DataLoader over images"
)
_P95 = (
    "plans are made and compared by the median, and `nnapi-prof run` and `report` show the 95th"
    " percentile beside it"
)
REMOVED: Mapping[str, str] = {
    "compare --statistic": _P95,
    "compare --device": "name the device behind the table, as in TABLE#DEVICE",
    "costs diff": "`nnapi-prof compare TABLE#DEVICE TABLE#DEVICE` compares two devices of one"
    " table, TABLE#DATE two dates",
    "costs export": "`nnapi-prof costs show --format csv|parquet -o FILE` writes the rows, and the"
    " SQLite file is the table to pass on",
    "costs import": "pass the SQLite file on, and `nnapi-prof costs merge` adds it to a table",
    "fleet --report": "the command prints its table, and `--json` all of it",
    "go --batch": "run `nnapi-prof go` once for each size, with `--input 4x3x224x224` and an `-o`"
    " of its own",
    "pareto --transform": _TRANSFORM,
    "partition --statistic": _P95,
    "report --statistic": _P95,
    "partition --solver": "the search proves its plan, or says how far it may be off; `--seconds`"
    " gives it more time",
    "partition --transform": _TRANSFORM,
    "profile --beside": "`--contention` measures the same",
    "profile --beside-s": "`--contention-s` measures the same",
    "profile --transform": _TRANSFORM,
    "report --port": "a report is one file: open it in a browser",
    "report --serve": "a report is one file: open it in a browser; `nnapi-prof go --open` does",
}
"""``COMMAND --option`` or ``COMMAND [SUBCOMMAND]``, without ``nnapi-prof`` -> what to do instead,
as the end of a sentence."""


def removal(command_path: str, word: str) -> str | None:
    """Return the error message for an option or a subcommand that was removed from the command
    with this path (``nnapi-prof costs``); None where it was not removed."""
    words = [*command_path.split()[1:], word]
    instead = REMOVED.get(" ".join(words))
    return None if instead is None else f"`{' '.join(words)}` was removed: {instead}"


F = TypeVar("F", bound=Callable[..., Any])

HELP = {"help_option_names": ["-h", "--help"]}
"""``context_settings`` of every command."""
COMMON = ("json", "quiet", "verbose", "help")
"""Options of every command, which ``--help`` lists last."""
CONDITIONS = tuple(options_of(ConditionOptions))
"""Options of conditions, for commands that have all of them."""
_UNITS = ("ms", "mb", "s")


class Command(click.Command):
    """A command with ``examples``: command lines, as a user would type them."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.examples = tuple(examples)
        for option in self.params:
            if isinstance(option, click.Option) and option.metavar is None:
                option.metavar = _metavar(option)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            _refuse_removed(ctx, error.option_name)
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        named = {
            "help" if "--help" in option.opts else option.name: record
            for option in self.get_params(ctx)
            if isinstance(option, click.Option)
            and (record := option.get_help_record(ctx)) is not None
        }
        conditions = CONDITIONS if set(CONDITIONS) <= set(named) else ()
        own = [name for name in named if name not in (*conditions, *COMMON)]
        for title, names in (
            ("Options", own),
            ("Conditions of measuring", conditions),
            ("Options of every command", COMMON),
        ):
            if rows := [named[name] for name in names if name in named]:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Group(click.Group):
    """A group of commands, whose ``--help`` lists each on its own line."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, names = args[0], self.list_commands(ctx)
        if name in names or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        _refuse_removed(ctx, name)
        close = difflib.get_close_matches(name, names, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_first_sentences(self.commands)))


def _refuse_removed(context: click.Context, word: str) -> None:
    if (message := removal(context.command_path, word)) is not None:
        from nnapi_prof.errors import UsageError

        raise UsageError(message)


def _first_sentences(commands: Mapping[str, click.Command]) -> Iterator[tuple[str, str]]:
    for name, command in sorted(commands.items()):
        yield name, command.get_short_help_str(limit=200)


def _metavar(option: click.Option) -> str | None:
    """Return ``MS`` for --budget-ms, ``N`` for integers, ``X`` for others, None for non-numbers."""
    number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
    if not number or option.is_flag:
        return None
    unit = (option.name or "").rpartition("_")[2]
    if unit in _UNITS:
        return unit.upper()
    return "N" if isinstance(option.type, click.types.IntParamType) else "X"


def option_group(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine options into one decorator, in the order of ``--help``."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _output(context: click.Context) -> Output:
    return context.ensure_object(Output)


def _set_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        _output(context).as_json = True


def _set_quiet(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        _output(context).quiet = True
        LOGGER.setLevel(logging.ERROR)
        _not_both(_output(context))


def _set_verbose(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        _output(context).verbose = True
        LOGGER.setLevel(logging.DEBUG)
        _not_both(_output(context))


def _not_both(output: Output) -> None:
    if output.quiet and output.verbose:
        from nnapi_prof.errors import UsageError

        raise UsageError("--quiet and --verbose exclude each other", "leave one out")


common_options = option_group(
    click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_set_json,
        help="Print the result as one JSON document (`nnapi-prof schema` describes it).",
    ),
    click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_set_quiet,
        help="Print only errors on standard error, no notes or progress.",
    ),
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_set_verbose,
        help="Print each step on standard error.",
    ),
)
"""``--json``, ``-q/--quiet``, ``-v/--verbose``, the options of every command.

Commands have no parameters for them: :func:`~nnapi_prof.cli.output.as_json` returns the first, and
:func:`~nnapi_prof.cli.output.say` respects the other two.
"""


def define(
    name: str, *, examples: Sequence[str], of: click.Group | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command, with the options of every command; ``of`` is its group, if it is a
    subcommand."""
    make = click.command if of is None else of.command
    command = make(name, cls=Command, context_settings=HELP, examples=examples)
    return lambda function: command(common_options(function))


class FileFormat(Protocol):
    """A module that adds a format to ``convert --to``; an entry point of the group
    :data:`nnapi_prof.documents.FORMATS`, with the name of the format, refers to it."""

    ENDING: str
    """Suffix of the format's files, which ``run`` passes to this module."""
    BISECT_HELP: str
    """Help of ``bisect --NAME``."""

    def convert_options(self, function: F, /) -> F:
        """Decorate ``convert`` with the format's own options."""

    def convert(self, context: click.Context, path: Path, output: Path | None) -> bool:
        """Convert a model as the format's own options request; return False without them. Raise
        UsageError where they make no sense."""

    def write_plan(self, context: click.Context, written: OutputFiles, path: Path) -> None:
        """Write the plan of the bundle ``written.source``, and add to ``written``."""

    def run(self, context: click.Context, path: Path) -> None:
        """Run a file with the options of ``run``, and show the result."""

    def bisect(self, model: Path, device: str | None, **options: Any) -> Bisection:
        """Run :func:`nnapi_prof.bisect` with the format's own runtime."""


@functools.cache
def file_formats() -> Mapping[str, FileFormat]:
    """Import the formats of installed packages."""
    modules = {name: importlib.import_module(path) for name, path in plugins(FORMATS).items()}
    return {name: cast("FileFormat", module) for name, module in modules.items()}
