"""Commands whose ``--help`` ends with examples, and says numbers' units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

COMMON = ("json", "quiet", "verbose", "help")
"""Options that every command has: told last."""
CONDITIONS = ("threads", "cpus", "mode", "relaxed", "float16", "sustained")
"""Options of conditions, where a command has all of them."""
_UNITS = ("ms", "mb", "s")


class Command(click.Command):
    """``examples`` are command lines, each as a user would type it."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.examples = tuple(examples)
        for option in self.params:
            if isinstance(option, click.Option) and option.metavar is None:
                option.metavar = _metavar(option)

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
    """Its commands, each on a line of its own."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_first_sentences(self.commands)))


def _first_sentences(commands: Mapping[str, click.Command]) -> Iterator[tuple[str, str]]:
    for name, command in sorted(commands.items()):
        yield name, command.get_short_help_str(limit=200)


def _metavar(option: click.Option) -> str | None:
    """``MS`` of --budget-ms, ``N`` of whole numbers, ``X`` of others; None of what is no number."""
    number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
    if not number or option.is_flag:
        return None
    unit = (option.name or "").rpartition("_")[2]
    if unit in _UNITS:
        return unit.upper()
    return "N" if isinstance(option.type, click.types.IntParamType) else "X"
