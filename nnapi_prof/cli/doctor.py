"""``nnapi-prof doctor``: Look for what stands in the way of measuring, and say how to mend it.

``nnapi-prof schema``: Print the JSON Schema of what a command prints with --json.

``nnapi-prof completion``: Print the script that lets a shell complete commands and values.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import TYPE_CHECKING

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
)

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, current, plain, print_document, say, stdout
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    from nnapi_prof.doctor import CheckResult


@define(
    "doctor",
    examples=["nnapi-prof doctor", "nnapi-prof doctor --device 192.168.1.7:5555 --json"],
)
@opt.device
def doctor(device_spec: str | None) -> int:
    """Find problems that prevent measuring, and say how to fix them.

    Checks Python and its packages, compilers, the cache, the cost table, adb's key and server,
    USB, and the phone: the named one, else the only one available. It changes nothing on this
    host. On the phone it pushes the agent, if it is built already.

    The exit code is 1 if there is a problem, and 0 if there are only warnings.
    """
    from nnapi_prof.doctor import Severity
    from nnapi_prof.doctor.examine import examine

    findings = examine(device_spec, progress=say)
    levels = [finding.level for finding in findings]
    n_problems, n_warnings = levels.count(Severity.PROBLEM), levels.count(Severity.WARNING)
    if as_json():
        from nnapi_prof.documents.tool import of_findings

        print_document(of_findings(findings))
        return 1 if n_problems else 0
    for family, members in itertools.groupby(findings, lambda finding: finding.family):
        click.echo(click.style(family, bold=True))
        for finding in members:
            _show_finding(finding)
    well = len(findings) - n_problems - n_warnings
    click.echo(f"{count(n_problems, 'problem')}, {count(n_warnings, 'warning')}, {well} ok")
    return 1 if n_problems else 0


def _show_finding(finding: CheckResult) -> None:
    from nnapi_prof.doctor import Severity

    colours = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}
    level = click.style(f"{finding.level.value:<8}", fg=colours[finding.level])
    click.echo(f"  {level} {finding.check}: {finding.found}")
    if finding.fix is not None:
        click.echo(f"           fix: {finding.fix}")


@define(
    "schema",
    examples=["nnapi-prof schema", "nnapi-prof schema run", "nnapi-prof schema costs list"],
)
@click.argument("name", nargs=-1, shell_complete=opt.documents)
def schema(name: tuple[str, ...]) -> None:
    """Print the JSON Schema of a command's --json document.

    NAME is the command, such as `run` or `costs list`; `error` is the document of commands that
    fail. Without NAME, list the documents. The property "schema" of a document has its name and
    version. A version may gain properties, but none is removed or changes its meaning.
    """
    from nnapi_prof.documents import schemas
    from nnapi_prof.documents.tool import of_schemas
    from nnapi_prof.errors import UsageError, did_you_mean

    by_name = schemas()
    if name:
        asked = "-".join(name)
        if asked not in by_name:
            raise UsageError(
                f"no document {asked!r}{did_you_mean(asked, by_name)}",
                "`nnapi-prof schema` lists them",
            )
        current().printed = True  # the schema is the only document, also without --json
        click.echo(json.dumps(by_name[asked], indent=1))
        return
    if as_json():
        print_document(of_schemas(by_name))
        return
    table = plain(["document", "schema", "of what"])
    for each, schema in by_name.items():
        table.add_row(each, schema["$id"], schema["title"])
    stdout().print(table)


SHELLS = ("bash", "zsh", "fish")
PROGRAM = "nnapi-prof"
VARIABLE = "_NNAPI_PROF_COMPLETE"
# bash splits words at colons, as in sim:npu-phone, and replaces only the text after the last one:
# the script passes the whole line, and removes the text before the colon from the answers.
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
    """click's completion for bash, with support for colons in words and for paths."""

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
def completion(shell: str) -> None:
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
