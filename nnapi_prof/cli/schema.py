"""``nnapi-prof schema``: Print the JSON Schema of what a command prints with --json."""

from __future__ import annotations

import json

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, current, plain, print_document, stdout


@define(
    "schema",
    examples=["nnapi-prof schema", "nnapi-prof schema run", "nnapi-prof schema costs list"],
)
@click.argument("name", nargs=-1, shell_complete=opt.documents)
def command(name: tuple[str, ...]) -> None:
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
        current().printed = True  # the schema is the one document, with --json and without
        click.echo(json.dumps(by_name[asked], indent=1))
        return
    if as_json():
        print_document(of_schemas(by_name))
        return
    table = plain(["document", "schema", "of what"])
    for each, schema in by_name.items():
        table.add_row(each, schema["$id"], schema["title"])
    stdout().print(table)
