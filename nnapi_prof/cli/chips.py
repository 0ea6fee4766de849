"""``estimate --device qnn:CHIPS``, and words for estimates of Qualcomm's simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.cli.output import as_json, boxed, line, listed, ms, print_document, say, stdout
from nnapi_prof.cli.progress import listening
from nnapi_prof.errors import UsageError
from nnapi_prof.reports.words import calibration_words

if TYPE_CHECKING:
    import click

    from nnapi_prof.api.chips import ChipEstimates
    from nnapi_prof.qnn.network import ChipEstimate


def estimate_on_chips(
    device: str,
    inputs: tuple[str, ...],
    model: Path,
    options: dict[str, Any],
    samples: tuple[str | None, int | None],
) -> None:
    """Prints what NPUs take of a model, and how long it would take."""
    from nnapi_prof.qnn.chips import is_qnn

    if not is_qnn(device):
        raise UsageError(
            f"estimate needs no device, and takes --device qnn:CHIP only: {device!r} is measured by"
            " `nnapi-prof profile`"
        )
    if asked := [name for name, value in options.items() if value]:
        raise UsageError(f"--{asked[0]} is for --phone", "leave it out")
    with listening() as listener:
        from nnapi_prof.api.calibration import CalibrationOptions
        from nnapi_prof.api.chips import estimate_chips

        estimates = estimate_chips(
            model, device, inputs=inputs, samples=CalibrationOptions(*samples), listener=listener
        )
    say(estimates.licence)
    if as_json():
        from nnapi_prof.documents.chips import of_chips

        print_document(of_chips(estimates))
        return
    _show_chip_estimates(estimates)


def _show_chip_estimates(estimates: ChipEstimates) -> None:
    console = stdout()
    label = f"{estimates.precision.value}: ms, estimated by Qualcomm's simulator"
    title = f"{estimates.model} on NPUs, {label}"
    table = boxed(title, ["chip"], ["whole", "nine of ten within", "on the NPU", "refused"])
    for one in estimates.chips:
        band = f"{ms(one.low_ns)} to {ms(one.high_ns)}" if one.low_ns is not None else "–"
        whole = ms(one.whole_ns) + (" (order only)" if _order_only(one) else "")
        refused = sum(part.count for part in one.refused)
        table.add_row(one.chip, whole, band, str(sum(one.taken.values())), str(refused))
    console.print(table)
    refusals = [
        (
            one.chip,
            f"{part.count} {part.operation}: {part.reason or 'the compiler gives no reason'}",
        )
        for one in estimates.chips
        for part in one.refused
    ]
    refusals += [(one.chip, one.error) for one in estimates.chips if one.error and not one.refused]
    if refusals:
        listed(console, "Not on the NPU", refusals)
    for doubt in dict.fromkeys(d.words() for one in estimates.chips for d in one.doubts):
        line(console, f"? {doubt}.")
    for one in estimates.chips:
        if one.calibration is not None and one.whole_ns is not None:
            line(console, f"{one.chip}: {calibration_words(one.calibration)}.")
    line(
        console,
        "Nothing of this was measured. A phone measures it: `nnapi-prof profile`, or Qualcomm AI"
        " Hub for the whole network.",
    )


def _order_only(one: ChipEstimate) -> bool:
    return one.whole_ns is not None and one.calibration is not None and one.calibration.order_only


def write_for_chip(
    context: click.Context,
    device: str | None,
    inputs: tuple[str, ...],
    model: Path,
    output: Path | None,
    samples: tuple[str | None, int | None],
) -> None:
    """Writes ``convert --to qnn``, and says what is known of it. Raises UsageError where no chip is
    named, or another format is asked for, too."""
    from nnapi_prof.cli.options import names_bundle
    from nnapi_prof.qnn.chips import is_qnn

    if device is None or not is_qnn(device):
        raise UsageError("--to qnn writes for one chip", "name it, as --device qnn:SM8650")
    if set(context.params["formats"]) != {"qnn"} or names_bundle(model):
        raise UsageError("--to qnn is of a model, and the only format", "leave the others out")
    with listening() as listener:
        from nnapi_prof.api.calibration import CalibrationOptions
        from nnapi_prof.api.chips import convert_for_chip

        files = convert_for_chip(
            model,
            device,
            output,
            inputs=inputs,
            samples=CalibrationOptions(*samples),
            listener=listener,
        )
    if as_json():
        from nnapi_prof.documents.chips import of_chip_files

        print_document(of_chip_files(files))
        return
    console = stdout()
    for path in (files.path, *files.binaries):
        line(console, f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    left = sum(part.count for part in files.refused)
    line(
        console,
        f"{files.on_npu} operations on the NPU of {files.chip} in {files.precision.value},"
        f" {left} for ONNX Runtime's CPU",
    )
    if files.channels_last:
        line(console, f"images are channels last now: {', '.join(files.channels_last)}")
    line(
        console,
        f"The binary is for {files.chip} only. Nobody has loaded it on a phone: that needs ONNX"
        " Runtime with the QNN execution provider and QAIRT libraries of a version that goes with"
        " it.",
    )
