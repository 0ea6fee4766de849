"""--help, --version, and what is said of a command line that is none."""

import importlib
import inspect
import json
import re
import shlex
from pathlib import Path

import click
import pytest

import nnapi_prof as np_
from nnapi_prof.cli import cli as root
from nnapi_prof.cli import commands
from nnapi_prof.cli.command import HELP, REMOVED
from nnapi_prof.cli.output import Output
from nnapi_prof.documents import COMMANDS, plugins, schemas
from nnapi_prof.options import default_of, options_of
from tests.cli.common import python, start_program

ROOT = Path(__file__).resolve().parent.parent.parent


def command_of(name: str) -> click.Command:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    return command


def test_help_lists_every_command(cli):
    for ask in ("--help", "-h"):
        result = cli.ok(ask)
        assert result.err == ""
        listed = re.findall(r"^  (\w+)  ", result.out, re.MULTILINE)
        assert listed == list(commands())


@pytest.mark.parametrize("name", commands())
def test_help_of_a_command_explains_all_its_options(cli, name):
    command = command_of(name)
    assert command.name == name
    result = cli.ok(name, "--help")
    assert result.err == ""
    assert f"Usage: nnapi-prof {name} [OPTIONS]" in result.out
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            assert parameter.make_metavar(click.Context(command, **HELP)) in result.out
        else:
            assert parameter.help, f"{name} {parameter.opts} is not explained"
            assert all(f"{option}" in result.out for option in parameter.opts)
    assert command.help and command.help.split("\n")[0] in result.out


def test_version(cli):
    result = cli.ok("--version")
    assert result.err == ""
    first, second = result.out.splitlines()
    assert first == f"nnapi-prof {np_.__version__}"
    assert second.startswith("Python 3.") and "torch 2." in second
    document = cli("--version", "--json").document("version")
    assert document["version"] == np_.__version__ and document["packages"]["numpy"] in second


def test_schema(cli):
    result = cli("schema")
    listed = cli.document("schema")["documents"]
    assert [row["name"] for row in listed] == list(schemas())
    assert all(row["id"] in result.out and row["title"] in result.out for row in listed)
    for asked in (["run"], ["costs-list"], ["costs", "list"], ["run", "--json"]):
        name = "-".join(word for word in asked if word != "--json")
        assert json.loads(cli("schema", *asked).out) == schemas()[name]


def test_without_arguments_the_help_is_shown(cli):
    result = cli()
    assert result.code == 2
    assert "Usage: nnapi-prof [OPTIONS] COMMAND" in result.err


@pytest.mark.parametrize("words", REMOVED)
def test_what_was_removed_names_its_replacement(cli, words):
    result = cli(*words.split(), "x")
    assert result.code == 2 and result.out == ""
    assert result.error == f"`{words}` was removed: {REMOVED[words]}"
    assert cli("--json", *words.split()).document("error")["exit_code"] == 2
    if named := re.search(r"`nnapi-prof (\w+)", REMOVED[words]):
        assert named[1] in commands()


def test_the_module_is_the_command():
    """``python -m nnapi_prof``: a process of its own, with its exit code."""
    done = python("-W", "error", "-m", "nnapi_prof", "run", "no-such.nnprof", cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "nnapi-prof: error: bundle no-such.nnprof does not exist:"
        " `nnapi-prof partition` makes one\n",
    )


def test_a_reader_that_goes_away_is_no_error():
    """As `nnapi-prof devices | head -0`: the pipe is closed before anything is written."""
    process = start_program("devices")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    with process.stderr as words:
        assert words.read() == ""
    assert process.wait(60) == 1


def leaves() -> list[tuple[str, click.Command]]:
    """Every command that does something, with the words that call it."""
    items: list[tuple[str, click.Command]] = []
    for name in commands():
        command = command_of(name)
        if isinstance(command, click.Group):
            items += [(f"{name} {sub}", each) for sub, each in command.commands.items()]
        else:
            items.append((name, command))
    return items


@pytest.mark.parametrize(("words", "command"), leaves(), ids=[words for words, _ in leaves()])
def test_every_command_is_like_the_others(words, command):
    options = {option for each in command.params for option in each.opts}
    assert {"--json", "-q", "--quiet", "-v", "--verbose"} <= options
    assert ("-o" in options) == ("--output" in options)
    context = click.Context(
        command, info_name=words, max_content_width=80, terminal_width=80, **HELP
    )
    text = command.get_help(context)
    assert "RANGE" not in text and max(map(len, text.splitlines())) <= 100
    assert command.get_short_help_str(limit=200).endswith(".")
    for option in command.params:
        has_default = isinstance(option.default, int | float | str) and not isinstance(
            option.default, bool
        )
        if isinstance(option, click.Option) and has_default:
            told = "default" in (option.help or "").lower() or option.show_default
            assert told, f"{words} {option.opts} does not say its default"


@pytest.mark.parametrize(("words", "command"), leaves(), ids=[words for words, _ in leaves()])
def test_examples_parse(words, command):
    """Each is of this command and has no option that it does not know."""
    examples = getattr(command, "examples", ())
    assert examples, f"`nnapi-prof {words} --help` has no example"
    for line in examples:
        told = line.partition("   #")[0]
        call = told[told.index("nnapi-prof ") :].partition(" > ")[0].rstrip(")")
        _program, *arguments = shlex.split(call)
        assert arguments[: len(words.split())] == words.split()
        context = click.Context(command, obj=Output(), **HELP)
        with context:
            command.make_context(words, arguments[len(words.split()) :], parent=context)


def test_every_command_of_a_module_is_found():
    """A module's docstring names its commands: nothing else lists them."""
    paths = (ROOT / "nnapi_prof" / "cli").glob("[a-z]*.py")
    modules = [f"nnapi_prof.cli.{path.stem}" for path in paths]
    modules += plugins(COMMANDS).values()
    defined = {
        each
        for module in modules
        for each in vars(importlib.import_module(module)).values()
        if isinstance(each, click.Command)
    }
    for group in [each for each in defined if isinstance(each, click.Group)]:
        defined -= set(group.commands.values())
    assert {each.name for each in defined} == set(commands())
    assert all(line.endswith(".") for line in commands().values())


# ---- options and the arguments of functions ------------------------------------------------------


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
def test_options_are_arguments(name, functions):
    defaults = {
        argument.name: None if argument.default is argument.empty else argument.default
        for function in reversed(functions)
        for argument in inspect.signature(function).parameters.values()
    }
    for cls in OBJECTS.get(name, ()):
        defaults |= {field: default_of(cls, field) for field in options_of(cls)}
    for option in command_of(name).params:
        assert option.name is not None
        if isinstance(option, click.Argument) or option.name in {*OWN[name], *OF_DEVICE}:
            continue
        if not option.expose_value:
            continue
        argument = RENAMED.get(option.name, option.name)
        assert argument in defaults, f"{name} takes {option.opts}"
        assert (option.to_info_dict()["default"] or None) == (defaults[argument] or None), argument


def test_what_is_known_is_told_without_pytorch(profiled):
    words = ("profile", *profiled.named, "--preference", "fast", "--no-refine", profiled.model)
    code = (
        "import sys\nfrom nnapi_prof.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as ended:\n    print(ended.code, 'torch' in sys.modules)"
    )
    assert python("-c", code, *words, check=True).stdout.splitlines()[-1] == "0 False"
