"""The command line: ``main()`` turns errors into one line and an exit code.

Exit codes: 0 success, 1 failure, 2 usage, 130 interrupted. An error is one line on standard error,
``nnapi-prof: error: ...``, and with ``--json`` also a document on standard output, so that programs
need not read both; only a bug of nnapi-prof shows a traceback. Commands are imported when they are
called, so that ``nnapi-prof --help`` loads neither torch nor pandas.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from nnapi_prof import __version__
from nnapi_prof.cli.command import HELP, Group, common_options
from nnapi_prof.cli.output import Output, asks_for_json
from nnapi_prof.documents import COMMANDS, error_document, plugins
from nnapi_prof.errors import NnapiProfError, command_line, escape_untrusted

_ORDER = ("go", "devices", "profile", "partition", "pareto", "advise", "run", "compare",
          "estimate", "calibrate", "costs", "report", "agent", "doctor", "convert", "ship",
          "schema", "completion")  # fmt: skip
"""Order of commands in ``--help``, by a usual workflow; others follow by name."""
_HEAD = re.compile(r"^``nnapi-prof (\w+)``: ", re.MULTILINE)


@functools.cache
def _own_commands() -> dict[str, tuple[str, str]]:
    """Finds the commands of this package: name -> its module and its line in ``--help``."""
    commands = {}
    for path in Path(__file__).parent.glob("*.py"):
        for name, line in _heads(path):
            commands[name] = f"{__name__}.{path.stem}", line
    return commands


@functools.cache
def _plugin_commands() -> dict[str, tuple[str, str]]:
    """Finds the commands in entry points of installed packages, like :func:`_own_commands`."""
    commands = {}
    for name, module in plugins(COMMANDS).items():
        package, *parts = module.split(".")
        spec = importlib.util.find_spec(package)  # for a submodule, this would import its parents
        folders = () if spec is None else spec.submodule_search_locations or ()
        files = (Path(folder, *parts).with_suffix(".py") for folder in folders)
        lines = dict(line for file in files if file.is_file() for line in _heads(file))
        commands[name] = module, lines.get(name, f"Defined by {module}.")
    return commands


def _heads(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the commands in a module's docstring, one in each paragraph, with their lines in
    ``--help``, without importing the module."""
    with path.open(encoding="utf-8") as file:
        docstring = file.read(2000).split('"""', 2)[1]
    _, *parts = _HEAD.split(docstring)
    for name, line in zip(parts[::2], parts[1::2], strict=True):
        yield name, " ".join(line.split())


def commands() -> dict[str, str]:
    """Returns every command -> its line in ``--help``."""
    lines = {n: line for n, (_, line) in {**_plugin_commands(), **_own_commands()}.items()}
    last = len(_ORDER)
    rank = {name: number for number, name in enumerate(_ORDER)}
    return dict(sorted(lines.items(), key=lambda item: (rank.get(item[0], last), item[0])))


PACKAGES = ("torch", "numpy", "scipy", "ziglang")
"""Packages in ``--version``, which models, costs, plans and builds depend on."""
COLLECT_AFTER = 20_000
"""Threshold of new objects for Python's garbage collector. With the default of 700 it runs again
and again during the import of torch, finds nothing, and takes a tenth of a command's time."""


class _LazyGroup(Group):
    """Imports the module of a command when it is called or completed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = _own_commands().get(cmd_name) or _plugin_commands().get(cmd_name)
        if place is None:
            return None
        defined = vars(importlib.import_module(place[0])).values()
        each = (value for value in defined if isinstance(value, click.Command))
        return next(command for command in each if command.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(commands().items()))


def _show_version(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    """Prints versions from the packages' metadata, without importing them."""
    if not asked or context.resilient_parsing:
        return
    import importlib.metadata
    import platform

    packages: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            packages[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            packages[package] = None
    python, system = platform.python_version(), f"{platform.system()} {platform.machine()}"
    output = context.ensure_object(Output)
    if output.as_json:
        from nnapi_prof.documents.tool import of_version

        output.print_document(of_version(__version__, python, system, packages))
    else:
        click.echo(f"nnapi-prof {__version__}")
        there = [f"{name} {version}" for name, version in packages.items() if version is not None]
        click.echo(", ".join([f"Python {python}", *there, system]))
    context.exit()


@click.group(cls=_LazyGroup, context_settings=HELP)
@common_options
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the versions of nnapi-prof, Python and the libraries that affect figures, and exit.",
)
def cli() -> None:
    """Measure a PyTorch model on the NNAPI accelerators of an Android phone, then decide what to
    offload.

    The usual order: profile, partition, run, report. `nnapi-prof devices` lists the available
    phones. With none connected, commands use a simulated one and say so.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if "_NNAPI_PROF_COMPLETE" in os.environ:  # a shell asks for completions
        importlib.import_module("nnapi_prof.cli.doctor")
    output = Output(asks_for_json(words))
    gc.set_threshold(COLLECT_AFTER)
    with output.logging(), command_line():
        code = _run(words, output)
    sys.exit(code)


def _run(words: Sequence[str], output: Output) -> int:
    """Runs a command, prints its error if any, and returns the exit code."""
    try:
        code = cli.main(args=words, prog_name="nnapi-prof", standalone_mode=False, obj=output)
    except click.exceptions.Abort:
        print("nnapi-prof: interrupted", file=sys.stderr)  # click has begun a new line
        return _document_of(output, "Interrupted", "interrupted", 130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return _document_of(output, "UsageError", "a command is missing", error.exit_code)
    except click.ClickException as error:
        return _fail(output, "UsageError", _usage_line(error), error.exit_code)
    except NnapiProfError as error:
        return _fail(output, type(error).__name__, str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of the output is gone (`nnapi-prof ... | head`).
        sys.stderr.close()
        return 1
    except OSError as error:
        # An error of this host, such as a full disk or a missing file, not a bug.
        where = "" if error.filename is None else f"{error.filename}: "
        return _fail(output, "OSError", f"{where}{error.strerror or error}", 1)
    except Exception as error:
        _document_of(output, "InternalError", f"{type(error).__name__}: {error}", 1)
        raise
    return code if isinstance(code, int) else 0


def _fail(output: Output, kind: str, words: str, code: int) -> int:
    # A message may contain control characters, which must not reach the terminal.
    words = "\n".join(escape_untrusted(line, 20_000) for line in words.split("\n"))
    print(f"nnapi-prof: error: {words}", file=sys.stderr)
    return _document_of(output, kind, words, code)


def _document_of(output: Output, kind: str, words: str, code: int) -> int:
    """Prints an error as a document with ``--json``, unless the command has already printed its
    own; returns ``code``."""
    if output.as_json and not output.printed:
        output.print_document(error_document(kind, words, code))
    return code


def _usage_line(error: click.ClickException) -> str:
    """Returns click's message in nnapi-prof's format, with the ``--help`` to read."""
    words = " ".join(error.format_message().split()).rstrip(".")
    words = words[:1].lower() + words[1:].replace(". Did you mean", ": did you mean")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return words
    where = f"see `{context.command_path} --help`"
    return f"{words} S{where[1:]}" if words.endswith("?") else f"{words}: {where}"
