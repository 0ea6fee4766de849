"""``nnapi-prof ship``: Show how a bundle gets into an app, or write an Android archive of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, line, plain, print_document, say, stdout
from nnapi_prof.toolchain import ANDROID_ABIS

if TYPE_CHECKING:
    from rich.console import Console

    from nnapi_prof.bundle.deployment import DeployStep


@define(
    "ship",
    examples=[
        "nnapi-prof ship model.nnprof",
        "nnapi-prof ship --aar model.nnprof",
        "nnapi-prof ship --aar --abi arm64-v8a -o app/libs/model.aar model.nnprof",
    ],
)
@click.option("--aar", is_flag=True, help="Write an Android archive (.aar).")
@click.option(
    "--abi",
    "abis",
    type=click.Choice(ANDROID_ABIS),
    multiple=True,
    help="ABI of the archive's libraries; repeatable. Default: all.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Archive to write. Default: beside the bundle.",
)
@click.argument("bundle", metavar="BUNDLE", type=click.Path(path_type=Path))
def command(aar: bool, abis: tuple[str, ...], output: Path | None, bundle: Path) -> None:
    """Show which command gets BUNDLE into which kind of app.

    With --aar, write an Android archive: the runtime library for each ABI, a Java class to call it
    (dev.nnapiprof.NnapiModel, also usable from Kotlin), and the bundle as an asset. It needs a JDK,
    but neither Android's SDK nor its NDK. The first time it compiles for minutes.
    """
    from nnapi_prof.errors import UsageError

    if not aar and (abis or output is not None):
        raise UsageError("--abi and --output are of the Android archive", "add --aar")
    from nnapi_prof.api.convert import write_aar
    from nnapi_prof.bundle.deployment import deploy_steps
    from nnapi_prof.bundle.storage import read_bundle
    from nnapi_prof.documents.conversion import of_shipping
    from nnapi_prof.toolchain import build_steps_said

    ways = deploy_steps(read_bundle(bundle), bundle)
    archive = None
    if aar:
        with build_steps_said(say):
            archive = write_aar(bundle, output, abis=abis or ANDROID_ABIS, progress=say)
    if as_json():
        print_document(of_shipping(bundle, ways, archive))
        return
    if archive is None:
        show_steps(stdout(), ways)
        return
    say(
        f"{archive.path}: {archive.n_bytes / 1e6:.2f} MB, for {', '.join(archive.abis)}; in the app"
        f' NnapiModel.open(assets.open("{archive.asset}"))'
    )


GAP = 2
"""Number of spaces between two columns of a table."""


def show_steps(console: Console, ways: Sequence[DeployStep]) -> None:
    """Prints the next command for each way into an app, or the reason why there is none.

    A command must not be broken over lines: where the table is too narrow, each gets its own line.
    """
    doors = max((len(step.runtime.value) for step in ways), default=0)
    longest = max((len(step.command) for step in ways if step.refusal is None), default=0)
    if doors + GAP + longest <= console.width:
        table = plain(["into"], (), "command")
        for step in ways:
            table.add_row(step.runtime.value, step.refusal or step.command)
        console.print(table)
        return
    for step in ways:
        if step.refusal is None:
            console.print(f"{step.runtime.value}:\n  {step.command}", soft_wrap=True)
        else:
            line(console, f"{step.runtime.value}: {step.refusal}")
