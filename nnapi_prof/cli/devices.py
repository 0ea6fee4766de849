"""``nnapi-prof devices``."""

from __future__ import annotations

import click

from nnapi_prof.cli.options import stdout


@click.command("devices", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of a table.")
def command(as_json: bool) -> None:
    """List the devices within reach.

    The first column is what --device takes. Phones are found on a running adb server and on USB; a
    phone on the network is named HOST:PORT.
    """
    from nnapi_prof.device.find import list_devices

    found = list_devices()
    if as_json:
        import dataclasses
        import json

        click.echo(json.dumps([dataclasses.asdict(row) for row in found], indent=1))
        return
    from rich.table import Table

    table = Table("device", "reached by", "state", "description", box=None, pad_edge=False)
    for row in found:
        table.add_row(row.serial, row.kind, row.state, row.description)
    stdout().print(table)
