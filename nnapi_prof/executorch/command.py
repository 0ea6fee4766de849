"""Adds ExecuTorch's files to the command line: ``convert --to executorch``, ``run model.pte`` and
``bisect --executorch``. The entry point ``executorch`` of the group ``nnapi_prof.formats`` names
this module, a :class:`nnapi_prof.cli.command.FileFormat`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nnapi_prof import documents as s
from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import option_group
from nnapi_prof.cli.output import as_json, boxed, line, ms, print_document, say, stdout
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs import MOST_THREADS
from nnapi_prof.device.find import LOCAL
from nnapi_prof.documents import Document, document, properties
from nnapi_prof.documents.conversion import COMPARED, COMPARED_FILE
from nnapi_prof.documents.plans import NOTES, OUTPUT, of_checks
from nnapi_prof.errors import MismatchError, UsageError
from nnapi_prof.execution.objectives import ChoiceOptions
from nnapi_prof.graph.causes import distinct
from nnapi_prof.graph.plan import Engine

if TYPE_CHECKING:
    from nnapi_prof.api.plan import ModelPlan
    from nnapi_prof.bisection.diagnosis import Bisection
    from nnapi_prof.cli.convert_files import OutputFiles
    from nnapi_prof.executorch.runner import FileRun
    from nnapi_prof.executorch.whole import FileChoice

ENDING = ".pte"
BISECT_HELP = "Run the regions by ExecuTorch's delegate, on this host: local or sim:NAME."

# Builds the documents of ``run --json`` for a ``.pte``, of files that were compared, and of
# ``convert --partitioners --json``.


@document(
    "run-pte",
    1,
    "A program of ExecuTorch's, run on this host",
    path=s.TEXT,
    device=s.TEXT,
    simulated=s.described(
        s.TRUTH, "its NNAPI is a simulated phone's; times are this host's even so"
    ),
    n_bytes=s.COUNT,
    load_ns=s.COUNT,
    first_ns=s.described(s.COUNT, "of the first run, the cold one"),
    samples_ns=s.described(s.array(s.COUNT), "of whole runs, warm"),
    median_ns=s.NUMBER,
    parts=s.described(
        s.array(s.obj(name=s.TEXT, delegated=s.TRUTH, median_ns=s.NUMBER)),
        "delegates' segments and operators, and kernels, in order, by ExecuTorch's event tracer",
    ),
    agrees=s.described(s.TRUTH, "every output that was compared does; else the exit code is 1"),
    outputs=s.described(s.array(OUTPUT), "against eager PyTorch; empty where no model was named"),
    notes=NOTES,
)
def of_file_run(run: FileRun) -> Document:
    return properties("run-pte", run, outputs=of_checks(run.checks))


def of_compared(choice: FileChoice) -> Document:
    return properties(COMPARED, choice, chosen=choice.file.name, files=_files(choice))


def _files(choice: FileChoice) -> list[Document]:
    return [
        properties(
            COMPARED_FILE,
            file,
            backends=[{"name": name, "calls": n} for name, n in file.backends.items()],
            median_ns=file.median_ns if file.rounds_ns else None,
        )
        for file in choice.files
    ]


_SEGMENT = s.obj(
    target=s.described(s.TEXT, "executorch:NAME"),
    units=s.array(s.COUNT),
    label=s.TEXT,
    predicted_ns=s.NUMBER,
    cause=s.TEXT,
)


@document(
    "executorch-choice",
    1,
    "ExecuTorch's partitioners measured on a model, and the file that is the fastest",
    model=s.TEXT,
    device=s.TEXT,
    simulated=s.described(s.TRUTH, "NNAPI is a simulated phone's; times are this host's even so"),
    path=s.described(s.TEXT, "the file that was written"),
    chosen=s.described(s.TEXT, "its name among the files"),
    files=s.described(s.array(COMPARED_FILE), "the fastest first; those that do not run last"),
    segments=s.described(s.array(_SEGMENT), "of the plan that the file follows, in order"),
    refusals=s.described(
        s.array(
            s.obj(
                candidate=s.TEXT, label=s.TEXT, units=s.array(s.COUNT), status=s.TEXT, reason=s.TEXT
            )
        ),
        "regions that a partitioner, its back end or its run does not take",
    ),
    notes=NOTES,
)
def of_choice(choice: FileChoice, path: Path) -> Document:
    return properties(
        "executorch-choice",
        choice,
        path=str(path),
        chosen=choice.file.name,
        files=_files(choice),
        segments=[
            properties(_SEGMENT, segment, label=choice.graph.label(segment.units))
            for segment in choice.plan.segments
        ],
    )


# A bundle's plan as a file.


def write_plan(context: click.Context, written: OutputFiles, path: Path) -> None:
    """Writes a bundle's plan as a ``.pte``, or the file of a rule that was measured to be faster,
    and prints the calls of each back end."""
    from nnapi_prof.executorch.host import require

    require()
    from nnapi_prof.api.plan import read_plan
    from nnapi_prof.bundle.deployment import float32_cpu
    from nnapi_prof.cli.output import writing
    from nnapi_prof.executorch.pte import lower

    planned = read_plan(written.source)
    bundle, choice, note = planned.bundle, None, None
    whole = context.params["whole"]
    if not context.params["as_planned"]:
        choice, note = _against_rules(context, planned)
    if choice is not None:
        buffer, plan, backends = choice.buffer, choice.plan, choice.backends()
        written.executorch = of_compared(choice)
    else:
        lowered = lower(planned, whole=whole)
        buffer, plan, backends = lowered.buffer, planned.plan, lowered.backends()
    path = path if path.suffix else path.with_name(f"{path.name}{ENDING}")
    with writing(path):
        path.write_bytes(buffer)
    calls = ", ".join(f"{n} of {name}" for name, n in backends.items())
    say(f"{path}: {len(buffer) / 1e6:.2f} MB, calls: {calls or 'none, kernels alone'}")
    if choice is not None and not as_json():
        _show_choice(choice, path)
    written.files.append((path, "executorch"))
    on_nnapi = [s for s in plan.segments if s.target.engine is Engine.NNAPI]
    written.regions += [len(bundle.region(s.units, s.target).operations) for s in on_nnapi]
    in_float32 = None if whole else float32_cpu(bundle, plan, "ExecuTorch")
    for text in filter(None, (note, in_float32)):
        written.note(text)


def _against_rules(
    context: click.Context, planned: ModelPlan
) -> tuple[FileChoice | None, str | None]:
    """Returns the choice among files of a plan and its baselines; None and why if there is none."""
    from nnapi_prof.executorch.rivals import fastest, made_on

    if planned.bundle.plan_set is not None:
        return None, None
    device = context.params["device_spec"] or made_on(planned)
    if device is None:
        return None, (
            f"the file is the plan's: {planned.device} is not within this host's reach, so that its"
            " file and those of other rules were not timed (--device names another to time them on)"
        )
    with listening() as listener:
        choice = fastest(
            planned,
            device,
            whole=context.params["whole"],
            threads=context.params["threads"],
            seed=context.params["seed"],
            listener=listener,
        )
    return choice, None


# The fastest measured plan of a model among partitioners.


_MEASURING = ("device_spec", "threads", "seconds", "seed")
"""Parameters of ``--partitioners``; all but ``seconds`` also apply to comparing plan files."""


convert_options = option_group(
    click.option(
        "--partitioners",
        metavar="NAME,NAME",
        help="With --to executorch and a model: ExecuTorch's partitioners to measure and choose"
        " from, in list order: nnapi (each accelerator of --device), xnnpack, vulkan, or"
        " MODULE:CLASS.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(1, MOST_THREADS),
        help="Size of ExecuTorch's thread pool. Default: 1 with --partitioners; with a bundle the"
        " number that its plan was measured with.",
    ),
    opt.declared(ChoiceOptions),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        help="With --partitioners: seed of random inputs that replace the model's examples.",
    ),
    click.option(
        "--as-planned",
        is_flag=True,
        help="With --to executorch and a bundle: write the plan's file without timing it"
        " against simpler rules.",
    ),
)
"""``--partitioners`` and the options that go with it."""


def convert(context: click.Context, path: Path, output: Path | None) -> bool:
    """Measures partitioners on a model where ``--partitioners`` names some, and writes the fastest
    file; returns whether it did. Raises UsageError for options that do not apply."""
    names, writes = context.params["partitioners"], "executorch" in context.params["formats"]
    if names is not None:
        _choose_file(context, names, path, output)
        return True
    is_bundle = opt.names_bundle(path)
    _refuse_measuring(context, is_bundle and writes)
    if writes and not is_bundle:
        raise UsageError(
            "--format executorch is for bundles",
            f"`nnapi-prof partition` makes one of {path}; or choose among --partitioners, as"
            " nnapi,xnnpack",
        )
    return False


def _refuse_measuring(context: click.Context, compares: bool) -> None:
    """Raises UsageError where options of ``--partitioners`` were stated without it, unless they
    apply to comparing a plan's file with others."""
    for name in _MEASURING:
        if _is_stated(context, name) and not (compares and name != "seconds"):
            raise UsageError(f"--{_spelled(name)} is for --partitioners", "leave it out")
    if context.params["as_planned"] and not compares:
        raise UsageError("--as-planned is for --to executorch of a bundle", "leave it out")


def _choose_file(context: click.Context, names: str, path: Path, output: Path | None) -> None:
    """Measures partitioners on a model, and writes the fastest file."""
    stated = [name for name in context.params if _is_stated(context, name)]
    for name in stated:
        if name not in (*_MEASURING, "partitioners", "inputs", "formats", "output", "model"):
            raise UsageError(
                f"--{_spelled(name)} has no meaning with --partitioners", "leave it out"
            )
    if set(context.params["formats"]) != {"executorch"}:
        raise UsageError("--partitioners are for --to executorch alone", "say so")
    if opt.names_bundle(path):
        raise UsageError(f"{path} is a bundle and has its plan: --partitioners are for its model")
    from nnapi_prof.executorch.host import require

    require()
    from nnapi_prof.api.model import load
    from nnapi_prof.cli.output import writing
    from nnapi_prof.executorch.partitioner import named
    from nnapi_prof.executorch.selection import choose

    device, threads, seconds, seed = (context.params[name] for name in _MEASURING)
    output = output or path.with_suffix(ENDING)
    with listening() as listener:
        model = load(path, context.params["inputs"], listener=listener)
        choice = choose(
            model,
            named([name.strip() for name in names.split(",")], device or LOCAL, listener),
            device=device or LOCAL,
            threads=threads or 1,
            seconds=seconds,
            seed=seed,
            listener=listener,
        )
    with writing(output):
        choice.save(output)
    if as_json():
        print_document(of_choice(choice, output))
    else:
        _show_choice(choice, output)


def _show_choice(choice: FileChoice, path: Path) -> None:
    console = stdout()
    table = boxed(f"{choice.model} in ExecuTorch, {choice.clock}", ["file"], ["median", "calls"])
    for file in choice.files:
        calls = ", ".join(f"{n} of {name}" for name, n in file.backends.items())
        median = ms(file.median_ns) if file.rounds_ns else ""
        table.add_row(file.name, median, calls or ("none" if file.buffer else ""))
    console.print(table)
    line(console, f"{path}: {choice.file.name}, {path.stat().st_size / 1e6:.2f} MB")
    for segment in choice.plan.segments:
        what = choice.graph.label(segment.units)
        where = segment.target.key.removeprefix(f"{Engine.EXECUTORCH.value}:")
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
    """Returns the name of a parameter's option, without dashes."""
    return {"device_spec": "device", "inputs": "input", "formats": "format"}.get(
        name, name.replace("_", "-")
    )


# A file run on this host.


_OPTIONS = ("device_spec", "against", "runs", "seed", "tolerance", "bundle")
"""Parameters of ``nnapi-prof run`` that apply to a ``.pte``."""


def run(context: click.Context, path: Path) -> None:
    """Runs a ``.pte`` for ``nnapi-prof run``: shows its times and outputs on this host."""
    for name in context.params:
        if _is_stated(context, name) and name not in _OPTIONS:
            option = {"stated": "input"}.get(name, name).replace("_", "-")
            raise UsageError(f"--{option} is for bundles", f"leave it out for {path}")
    device, against, runs, seed, tolerance = (context.params[name] for name in _OPTIONS[:5])
    from nnapi_prof.executorch.host import require

    require()
    from nnapi_prof.executorch.runner import run_file

    with listening() as listener:
        done = run_file(
            path,
            device or "local",
            against=against,
            runs=runs,
            seed=seed,
            tolerance=tolerance,
            progress=listener.busy,
        )
    if as_json():
        print_document(of_file_run(done))
    else:
        _show_file_run(done)
    if not done.agrees:
        worst = max(done.checks, key=lambda check: check.relative / check.tolerance)
        difference, allowed = worst.texts()
        raise MismatchError(
            f"output {worst.name} of {path} differs from eager PyTorch by {difference} of"
            f" its largest value, {allowed} is allowed: `nnapi-prof bisect"
            " --executorch` finds the operation"
        )


def _show_file_run(run: FileRun) -> None:
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
        difference, allowed = check.texts()
        line(
            console,
            f"output {check.name} {list(check.shape)} {verdict} eager PyTorch:"
            f" {difference} of its largest value ({allowed} allowed)",
        )
    if not run.checks:
        line(console, "outputs are not compared: --against MODEL names what it was made of")
    for note in run.notes:
        line(console, f"note: {note}")


def bisect(model: Path, device: str | None, **options: Any) -> Bisection:
    """Finds the first operation that differs where the delegate runs it. Raises UsageError without
    ExecuTorch."""
    from nnapi_prof.executorch.host import require

    require()
    from nnapi_prof.executorch.bisection import bisect as bisect_delegate

    return bisect_delegate(model, device, **options)
