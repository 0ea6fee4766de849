"""Options that several commands share, and the shell's completions of their values.

Completions run again at every TAB, so they must be fast: none imports torch, and an adb server that
does not answer at once counts as having no phones.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from nnapi_prof.cli.command import F, option_group
from nnapi_prof.costs import BY_TRIAL, MOST_THREADS, ConditionOptions, parse_cpus
from nnapi_prof.device.state import Gates
from nnapi_prof.execution import RunOptions
from nnapi_prof.graph.plan import Precision, Preference
from nnapi_prof.options import default_of, flag_of, options_of, value_types

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]
    T = TypeVar("T", bound=DataclassInstance)


ADB_SERVER_S = 0.3
MODELS = (".pt", ".pt2")
BUNDLES = (".nnprof",)
IN_BASH = "NNAPI_PROF_COMPLETING_IN_BASH"
"""Environment variable that is set by the script for bash, which marks paths."""


def names_bundle(path: Path) -> bool:
    """Returns whether a path is a bundle, existing or not, for commands that also take models."""
    return path.suffix in BUNDLES or (path / "manifest.json").is_file()


def devices(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Completes ``--device``: simulated phones, this host, phones of a running adb server."""
    from nnapi_prof.device.find import LOCAL, SIMULATED, list_phones
    from nnapi_prof.device.transport.adb_server import AdbServer
    from nnapi_prof.errors import NnapiProfError

    try:
        phones = [phone.serial for phone in AdbServer().devices(ADB_SERVER_S)]
    except (NnapiProfError, OSError):
        phones = []
    here = [LOCAL, *(f"{SIMULATED}{name}" for name in list_phones())]
    return _beginning_with(incomplete, [*phones, *here])


def phones(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Completes ``--phone``: names of shipped descriptions, and files."""
    from nnapi_prof.costs.estimate.phones import shipped
    from nnapi_prof.device.find import list_phones

    named = _beginning_with(incomplete, [*list_phones(), *shipped()])
    return named + files((".json",))(context, parameter, incomplete)


def chips(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Completes chips that Qualcomm's simulator estimates, the last one in a list with commas."""
    from nnapi_prof.qnn import CHIPS, PREFIX

    before, comma, _ = incomplete.rpartition(",")
    return _beginning_with(incomplete, [f"{before or PREFIX}{comma}{name}" for name in CHIPS])


def documents(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Completes names of documents."""
    from nnapi_prof.documents import schemas

    return _beginning_with(incomplete, schemas())


def files(endings: tuple[str, ...]) -> Complete:
    """Returns a completion of files with these suffixes, and of folders; in zsh and fish of all
    files."""

    def complete(
        _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        if IN_BASH not in os.environ:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(path, type="path") for path in _paths(incomplete, endings)]

    return complete


def _paths(incomplete: str, endings: tuple[str, ...]) -> list[str]:
    """Lists matching files and folders; bundles are folders."""
    before, _, begin = incomplete.rpartition("/")
    folder = f"{before}/" if before or incomplete.startswith("/") else ""
    try:
        entries = sorted(os.scandir(Path(folder or ".").expanduser()), key=lambda e: e.name)
    except OSError:
        return []
    return [
        f"{folder}{entry.name}"
        for entry in entries
        if entry.name.startswith(begin)
        and (begin.startswith(".") or not entry.name.startswith("."))
        and (entry.is_dir() or entry.name.endswith(endings))
    ]


def _beginning_with(incomplete: str, words: Iterable[str]) -> list[CompletionItem[str]]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


PREFERENCES = [preference.short for preference in Preference]

model = click.argument("model", type=click.Path(path_type=Path), shell_complete=files(MODELS))
models = click.argument(
    "models",
    metavar="MODEL...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    shell_complete=files(MODELS),
)
bundle = click.argument("bundle", type=click.Path(path_type=Path), shell_complete=files(BUNDLES))


device = click.option(
    "--device",
    "device_spec",
    metavar="SERIAL",
    shell_complete=devices,
    help="Serial of a phone, HOST:PORT, `local` or `sim:NAME`. Default: the only connected"
    " phone, else a simulated one.",
)


def library(function: F) -> F:
    """Adds ``--nnapi-library`` to a command with ``--device``; ``device_spec`` then has both."""

    @functools.wraps(function)
    def with_library(nnapi_library: str | None, **arguments: Any) -> Any:
        if nnapi_library is not None:
            from nnapi_prof.device.find import named_with

            arguments["device_spec"] = named_with(arguments["device_spec"], nnapi_library)
        return function(**arguments)

    return cast(
        "F",
        click.option(
            "--nnapi-library",
            metavar="PATH",
            help="Library on the device to use instead of its libneuralnetworks.so: a vendor's"
            " NNAPI support library, or MediaTek's NeuronAdapter.",
        )(with_library),
    )


costs = click.option(
    "--costs",
    metavar="FILE|URL",
    help="Cost table: an SQLite file or a PostgreSQL URL. Default: $NNAPI_PROF_COSTS, else"
    " a file in the user's data folder.",
)


inputs = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="1x3x224x224[:DTYPE]",
    help="Shape of an input; repeat it for each. ? or ?=256 leaves a size open (quote it); all"
    " sizes named ?n are equal. Default: the inputs in the file, else a guess.",
)


def cpu_mask(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else parse_cpus(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


class Threads(click.ParamType["int | str"]):
    """A number of threads, or ``auto``."""

    name = "auto|N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Returns the number, or ``auto``."""
        text = str(value)
        if text == BY_TRIAL:
            return BY_TRIAL
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_THREADS):
            self.fail(f"{text!r} is neither auto nor a number from 1 to {MOST_THREADS}", param, ctx)
        return int(text)


def declared(
    cls: type[DataclassInstance], *names: str, **settings: Mapping[str, Any]
) -> Callable[[F], F]:
    """Makes command-line options from the options of a dataclass, of all or of those with these
    names; ``settings`` are further arguments of ``click.option``, by name."""
    return option_group(
        *(_declared_option(cls, name, settings.get(name, {})) for name in names or options_of(cls))
    )


def _declared_option(
    cls: type[DataclassInstance], name: str, settings: Mapping[str, Any]
) -> Callable[[F], F]:
    option, value_type = options_of(cls)[name], value_types(cls)[name]
    flag = flag_of(cls, name)
    default = default_of(cls, name)
    arguments: dict[str, Any] = {"help": option.help, "metavar": option.metavar}
    if value_type.scalar is bool:
        arguments |= {"is_flag": True, "default": default, "show_default": bool(default)}
        flag = f"{flag}/--no-{flag[2:]}" if default else flag
    elif value_type.is_sequence:
        arguments["multiple"] = True
    else:
        arguments |= {"default": default, "show_default": default is not None}
    if option.choices:
        arguments["type"] = click.Choice(option.choices)
    elif value_type.scalar is int:
        least, most = (None if limit is None else int(limit) for limit in option.limits)
        arguments["type"] = click.IntRange(least, most)
    elif value_type.scalar is float:
        arguments["type"] = click.FloatRange(*option.limits)
    return click.option(*flag.split(", "), name, **{**arguments, **settings})


def taken(cls: type[T], arguments: dict[str, Any]) -> T:
    """Makes the options object from a command's arguments, and removes these from them. An option
    of several values keeps its default if it has none."""
    own = {name: arguments.pop(name) for name in options_of(cls) if name in arguments}
    return cls(**{name: value for name, value in own.items() if value != ()})


threads = declared(ConditionOptions, "threads", threads={"type": Threads()})
cpus = declared(ConditionOptions, "cpus", cpus={"callback": cpu_mask})
mode = declared(ConditionOptions, "mode")


def conditions(function: F) -> F:
    """Adds the options of :class:`.ConditionOptions`, which the command gets as ``conditions``.
    Options that exclude each other raise UsageError before the command starts."""

    @functools.wraps(function)
    def with_conditions(**arguments: Any) -> Any:
        return function(conditions=taken(ConditionOptions, arguments), **arguments)

    own = declared(ConditionOptions, "relaxed", "float16", "sustained")
    return cast("F", option_group(threads, cpus, mode, own)(with_conditions))


gates = declared(Gates)
tolerance = declared(RunOptions, "tolerance")
cooldown = declared(RunOptions, "cooldown_s")


boundary = declared(RunOptions, "boundary")
memory = declared(RunOptions, "memory_mb")


# Options of commands that choose precisions: the precisions, calibration data, and error metric.

CALIBRATION = ("precisions", "calibration", "samples")
"""Arguments that :func:`precision_options` adds to a command."""
WORDS = ",".join(precision.value for precision in Precision)
_BUDGET = re.compile(r"([0-9.]+(?:e-?[0-9]+)?) *(%|dB)?", re.IGNORECASE)


class ErrorBudget(click.ParamType[float]):
    """An error as a share, ``2%`` or ``0.02``, or as a signal-to-noise ratio, ``34dB``."""

    name = "error"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = _BUDGET.fullmatch(str(value).strip())
        try:
            number = float(match[1]) if match else -1.0
        except ValueError:
            number = -1.0
        unit = (match[2] or "").lower() if match else ""
        if number < 0 or (unit == "db" and number == 0):
            self.fail(f"{value!r} is not an error: write 2%, 0.02 or 34dB", param, ctx)
        return 10 ** (-number / 20) if unit == "db" else number / 100 if unit else number


def _precisions(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[Precision, ...] | None:
    if value is None:
        return None
    try:
        words = [word.strip() for word in value.split(",")]
        return tuple(dict.fromkeys(Precision(word) for word in words))
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: some of {WORDS} are required") from error


calibration_options = option_group(
    click.option(
        "--calibration",
        metavar="DATA",
        help="Inputs to calibrate 8 bits and measure errors with: a .pt or .npz file, or"
        " module:function, which returns an iterable such as a DataLoader. Default:"
        " the inputs in the model file, else random ones.",
    ),
    click.option(
        "--samples",
        type=click.IntRange(2, 100_000),
        help="Largest number of samples; a quarter of them is held out. Default: 128.",
    ),
)


def precision_options(default: str | None) -> Callable[[F], F]:
    """Returns the options ``--precisions`` (with this default), ``--calibration``, ``--samples``,
    for arguments of :func:`nnapi_prof.profile`."""
    return option_group(
        click.option(
            "--precisions",
            metavar=WORDS,
            default=default,
            show_default=default is not None,
            callback=_precisions,
            help="Precisions that regions may use; each is measured.",
        ),
        calibration_options,
    )
