"""``nnapi-prof devices``: List the devices within reach: phones on ADB, this machine, simulated
phones."""

from __future__ import annotations

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, plain, print_document, stdout


@define(
    "devices",
    examples=[
        "nnapi-prof devices",
        "nnapi-prof devices --json",
        "nnapi-prof devices --nnapi-library /vendor/lib64/libneuron_adapter.so",
    ],
)
@opt.device
@opt.library
def command(device_spec: str | None) -> None:
    """List the available devices.

    The first column is the value for --device. Phones are found on a running adb server and on
    USB; name a phone on the network HOST:PORT. With --device or --nnapi-library, show one device
    with the accelerators of that library, like `nnapi-prof agent info`.
    """
    if device_spec is not None:
        from nnapi_prof.cli.agent import print_info

        print_info(device_spec)
        return
    from nnapi_prof.api.devices import list_chips
    from nnapi_prof.device.find import list_devices

    rows = [*list_devices(), *list_chips()]
    if as_json():
        from nnapi_prof.documents.tool import of_devices

        print_document(of_devices(rows))
        return
    table = plain(["device", "reached by", "state", "description"])
    for row in rows:
        table.add_row(row.serial, row.kind, row.state, row.description)
    stdout().print(table)
