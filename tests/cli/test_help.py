"""--help, --version, the options of functions, and completion in a shell."""

import importlib
import inspect
import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import click
import pytest

import nnapi_prof as np_
from nnapi_prof.cli import cli as root
from nnapi_prof.cli import commands
from nnapi_prof.cli.command import HELP, REMOVED
from nnapi_prof.cli.doctor import SHELLS
from nnapi_prof.cli.output import Output
from nnapi_prof.device.find import list_phones
from nnapi_prof.documents import COMMANDS, plugins, schemas
from nnapi_prof.options import default_of, options_of
from tests import warm
from tests.cli.common import Cli, python, start_program

ROOT = Path(__file__).resolve().parent.parent.parent


def command_of(name: str) -> click.Command:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    return command


@pytest.mark.parametrize("ask", ["--help", "-h"])
def test_help_lists_every_command(cli, ask):
    result = cli.ok(ask)
    listed = re.findall(r"^  (\w+)  ", result.out, re.MULTILINE)
    assert result.err == "" and listed == list(commands())


@pytest.mark.parametrize("name", commands())
def test_help_of_a_command_explains_all_its_options(cli, name):
    command, result = command_of(name), cli.ok(name, "--help")
    assert command.name == name and result.err == ""
    assert f"Usage: nnapi-prof {name} [OPTIONS]" in result.out
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            assert parameter.make_metavar(click.Context(command, **HELP)) in result.out
        else:
            assert parameter.help, f"{name} {parameter.opts} is not explained"
            assert all(option in result.out for option in parameter.opts)
    assert command.help and command.help.split("\n")[0] in result.out


def test_version(cli):
    result = cli.ok("--version")
    first, second = result.out.splitlines()
    assert result.err == "" and first == f"nnapi-prof {np_.__version__}"
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
    done = python("-W", "error", "-m", "nnapi_prof", "schema", "no-such", cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"nnapi-prof: error: no document 'no-such'.*\n", done.stderr)


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
        subs = command.commands if isinstance(command, click.Group) else {"": command}
        items += [(f"{name} {sub}".strip(), each) for sub, each in subs.items()]
    return items


@pytest.mark.parametrize(("words", "command"), leaves(), ids=[words for words, _ in leaves()])
def test_every_command_is_like_the_others_and_its_examples_parse(words, command):
    """Each is of this command and has no option that it does not know."""
    options = {option for each in command.params for option in each.opts}
    assert {"--json", "-q", "--quiet", "-v", "--verbose"} <= options
    assert ("-o" in options) == ("--output" in options)
    narrow = {"max_content_width": 80, "terminal_width": 80}
    text = command.get_help(click.Context(command, info_name=words, **narrow, **HELP))
    assert "RANGE" not in text and max(map(len, text.splitlines())) <= 100
    assert command.get_short_help_str(limit=200).endswith(".")
    for option in command.params:
        if isinstance(option, click.Option) and type(option.default) in (int, float, str):
            told = "default" in (option.help or "").lower() or option.show_default
            assert told, f"{words} {option.opts} does not say its default"

    examples = getattr(command, "examples", ())
    assert examples, f"`nnapi-prof {words} --help` has no example"
    for line in examples:
        told = line.partition("   #")[0]
        call = told[told.index("nnapi-prof ") :].partition(" > ")[0].rstrip(")")
        n_words = 1 + len(words.split())
        arguments = shlex.split(call)
        assert arguments[1:n_words] == words.split()
        with click.Context(command, obj=Output(), **HELP) as context:
            command.make_context(words, arguments[n_words:], parent=context)


def test_every_command_of_a_module_is_found():
    """A module's docstring names its commands: nothing else lists them."""
    paths = (ROOT / "nnapi_prof" / "cli").glob("[a-z]*.py")
    modules = [*(f"nnapi_prof.cli.{path.stem}" for path in paths), *plugins(COMMANDS).values()]
    members = [each for name in modules for each in vars(importlib.import_module(name)).values()]
    defined = {each for each in members if isinstance(each, click.Command)}
    for group in [each for each in defined if isinstance(each, click.Group)]:
        defined -= set(group.commands.values())
    assert {each.name for each in defined} == set(commands())
    assert all(line.endswith(".") for line in commands().values())


OF_DEVICE = {"nnapi_library"}
"""Parts of the device's name in Python: ``device="SERIAL,library=PATH"``."""
RENAMED = {"device_spec": "device", "stated": "sizes", "fingerprint": "device"}
"""Where the option's own name means another thing in Python."""


@pytest.mark.parametrize(
    ("name", "functions", "classes", "own"),
    [
        ("profile", (np_.load, np_.profile),
         (np_.ConditionOptions, np_.MeasureOptions, np_.Gates), ()),
        ("partition", (np_.load, np_.read_costs, np_.partition),
         (np_.ConditionOptions, np_.Latency, np_.Within, np_.Parallel, np_.Throughput),
         ("output", "no_verify", "estimate", "objective", "parallel")),
        ("go", (np_.load, np_.go), (np_.ConditionOptions,), ("output", "open_it")),
        ("run", (np_.run,), (), ("no_baselines", "against")),
        ("estimate", (np_.load, np_.estimate), (),  # chips: nnp.estimate_chips
         ("device", "device_spec", "calibration", "samples")),
        ("calibrate", (np_.calibrate,), (np_.ConditionOptions,), ("output",)),
    ],
)  # fmt: skip
def test_options_are_arguments(name, functions, classes, own):
    """Fields of the classes are, too; a command's own are where a file goes, what is shown, several
    calls, and flags that take an argument back."""
    defaults = {
        argument.name: None if argument.default is argument.empty else argument.default
        for function in reversed(functions)
        for argument in inspect.signature(function).parameters.values()
    }
    for cls in classes:
        defaults |= {field: default_of(cls, field) for field in options_of(cls)}
    for option in command_of(name).params:
        is_own = option.name in {*own, *OF_DEVICE} or isinstance(option, click.Argument)
        if is_own or not option.expose_value:
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


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts(cli, shell):
    result, document = cli.ok("completion", shell), cli.document("completion", shell)
    assert result.err == "" and "nnapi-prof" in result.out and "_NNAPI_PROF_COMPLETE" in result.out
    assert (document["shell"], document["script"]) == (shell, result.out.strip())


@pytest.fixture
def home(tmp_path: Path, cli: Cli) -> Path:
    """A folder with the script, an executable nnapi-prof, models and a bundle."""
    for folder in ("bin", "done.nnprof", "models"):
        (tmp_path / folder).mkdir()
    program = tmp_path / "bin" / "nnapi-prof"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(warm.python())} -m nnapi_prof "$@"\n')
    program.chmod(0o755)
    (tmp_path / "script").write_text(cli("completion", "bash").out)
    for name in ("one.pt", "two.pt2", "notes.txt", "phone.json", ".hidden.pt", "a b.pt"):
        (tmp_path / name).touch()
    (tmp_path / "models" / "inner.pt").touch()
    return tmp_path


def environment(home: Path, line: str | None = None) -> dict[str, str]:
    """That of a shell, or of nnapi-prof when bash asks for completions of a line."""
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    asked = {"HOME": str(home), "TERM": "dumb", "ADB_SERVER_SOCKET": "tcp:1", "PATH": path}
    if line is not None:
        asked |= {"_NNAPI_PROF_COMPLETE": "bash_complete", "COMP_LINE": line}
    return {**os.environ, **asked}


def offered(home: Path, line: str) -> list[str]:
    """What bash's completion function replies to TAB at the end of a line."""
    ask = (
        'source ./script; COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; '
        '_nnapi_prof_completion nnapi-prof; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command, env = ["bash", "--norc", "-c", ask, "bash", line], environment(home)
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines() if done.stdout.strip() else []


@needs_bash
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("", list(commands())),
        ("pro", ["profile"]),
        ("agent ", ["build", "clean", "info", "push"]),
        ("run --no-b", ["--no-baselines"]),
        ("profile --mode ", ["sync", "burst", "async", "pointers"]),
        ("profile o", ["one.pt"]),
        ("profile ", ["a b.pt", "bin", "done.nnprof", "models", "one.pt", "two.pt2"]),
        ("profile models/", ["models/inner.pt"]),
        ("profile ~/models/", ["~/models/inner.pt"]),
        ("run d", ["done.nnprof"]),
        ("run nowhere/", []),
        ("schema lab-", ["lab-cancel", "lab-phones", "lab-profile", "lab-status", "lab-worker"]),
        # bash replaces only what stands behind a colon
        ("estimate --device qnn:SM8350,SM84", ["SM8350,SM8450", "SM8350,SM8475"]),
    ],
)
def test_commands_options_and_files(home, line, wanted):
    assert offered(home, f"nnapi-prof {line}") == wanted


@pytest.mark.slow
@needs_bash
def test_devices_and_phones(home):
    simulated = [f"sim:{name}" for name in list_phones()]
    assert offered(home, "nnapi-prof profile --device ") == ["local", *simulated]
    # bash replaces only what stands behind a colon.
    assert offered(home, "nnapi-prof profile --device sim:n") == ["npu-phone"]
    assert offered(home, "nnapi-prof profile --device=sim:n") == ["npu-phone"]
    assert offered(home, "nnapi-prof estimate --phone pi") == ["pixel4"]
    assert "phone.json" in offered(home, "nnapi-prof estimate --phone ")
    assert {"--json", "--quiet", "--verbose"} <= set(offered(home, "nnapi-prof devices --"))
    asked = environment(home, "nnapi-prof profile o")  # zsh and fish look for files themselves
    assert subprocess.check_output(["nnapi-prof"], env=asked, text=True) == "file,o\n"


def test_connected_phones(home, adb_server, start_daemon):
    phone = start_daemon()
    adb_server.connect(phone.serial)
    env = environment(home, "nnapi-prof run --device ")
    del env["ADB_SERVER_SOCKET"]  # the server's port is in another variable
    told = subprocess.check_output(["nnapi-prof"], env=env, text=True)
    assert f"plain,{phone.serial}" in told.splitlines()


@needs_bash
def test_a_real_bash_completes_at_tab(home):
    """Typed into an interactive bash on a terminal of its own, with all of readline."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(home)
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment(home))
    seen = b""
    try:
        for typed, words in (
            (b"PS1='ready> '; source ./script\n", b"\nready> "),
            (b"nnapi-prof prof\t", b"nnapi-prof profile "),
            (b"--device sim:np\t", b"--device sim:npu-phone "),
            (b"mod\t", b"models/"),
            (b"\t", b"models/inner.pt "),
        ):
            os.write(terminal, typed)
            until = time.monotonic() + 30
            while words not in seen:
                ready, _, _ = select.select([terminal], [], [], max(0.0, until - time.monotonic()))
                assert ready, seen
                seen += os.read(terminal, 4096)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def test_no_torch_is_loaded_at_tab(home):
    ask = (
        "import sys; sys.argv = ['nnapi-prof']; import atexit, json; "
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr)); "
        "from nnapi_prof.cli import main; main()"
    )
    done = python("-c", ask, env=environment(home, "nnapi-prof profile --device "))
    assert "plain,sim:npu-phone" in done.stdout
    heavy = {"torch", "pandas", "matplotlib", "sqlalchemy", "rich", "adb_shell"}
    assert not heavy & set(json.loads(done.stderr))
