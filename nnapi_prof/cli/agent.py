"""``nnapi-prof agent``: Build, push, ask or clean up the executable that measures on a device.

``nnapi-prof devices``: List the devices within reach: phones on ADB, this machine, simulated
phones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import HELP, Group, define
from nnapi_prof.cli.output import LOGGER, as_json, boxed, plain, print_document, stdout, writing
from nnapi_prof.cli.progress import listening
from nnapi_prof.toolchain import ANDROID_ABIS

if TYPE_CHECKING:
    from nnapi_prof.device.find import OpenDevice
    from nnapi_prof.device.protocol import AgentInfo


@contextmanager
def device(spec: str | None, agent: bool = True) -> Iterator[OpenDevice]:
    """Opens the device of ``--device``, and reports the choice where none was named; with
    ``agent``, also installs the agent on it."""
    from nnapi_prof.device.find import open_device

    with ExitStack() as stack:
        with listening() as listener:  # ends before the command prints
            opened = stack.enter_context(open_device(spec, listener.busy))
            if opened.note:
                listener.note(opened.note)
            if agent:
                path = opened.client.installed.path  # builds and pushes the agent if needed
                LOGGER.debug("the agent is %s", path)
        yield opened


@click.group("agent", cls=Group, context_settings=HELP)
def agent() -> None:
    """Manage the executable that measures and runs on a device.

    Other commands build and push it when they need it.
    """


@define(
    "build",
    of=agent,
    examples=[
        "nnapi-prof agent build --abi arm64-v8a",
        "nnapi-prof agent build --abi host -o agents",
    ],
)
@click.option(
    "--abi",
    "abis",
    multiple=True,
    type=click.Choice(["host", *ANDROID_ABIS]),
    help="Android ABI to build for, or `host`; repeatable. Default: all of them.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder to copy the agents to, as ABI/agent. Default: leave them in the cache.",
)
def build(abis: tuple[str, ...], output: Path | None) -> None:
    """Build the agent, or find it built, and print where it is.

    Each line has ABI, size in bytes and path. The first build takes minutes.
    """
    import shutil

    from nnapi_prof.device.build import agent_binary
    from nnapi_prof.toolchain import host_abi

    built: list[tuple[str, Path]] = []
    for abi in abis or ("host", *ANDROID_ABIS):
        of = (host_abi(), "linux") if abi == "host" else (abi, "android")
        with listening() as listener:
            path = agent_binary(*of, listener.busy)
        if output is not None:
            target = output / abi / "agent"
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
            path = target
        built.append((abi, path))
        if not as_json():
            click.echo(f"{abi}\t{path.stat().st_size}\t{path}")
    if as_json():
        from nnapi_prof.documents.tool import of_build

        print_document(of_build(built))


@define("push", of=agent, examples=["nnapi-prof agent push --device 192.168.1.7:5555"])
@opt.device
def push(device_spec: str | None) -> None:
    """Put the agent on a device and check that it runs there."""
    with device(device_spec) as opened:
        path = opened.client.installed.path
        if as_json():
            from nnapi_prof.documents.tool import of_push

            print_document(of_push(opened.serial, path))
        else:
            click.echo(f"{opened.serial}\t{path}")


@define("info", of=agent, examples=["nnapi-prof agent info --device sim:npu-phone"])
@opt.device
@opt.library
def info(device_spec: str | None) -> None:
    """Show a device's system, cores, engines and accelerators."""
    print_info(device_spec)


def print_info(device_spec: str | None) -> None:
    """Prints a device's properties and accelerators, as a document or for people."""
    from rich.table import Table

    with device(device_spec) as opened:
        device_info = opened.client.info()
        path = opened.client.installed.path
    if as_json():
        from nnapi_prof.documents.tool import of_info

        print_document(of_info(opened.serial, path, device_info))
        return
    facts = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _facts(device_info, path):
        facts.add_row(name, value)
    stdout().print(facts)
    accelerators = boxed("", ["accelerator", "kind", "driver", "API level"])
    for row in device_info.nnapi.accelerators:
        accelerators.add_row(row.name, row.type, row.version, str(row.feature_level))
    if device_info.nnapi.accelerators:
        stdout().print(accelerators)


def _facts(info: AgentInfo, path: str) -> list[tuple[str, str]]:
    from nnapi_prof.device import describe, device_fingerprint

    clocks = ["?" if khz is None else f"{khz / 1e6:.2f}" for khz in info.cpu_max_khz]
    has_clocks = any(khz is not None for khz in info.cpu_max_khz)
    cores = f"{info.cpus}, at most {' '.join(clocks)} GHz" if has_clocks else str(info.cpus)
    if info.big_cores is not None:
        cores += f"; big ones: mask {info.big_cores}"
    engines = [f"{name} ({', then '.join(kernels)})" for name, kernels in info.engines.items()]
    nnapi = info.nnapi.library or "none"
    if info.nnapi.door.value != "nnapi":
        nnapi += f", a {info.nnapi.door.value}"
    if info.nnapi.error:
        nnapi += f" ({info.nnapi.error})"
    return [
        ("device", describe(info)),
        ("fingerprint", device_fingerprint(info)),
        ("agent", f"{info.agent}, protocol {info.protocol}, {path}"),
        ("cores", cores),
        ("threads of use", "unknown" if info.threads_max is None else str(info.threads_max)),
        ("float16 on the CPU", info.cpu_float16.value),
        ("memory", "unknown" if info.memory_kb is None else f"{info.memory_kb / 1024:.0f} MB"),
        ("engines", ", ".join(engines) or "unknown"),
        ("NNAPI", nnapi),
        ("lacks", ", ".join(info.nnapi.missing) or "nothing"),
    ]


@define("clean", of=agent, examples=["nnapi-prof agent clean --older-than 30"])
@opt.device
@click.option(
    "--older-than",
    "older_than_days",
    type=click.IntRange(0, 36_500),
    metavar="DAYS",
    help="Remove only files that were not used for this many days.",
)
@click.option("--all", "everything", is_flag=True, help="Remove the agent too.")
def clean(device_spec: str | None, older_than_days: int | None, everything: bool) -> None:
    """Remove nnapi-prof's files from a device: weights, files of past runs, old agents.

    Later commands push again what they need.
    """
    from nnapi_prof.device import agent as cleaning
    from nnapi_prof.errors import UsageError

    if everything and older_than_days is not None:
        raise UsageError("--all removes everything, --older-than only what is old", "choose one")
    with device(device_spec, agent=not everything) as opened:  # a full phone has no room for it
        client = opened.client
        gone = cleaning.clean_all(client) if everything else cleaning.clean(client, older_than_days)
        if as_json():
            from nnapi_prof.documents.tool import of_clean

            print_document(of_clean(opened.serial, gone))
            return
        click.echo(
            f"{opened.serial}: {gone.n_bytes / 1e6:.1f} MB removed, "
            f"{gone.kept_bytes / 1e6:.1f} MB kept; {gone.n_agents} agents removed"
        )


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
def devices(device_spec: str | None) -> None:
    """List the available devices.

    The first column is the value for --device. Phones are found on a running adb server and on
    USB; name a phone on the network HOST:PORT. With --device or --nnapi-library, show one device
    with the accelerators of that library, like `nnapi-prof agent info`.
    """
    if device_spec is not None:
        print_info(device_spec)
        return
    from nnapi_prof.api import list_chips
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
