"""``{commands}``: a section for every command of nnapi-prof, from click's own description.

The page is right because it is made from what parses the command line: a command or an option that
is added, renamed or removed is so on the page with the next build.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from nnapi_prof.cli import cli

Path = tuple[str, ...]
EVERY_COMMANDS = {"--json", "--quiet", "--verbose", "--help"}
"""Options that the page tells of once."""


def walk(
    command: click.Command = cli, path: Path = ("nnapi-prof",)
) -> Iterator[tuple[Path, click.Command]]:
    """Every command with its words, groups before what is in them; the first is nnapi-prof."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            if subcommand is not None and not subcommand.hidden:
                yield from walk(subcommand, (*path, name))


class Commands(SphinxDirective):
    """``{commands}``, without arguments."""

    def run(self) -> list[nodes.Node]:
        return [self._section(path, command) for path, command in walk() if len(path) > 1]

    def _section(self, path: Path, command: click.Command) -> nodes.section:
        words = " ".join(path)
        name = "command-" + "-".join(path[1:])
        section = nodes.section(ids=[name], names=[name])
        section += nodes.title("", "", nodes.literal("", words))
        context = click.Context(command, info_name=words)
        usage = " ".join([words, *command.collect_usage_pieces(context)])
        section += self._parsed(inspect.cleandoc(command.help or ""))
        section += nodes.literal_block(usage, usage, language="text")
        options = [p for p in command.get_params(context) if isinstance(p, click.Option)]
        shown = [option for option in options if not option.hidden]
        section += self._options(shown, context)
        self.env.domains["std"].note_hyperlink_target(name, self.env.docname, name, words)
        return section

    def _options(
        self, options: list[click.Option], context: click.Context
    ) -> nodes.definition_list:
        definitions = nodes.definition_list()
        for option in options:
            record = option.get_help_record(context)
            if record is None or EVERY_COMMANDS & set(option.opts):
                continue
            item = nodes.definition_list_item()
            item += nodes.term("", "", nodes.literal("", record[0]))
            item += nodes.definition("", *self._parsed(record[1]))
            definitions += item
        return definitions

    def _parsed(self, text: str) -> list[nodes.Node]:
        """click's help as Markdown: its `words` become code, its brackets stay as they are."""
        escaped = text.replace("\b", "").replace("*", r"\*").replace("[", r"\[").replace("<", r"\<")
        holder = nodes.container()
        self.state.nested_parse(StringList(escaped.splitlines(), "click"), 0, holder)
        return holder.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
