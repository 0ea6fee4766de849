"""A command's options are the arguments of the functions that it calls, with the same defaults."""

import inspect
from collections.abc import Callable

import click
import pytest

import nnapi_prof as np_
from nnapi_prof.cli import cli as commands
from nnapi_prof.options import default_of, options_of
from tests.cli.common import Profiled, python

OWN = {
    "profile": set[str](),
    "partition": {"output", "no_verify", "estimate", "objective", "parallel"},
    "go": {"output", "open_it"},
    "run": {"no_baselines", "against"},
    "estimate": {"device", "device_spec", "calibration", "samples"},  # chips: nnp.estimate_chips
    "calibrate": {"output"},
}
"""Options that are none: where a file goes, what is shown, several calls, a flag that takes an
argument back."""
OBJECTS: dict[str, tuple[type, ...]] = {
    "profile": (np_.ConditionOptions, np_.MeasureOptions, np_.Gates),
    "partition": (np_.ConditionOptions, np_.Latency, np_.Within, np_.Parallel, np_.Throughput),
    "go": (np_.ConditionOptions,),
    "calibrate": (np_.ConditionOptions,),
}
"""Classes whose fields are options, too."""
OF_DEVICE = {"nnapi_library"}
"""Parts of the device's name in Python: ``device="SERIAL,library=PATH"``."""
RENAMED = {"device_spec": "device", "stated": "sizes", "fingerprint": "device"}
"""Where the option's own name means another thing in Python."""


@pytest.mark.parametrize(
    "name, functions",
    [
        ("profile", (np_.load, np_.profile)),
        ("partition", (np_.load, np_.read_costs, np_.partition)),
        ("go", (np_.load, np_.go)),
        ("run", (np_.run,)),
        ("estimate", (np_.load, np_.estimate)),
        ("calibrate", (np_.calibrate,)),
    ],
)
def test_options_are_arguments(name: str, functions: tuple[Callable[..., object], ...]) -> None:
    defaults = {
        argument.name: None if argument.default is argument.empty else argument.default
        for function in reversed(functions)
        for argument in inspect.signature(function).parameters.values()
    }
    for cls in OBJECTS.get(name, ()):
        defaults |= {field: default_of(cls, field) for field in options_of(cls)}
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    for option in command.params:
        assert option.name is not None
        if isinstance(option, click.Argument) or option.name in {*OWN[name], *OF_DEVICE}:
            continue
        if not option.expose_value:
            continue
        argument = RENAMED.get(option.name, option.name)
        assert argument in defaults, f"{name} takes {option.opts}"
        assert (option.to_info_dict()["default"] or None) == (defaults[argument] or None), argument


def test_what_is_known_is_told_without_pytorch(profiled: Profiled) -> None:
    words = ("profile", *profiled.named, "--preference", "fast", "--no-refine", profiled.model)
    code = (
        "import sys\nfrom nnapi_prof.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as ended:\n    print(ended.code, 'torch' in sys.modules)"
    )
    assert python("-c", code, *words, check=True).stdout.splitlines()[-1] == "0 False"
