"""``nnapi-prof completion``: Print the script that lets a shell complete commands and values."""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
)

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, print_document

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "nnapi-prof"
VARIABLE = "_NNAPI_PROF_COMPLETE"
# bash breaks words at colons, as in sim:npu-phone, and replaces only what stands behind the last
# one: the line is handed over as it is, and what is before the colon taken off the answers.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' answer kind value word before=
    word="${COMP_LINE:0:COMP_POINT}"
    word="${word##* }"
    word="${word##*=}"
    [[ $COMP_WORDBREAKS == *:* && $word == *:* ]] && before="${word%%:*}:"
    COMPREPLY=()
    for answer in $(COMP_LINE="${COMP_LINE:0:COMP_POINT}" IN_BASH=1 \\
            %(complete_var)s=bash_complete "$1" 2>/dev/null); do
        kind="${answer%%%%,*}"
        value="${answer#*,}"
        [[ $kind == path ]] && compopt -o filenames 2>/dev/null
        [[ $kind == file ]] && compopt -o default 2>/dev/null && continue
        COMPREPLY+=("${value#"$before"}")
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
""".replace("IN_BASH", opt.IN_BASH)


@add_completion_class
class Bash(BashComplete):
    """click's completion for bash, with colons in words and paths that end as they should."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        from click.shell_completion import split_arg_string

        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        incomplete = "" if line[-1:].isspace() or len(words) < 2 else words.pop()
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type},{item.value}"


@define(
    "completion",
    examples=[
        "source <(nnapi-prof completion bash)   # in ~/.bashrc",
        "nnapi-prof completion fish > ~/.config/fish/completions/nnapi-prof.fish",
    ],
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that lets a shell complete commands, options and values.

    TAB then also completes devices, phones, models and bundles.
    """
    from nnapi_prof.cli import cli

    completion = get_completion_class(shell)
    if completion is None:
        raise click.UsageError(f"this click has no completion for {shell}")
    script = completion(cli, {}, PROGRAM, VARIABLE).source().strip()
    if as_json():
        from nnapi_prof.documents.tool import of_completion

        print_document(of_completion(shell, script))
    else:
        click.echo(script)
