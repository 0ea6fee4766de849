"""``nnapi-prof bisect``: Find the first operation whose results differ from PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define, file_formats, option_group
from nnapi_prof.cli.output import as_json, line, ms, print_document, say, stdout
from nnapi_prof.cli.progress import listening
from nnapi_prof.costs import ConditionOptions
from nnapi_prof.execution.objectives import BisectOptions

if TYPE_CHECKING:
    from rich.console import Console

    from nnapi_prof.bisection.diagnosis import Bisection, Culprit, ValueFacts

MOST_CHANNELS = 8


@define(
    "bisect",
    examples=[
        "nnapi-prof bisect --device SERIAL model.nnprof",
        "nnapi-prof bisect --target nnapi:NAME/fast --reproducer case model.pt2",
    ],
)
@opt.device
@click.option(
    "--target",
    metavar="TARGET",
    help="Search this target, as nnapi:NAME/fast or cpu. Default: the targets of a bundle's plan;"
    " of a model every accelerator in turn.",
)
@opt.declared(BisectOptions, "budget", budget={"type": click.FloatRange(min=0, min_open=True)})
@option_group(
    *(
        click.option(f"--{name}", "through", flag_value=name, help=each.BISECT_HELP)
        for name, each in file_formats().items()
    )
)
@click.option("--all", "find_all", is_flag=True, help="Go on after the first unit that differs.")
@opt.declared(BisectOptions, "samples")
@click.option(
    "--reproducer",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the smallest case that shows the fault: inputs, expected outputs, C++ for NNAPI.",
)
@click.option(
    "--fix",
    type=click.Path(path_type=Path),
    metavar="BUNDLE",
    help="Write a bundle without the fault. Later profiles with this cost table avoid it, too.",
)
@opt.inputs
@opt.costs
@opt.conditions
@opt.model
def command(
    device_spec: str | None,
    target: str | None,
    budget: float | None,
    through: str | None,
    find_all: bool,
    samples: int,
    reproducer: Path | None,
    fix: Path | None,
    inputs: tuple[str, ...],
    costs: str | None,
    model: Path,
    conditions: ConditionOptions,
) -> None:
    """Find the first operation whose results on a device differ from PyTorch's.

    MODEL is a bundle or a model. Every region gets reference inputs, so that errors do not add up.
    The model is halved until the operation that differs is alone. The answer names its line in
    your Python, what the values look like, the likely kind of fault, and what avoids it.

    Exit code 1: something differs.
    """
    from nnapi_prof.errors import MismatchError

    with listening() as listener:
        with listener.working("loading PyTorch"):
            bisect = file_formats()[through].bisect if through else _on_device()
        outcome = bisect(
            model,
            device_spec,
            target=target,
            budget=budget,
            find_all=find_all,
            samples=samples,
            inputs=inputs,
            costs=costs,
            reproducer=reproducer,
            fix=fix,
            listener=listener,
            conditions=conditions,
        )
    if as_json():
        from nnapi_prof.documents.plans import of_bisection

        print_document(of_bisection(outcome))
    else:
        show_bisection(stdout(), outcome)
    if outcome.culprits:
        first = outcome.culprits[0]
        raise MismatchError(
            f"{first.label} on {first.target.key} differs from PyTorch: see its cures above"
            if fix is None
            else f"{first.label} on {first.target.key} differs from PyTorch: {fix} avoids it"
        )


def _on_device() -> Callable[..., Bisection]:
    from nnapi_prof.api.bisect import bisect

    return bisect


def show_bisection(console: Console, outcome: Bisection) -> None:
    """Print each culprit with its facts and cures."""
    searched = ", ".join(outcome.targets) or "no target"
    line(
        console,
        f"{outcome.model}: {outcome.n_units} units on {searched}, {outcome.n_samples} inputs, "
        f"{outcome.runs} runs.",
    )
    if outcome.clean:
        line(console, "Nothing differs from PyTorch beyond rounding.")
    for sentence in _unchecked_sentences(outcome):
        line(console, sentence)
    for number, culprit in enumerate(outcome.culprits, 1):
        _show_culprit(console, number, culprit, outcome.simulated)
    for note in outcome.notes:
        say(f"note: {note}")


def _unchecked_sentences(outcome: Bisection) -> Iterator[str]:
    for target in outcome.targets:
        units = [each for each in outcome.unchecked if each.target == target]
        if units:
            verb = "was" if len(units) == 1 else "were"
            more = ", ..." if len(units) > 1 else ""
            yield (
                f"{target} refuses {len(units)} of {outcome.n_units} units, which {verb} not"
                f" checked: {units[0].label}{more} ({units[0].reason})."
            )


def _show_culprit(console: Console, number: int, culprit: Culprit, simulated: bool) -> None:
    where = " ".join(filter(None, (culprit.source.module, culprit.source.line)))
    line(console, f"{number}. {culprit.label} on {culprit.target.key}")
    line(
        console,
        f"   kind   {culprit.kind.value}" + (f": {culprit.message}" * bool(culprit.message)),
    )
    if where:
        line(console, f"   from   {where}")
    if math.isfinite(culprit.worst.relative):
        line(
            console,
            f"   error  {culprit.worst.relative:.2g} of the largest value of "
            f"{culprit.worst.value}, {culprit.worst.ratio:.3g} times what is allowed",
        )
    if culprit.final_error is not None:
        share = "" if culprit.final_share is None else f", {culprit.final_share:.0%} of all error"
        line(console, f"   output {culprit.final_error:.2g} off by this alone{share}")
    for name, facts in culprit.facts:
        line(console, f"   value  {name}: {_facts_words(facts)}")
    for way in culprit.only_in:
        line(console, f"   only   {way.name}")
    for cure in culprit.cures:
        cost = ""
        if cure.costs_ns is not None:
            cost = f": {ms(cure.costs_ns)} ms longer" + ", simulated" * simulated
        target = "" if cure.target is None else f" ({cure.target})"
        code = f": {cure.code}" if cure.code else ""
        line(console, f"   cure   {cure.name}{code}{target}{cost}")


def _facts_words(facts: ValueFacts) -> str:
    parts = [
        f"{facts.range[0]:.4g} to {facts.range[1]:.4g}, expected {facts.reference_range[0]:.4g} to "
        f"{facts.reference_range[1]:.4g}; {facts.share_off:.2%} of its elements are off"
    ]
    if facts.n_nan or facts.n_infinite:
        parts.append(f"{facts.n_nan} are NaN, {facts.n_infinite} infinite")
    if facts.limit is not None:
        parts.append(f"values end at {facts.limit:.5g}")
    if facts.factor is not None:
        parts.append(f"{facts.factor:.5g} times the right values")
    if facts.offset is not None:
        parts.append(f"the right values plus {facts.offset:.5g}")
    if facts.permuted is not None:
        parts.append("the right values at other places")
    if facts.shift is not None:
        rows, columns = facts.shift
        parts.append(f"the right values {rows:+d} rows and {columns:+d} columns away")
    if facts.borders_only:
        parts.append("only at the borders")
    if facts.channels_off:
        shown = ", ".join(map(str, facts.channels_off[:MOST_CHANNELS]))
        more = "" if len(facts.channels_off) <= MOST_CHANNELS else ", ..."
        parts.append(f"only in channels {shown}{more}")
    return "; ".join(parts)
