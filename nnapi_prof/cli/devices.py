"""``nnapi-prof devices``: List the devices within reach: phones on ADB, this machine, simulated
phones."""

from __future__ import annotations

import click

from nnapi_prof.cli.command import Command
from nnapi_prof.cli.options import HELP, common_options
from nnapi_prof.cli.output import as_json, plain, print_document, stdout


@click.command(
    "devices",
    cls=Command,
    context_settings=HELP,
    examples=[
        "nnapi-prof devices",
        "nnapi-prof devices --json",
    ],
)
@common_options
def command() -> None:
    """List the devices within reach.

    The first column is what --device takes. Phones are found on a running adb server and on USB; a
    phone on the network is named HOST:PORT.
    """
    from nnapi_prof.device.find import list_devices

    rows = list_devices()
    if as_json():
        from nnapi_prof.documents.tool import of_devices

        print_document(of_devices(rows))
        return
    table = plain(["device", "reached by", "state", "description"])
    for row in rows:
        table.add_row(row.serial, row.kind, row.state, row.description)
    stdout().print(table)
