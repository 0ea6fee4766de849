"""ExecuTorch's files on the command line: ``convert --to executorch``, and ``run model.pte``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from nnapi_prof.cli.options import F, device_option
from nnapi_prof.cli.output import (
    as_json,
    boxed,
    line,
    ms,
    print_document,
    say,
    stdout,
)
from nnapi_prof.cli.progress import listening
from nnapi_prof.device.find import LOCAL
from nnapi_prof.errors import MismatchError, UsageError
from nnapi_prof.graph.causes import distinct

if TYPE_CHECKING:
    from nnapi_prof.executorch.choice import Choice
    from nnapi_prof.executorch.runner import FileRun

ENDING = ".pte"


def write_pte(bundle: Path, path: Path, whole: bool) -> tuple[Path, list[int]]:
    """Writes a bundle's plan as a ``.pte``, and says which back ends run what; the file, and the
    NNAPI operations of each of its models."""
    from nnapi_prof.executorch.version import require

    require()
    from nnapi_prof.cli.options import writing
    from nnapi_prof.executorch.pte import lower

    lowered = lower(bundle, whole=whole)
    path = path if path.suffix else path.with_name(f"{path.name}{ENDING}")
    with writing(path):
        lowered.save(path)
    backends = ", ".join(f"{n} of {name}" for name, n in lowered.backends().items())
    say(f"{path}: {path.stat().st_size / 1e6:.2f} MB, calls: {backends or 'none, kernels alone'}")
    return path, [len(region.operations) for call in lowered.calls for region in call.regions]


# A model by the fastest measured plan among partitioners.


OR_PARTITIONERS = "; or choose among --partitioners, as nnapi,xnnpack"
_MEASURING = ("device_spec", "threads", "seconds", "seed")
"""Parameters that go with ``--partitioners`` alone."""


def partitioner_options(function: F) -> F:
    """``--partitioners`` and what goes with it."""
    options = (
        click.option(
            "--partitioners",
            metavar="NAME,NAME",
            help="With --to executorch, of a model: ExecuTorch's partitioners to choose among by"
            " measurement, in list order: nnapi (each accelerator of --device), xnnpack, vulkan, or"
            " MODULE:CLASS.",
        ),
        device_option,
        click.option(
            "--threads",
            type=click.IntRange(1, 64),
            default=1,
            show_default=True,
            help="With --partitioners: of ExecuTorch's thread pool.",
        ),
        click.option(
            "--seconds",
            type=click.FloatRange(min=0),
            default=600,
            show_default=True,
            help="With --partitioners: the longest to measure units and regions.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            help="With --partitioners: of random inputs in the place of the model's examples.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def refuse_measuring(context: click.Context) -> None:
    """Raises UsageError where what goes with ``--partitioners`` was stated without."""
    for name in _MEASURING:
        if _is_stated(context, name):
            raise UsageError(f"--{_spelled(name)} is for --partitioners: leave it out")


def choose_pte(context: click.Context, names: str, path: Path, output: Path | None) -> None:
    """Measures partitioners on a model, and writes the fastest file."""
    stated = [name for name in context.params if _is_stated(context, name)]
    for name in stated:
        if name not in (*_MEASURING, "partitioners", "inputs", "formats", "output", "model"):
            raise UsageError(f"--{_spelled(name)} has no meaning with --partitioners: leave it out")
    if set(context.params["formats"]) != {"executorch"}:
        raise UsageError("--partitioners are for --to executorch alone: say so")
    if (path / "manifest.json").is_file():
        raise UsageError(f"{path} is a bundle and has its plan: --partitioners are for its model")
    from nnapi_prof.executorch.version import require

    require()
    from nnapi_prof.api.model import load
    from nnapi_prof.cli.options import writing
    from nnapi_prof.executorch.candidates import named
    from nnapi_prof.executorch.selection import choose

    device, threads, seconds, seed = (context.params[name] for name in _MEASURING)
    output = output or path.with_suffix(ENDING)
    with listening() as listener:
        model = load(path, context.params["inputs"], listener=listener)
        choice = choose(
            model,
            named([name.strip() for name in names.split(",")], device or LOCAL, listener),
            device=device or LOCAL,
            threads=threads,
            seconds=seconds,
            seed=seed,
            listener=listener,
        )
    with writing(output):
        choice.save(output)
    if as_json():
        from nnapi_prof.documents.executorch import of_choice

        print_document(of_choice(choice, output))
    else:
        _show_choice(choice, output)


def _show_choice(choice: Choice, path: Path) -> None:
    console = stdout()
    table = boxed(
        f"{choice.model} in ExecuTorch, latency in ms on this host", ["file"], ["median", "calls"]
    )
    for file in choice.files:
        calls = ", ".join(f"{n} of {name}" for name, n in file.backends.items())
        table.add_row(file.name, ms(file.median_ns) if file.rounds_ns else "", calls or "none")
    console.print(table)
    line(console, f"{path}: {choice.file.name}, {path.stat().st_size / 1e6:.2f} MB")
    for segment in choice.plan.segments:
        what = choice.graph.label(segment.units)
        where = segment.target.key.partition(":")[2]
        line(console, f"  {where}: {what} ({ms(segment.predicted_ns)} ms; {segment.cause})")
    for file in choice.files:
        if file.reason is not None:
            line(console, f"{file.name} {file.status.value}: {file.reason}")
    alike: dict[tuple[str, str, str], list[str]] = {}
    for refusal in choice.refusals:
        key = (refusal.candidate, refusal.status.value, refusal.reason)
        alike.setdefault(key, []).append(refusal.label)
    for (candidate, status, reason), labels in alike.items():
        line(console, f"{candidate} {status} {distinct(labels)}: {reason}")
    for note in choice.notes:
        line(console, f"note: {note}")


def _is_stated(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _spelled(name: str) -> str:
    """A parameter's option."""
    return {"device_spec": "device", "inputs": "input", "formats": "format"}.get(
        name, name.replace("_", "-")
    )


# A file run on this host.


_OPTIONS = ("device_spec", "against", "runs", "seed", "tolerance", "bundle")
"""Of ``nnapi-prof run``, those that a ``.pte`` takes."""


def run_command(context: click.Context, path: Path) -> None:
    """``nnapi-prof run`` of a ``.pte``: shows its times and outputs on this host."""
    for name in context.params:
        if _is_stated(context, name) and name not in _OPTIONS:
            option = {"stated": "input"}.get(name, name).replace("_", "-")
            raise UsageError(f"--{option} is for bundles: leave it out for {path}")
    device, against, runs, seed, tolerance = (context.params[name] for name in _OPTIONS[:5])
    from nnapi_prof.executorch.version import require

    require()
    from nnapi_prof.executorch.runner import run_file

    with listening() as listener:
        run = run_file(
            path,
            device or "local",
            against=against,
            runs=runs,
            seed=seed,
            tolerance=tolerance,
            progress=listener.busy,
        )
    if as_json():
        from nnapi_prof.documents.executorch import of_file_run

        print_document(of_file_run(run))
    else:
        _show(run)
    if not run.agrees:
        worst = max(run.checks, key=lambda check: check.relative / check.tolerance)
        raise MismatchError(
            f"output {worst.name} of {path} differs from eager PyTorch by {worst.relative:.1e} of"
            f" its largest value, {worst.tolerance:.0e} is allowed"
        )


def _show(run: FileRun) -> None:
    console = stdout()
    line(console, f"{run.path.name} on {run.device}: {run.n_bytes / 1e6:.2f} MB")
    table = boxed("Parts, latency in ms on this host", ["part"], ["median"])
    for part in run.parts:
        table.add_row(part.name, ms(part.median_ns))
    table.add_row("all", ms(run.median_ns))
    console.print(table)
    line(console, f"loaded in {ms(run.load_ns)} ms, first run {ms(run.first_ns)} ms")
    for check in run.checks:
        verdict = "agrees with" if check.ok else "DIFFERS from"
        line(
            console,
            f"output {check.name} {list(check.shape)} {verdict} eager PyTorch:"
            f" {check.relative:.1e} of its largest value ({check.tolerance:.0e} allowed)",
        )
    if not run.checks:
        line(console, "outputs are not compared: --against MODEL names what it was made of")
    for note in run.notes:
        line(console, f"note: {note}")
