"""What commands write: ``--json``'s one document, progress, and the time left."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from nnapi_prof import errors
from nnapi_prof.cli.output import Output
from nnapi_prof.cli.progress import BUILDING, Board, Durations, TimeLeft, in_words
from nnapi_prof.documents import schemas
from nnapi_prof.errors import BuildError
from nnapi_prof.execution.profile import Progress
from nnapi_prof.graph.plan import Engine, Target
from nnapi_prof.toolchain import build_steps, build_steps_said, run_tool
from tests.cli.common import (
    INPUT,
    SIM,
    TinyNet,
    on_a_terminal,
    python,
    raises,
    shift_reference,
    trace,
)
from tests.documents.common import check
from tests.processes import is_running, wait_until


def covered(plan: dict[str, Any]) -> list[int]:
    return sorted(unit for segment in plan["segments"] for unit in segment["units"])


def test_profile(cli, profiled):
    asked = (*profiled.named, "--preference", "fast", profiled.model)
    document = cli.document("profile", *asked)
    assert document["simulated"] and document["costs"] == str(profiled.costs)
    assert not document["interrupted"] and document["effort"]["stable"]
    assert document["n_measured"] == 0 and document["n_reused"] > 0
    assert covered(document["plan"]) == list(range(len(document["units"])))
    assert all(unit["costs_ns"]["cpu"] > 0 for unit in document["units"])
    best = document["plan"]["predicted_ns"]
    assert document["baselines"] and all(p["predicted_ns"] >= best for p in document["baselines"])
    shown = cli("profile", *asked)
    assert f"{best / 1e6:.3f}" in shown.out and document["units"][0]["label"] in shown.out


def test_partition_and_run(cli, profiled, tmp_path):
    bundle = tmp_path / "made.nnprof"
    result = cli.ok("partition", *profiled.named, "-o", bundle, profiled.model, "--json")
    planned = result.document("partition")
    assert f"bundle in {bundle}" in result.err and planned["bundle"] == str(bundle)
    assert planned["simulated"] and not planned["estimated"]
    assert planned["conditions"]["threads"] == 4 and planned["inputs"] == [INPUT]
    assert covered(planned["plan"]) == list(range(len(planned["units"])))
    for segment in planned["plan"]["segments"]:
        assert segment["cause"] and Target(segment["target"]).engine in Engine
    assert "all-cpu" in {plan["name"] for plan in planned["baselines"]}

    ran = cli.document("run", *SIM, bundle, "--runs", 7)
    assert ran["agrees"] and ran["outputs"][0]["ok"] and ran["simulated"]
    assert Path(ran["result"]).parent == bundle and json.loads(Path(ran["result"]).read_text())
    first = ran["plans"][0]
    assert first["plan"] == planned["plan"]
    assert len(first["total_ns"]) == 7 and first["median_ns"] == sorted(first["total_ns"])[3]
    targets = [s["target"] for s in planned["plan"]["segments"]]
    assert [s["target"] for s in first["segments"]] == targets


def test_outputs_that_differ_are_a_result_and_a_failure(cli, profiled, monkeypatch):
    """The one document is the run's, not that of the error; the exit code and stderr tell it."""
    shift_reference(monkeypatch)
    result = cli("run", *SIM, profiled.bundle, "--json", "--no-baselines")
    document = result.document("run")
    relative = document["outputs"][0]["relative"]
    assert (result.code, result.error) == (
        1,
        f"output clone_1 differs from eager PyTorch by {relative:.2e} of its largest value, 1e-04"
        " is allowed: `nnapi-prof bisect` finds the operation at fault; give a larger --tolerance"
        " if that is accurate enough",
    )
    assert not document["agrees"] and [each["ok"] for each in document["outputs"]] == [False]
    assert len(document["plans"]) == 1


def test_convert(cli, profiled, tmp_path):
    asked = ("--input", INPUT, "-o", tmp_path / "net", "--format", "json", "--format", "cpp")
    result = cli.document("convert", *asked, profiled.model)
    actual = {
        Path(each["file"]).name: (each["format"], each["n_bytes"]) for each in result["files"]
    }
    formats = {"json": "json", "h": "cpp", "cpp": "cpp", "weights": "weights"}
    assert actual == {
        f"net.{ending}": (form, (tmp_path / f"net.{ending}").stat().st_size)
        for ending, form in formats.items()
    }
    described = json.loads((tmp_path / "net.json").read_text())
    assert result["regions"] == [{"n_operations": len(described["operations"])}]
    assert (result["cpu_units"], result["kept"], result["precision"]) == (0, [], [])

    asked = ("--format", "runtime", "-o", tmp_path / "b")
    result = cli.document("convert", profiled.bundle, *asked)
    assert result["source"] == str(profiled.bundle) and result["formats"] == ["runtime"]
    assert [Path(each["file"]).name for each in result["files"]] == ["b.nnprt"]


def test_convert_in_parts_and_less_precision(cli, tmp_path):
    odd = trace(TinyNet(lambda x: torch.special.gammaln(x + 2)), tmp_path / "odd.pt")
    result = cli.document("convert", "--input", INPUT, odd)
    (on_host,) = result["kept"]
    assert on_host["label"].startswith("lgamma") and "cannot run" in on_host["reason"]
    assert result["cpu_units"] >= 1 and len(result["regions"]) == 2
    refused = cli("convert", "--input", INPUT, "--whole", odd, "--json")
    assert refused.code == 1 and refused.document("error")["kind"] == "NnapiProfError"
    assert "Stays on the CPU" in refused.err

    whole = trace(TinyNet(), tmp_path / "whole.pt")
    result = cli.document("convert", "--input", INPUT, whole, "--float16")
    assert 0 < result["precision"][0]["relative"] < 2e-2
    result = cli.document("convert", "--input", "1x3x?x16", whole)
    (size,) = result["open_sizes"]
    assert (size["input"], size["dim"]) == (0, 2) and size["least"] < 16 < size["most"]


@pytest.mark.parametrize(
    ("line", "code", "kind"),
    [
        ("profile absent.pt --device sim:npu-phone", 2, "ModelFileError"),
        ("agent info --device sim:no-such-phone", 1, "DeviceNotFound"),
        *((line, 2, "UsageError") for line in (
            "frobnicate", "run --frobnicate", "run absent.nnprof", "devices -q -v",
            "costs list --costs absent.sqlite", "", "costs",
        )),
    ],
)  # fmt: skip
def test_a_failure_is_a_document_too(cli, line, code, kind):
    arguments = line.split()
    result = cli("--json", *arguments)
    document = result.document("error")
    assert (result.code, document["exit_code"], document["kind"]) == (code, code, kind)
    assert issubclass(getattr(errors, kind), errors.NnapiProfError)
    plain = cli(*arguments)
    assert plain.out == ""  # without --json standard output stays empty
    if line in ("", "costs"):  # these show the help instead of a line
        assert f"Usage: nnapi-prof {line}" in plain.err
    else:
        assert document["message"] == result.error


def test_an_interrupt_and_a_mistake_of_ours_are_documents(cli, monkeypatch, capsys):
    interrupt = raises(KeyboardInterrupt())
    monkeypatch.setattr("nnapi_prof.device.find.list_devices", interrupt)
    result = cli("devices", "--json")
    assert (result.code, result.document("error")["kind"]) == (130, "Interrupted")
    monkeypatch.setattr("nnapi_prof.device.find.list_devices", lambda: [None])
    with pytest.raises(TypeError):
        cli("devices", "--json")
    document = json.loads(capsys.readouterr().out)
    check(document, "error")
    assert document["kind"] == "InternalError" and document["message"].startswith("TypeError: ")


def test_quiet_and_verbose(cli, profiled):
    run = ("run", *SIM, profiled.bundle, "--no-baselines")
    usual, quiet, verbose = cli.ok(*run), cli.ok(*run, "--quiet"), cli.ok(*run, "-v")
    # Short work is silent.
    assert usual.err.splitlines() == [f"result in {profiled.bundle / 'run.json'}"]
    assert quiet.err == "" and quiet.out.startswith("tiny")
    failed = cli("-q", "run", "absent.nnprof")
    assert failed.code == 2 and failed.err == f"nnapi-prof: error: {failed.error}\n"
    assert verbose.out.splitlines()[0] == usual.out.splitlines()[0]
    lines = [line for line in verbose.err.splitlines() if line.startswith("debug: ")]
    assert len(lines) >= 3
    assert all(re.match(r"debug: +\d+\.\d{3} s [a-z_.]+: \S", line) for line in lines)


@pytest.mark.parametrize("name", schemas())
def test_a_damaged_document_is_refused(name):
    """Every schema requires all it names: taking one away or giving it a wrong type is seen."""
    schema = schemas()[name]
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    assert schema["required"] == list(schema["properties"])
    missing = {error.message for error in validator.iter_errors({"schema": schema["$id"]})}
    assert len(missing) == len(schema["required"]) - 1
    wrong = {key: object() for key in schema["required"]}
    broken = {error.path[0] for error in validator.iter_errors(wrong)}
    assert broken == set(schema["required"])


def test_nothing_else_is_on_standard_output():
    """In a process of its own, where C libraries could write there, too."""
    done = python("-W", "error", "-m", "nnapi_prof", "devices", "--json", check=True)
    assert json.loads(done.stdout)["schema"] == "nnapi-prof/devices/1" and done.stderr == ""
    output = Output(as_json=True)
    output.print_document({"schema": "nnapi-prof/devices/1"})
    with pytest.raises(RuntimeError, match="a second document: nnapi-prof/run/1"):
        output.print_document({"schema": "nnapi-prof/run/1"})


class Clock:
    """Seconds that pass when they are told to."""

    s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_time_left_by_what_is_done(clock):
    left = TimeLeft(clock)
    assert left.seconds(Progress("units", 0, 100, "")) is None
    clock.s += 50  # the model is read, the first request built: that comes once
    assert left.seconds(Progress("units", 1, 100, "")) is None
    clock.s += 10
    assert left.seconds(Progress("units", 11, 100, "")) == pytest.approx(89)
    assert left.seconds(Progress("units", 11, 100, "", later=40)) == pytest.approx(89 + 40)
    told = {0.2: "0:00", 7.4: "0:07", 80: "1:20", 3720: "1:02:00"}
    assert {seconds: in_words(seconds) for seconds in told} == told


def test_time_left_over_phases(clock):
    """A phase that has begun is judged by those before it, then by itself."""
    left = TimeLeft(clock)
    left.seconds(Progress("units", 1, 11, "", later=10))
    clock.s += 20
    assert left.seconds(Progress("units", 11, 11, "", later=10)) == pytest.approx(20)
    assert left.seconds(Progress("chains", 0, 10, "")) == pytest.approx(20)
    assert left.seconds(Progress("chains", 1, 10, "")) == pytest.approx(18)
    clock.s += 8
    assert left.seconds(Progress("chains", 2, 10, "")) == pytest.approx(64)
    clock.s += 56
    left.seconds(Progress("chains", 9, 10, ""))
    # 84 s for 18 parts so far; nothing of the last phase is known yet.
    assert left.seconds(Progress("regions", 0, 3, "")) == pytest.approx(3 * 84 / 18)


def test_durations_are_remembered(tmp_path):
    file = tmp_path / "cache" / "durations.json"
    durations = Durations(file)
    assert durations.expected("reading a.pt") is None
    durations.remember("reading a.pt", 0.3)
    assert not file.exists()  # nobody waits for that
    durations.remember("reading a.pt", 7.25)
    assert Durations(file).expected("reading a.pt") == 7.25
    for number in range(250):
        durations.remember(f"reading {number}.pt", 2)
    assert durations.expected("reading a.pt") is None  # the oldest goes
    assert durations.expected("reading 249.pt") == 2
    file.write_text("[]")
    assert durations.expected("reading 249.pt") is None
    file.unlink()
    file.mkdir()
    durations.remember("reading a.pt", 7.25)  # a cache that cannot be written costs nothing


def test_a_line_for_each_long_phase(tmp_path, clock, caplog):
    board = Board(Durations(tmp_path / "durations.json"), clock)
    with caplog.at_level("INFO", "nnapi_prof"), board.shown():
        board.show(Progress("units", 0, 2, ""))
        clock.s += 31
        board.show(Progress("units", 1, 2, "conv"))
        board.show(Progress("units", 2, 2, "conv"))
        board.show(Progress("chains", 0, 5, ""))  # short: not worth a line
        clock.s += 1
        board.show(Progress("chains", 5, 5, ""))
        with board.working("reading a.pt"):
            clock.s += 60
        board.show(Progress("regions, round 1", 0, 9, ""))
        clock.s += 4
        board.show(Progress("regions, round 1", 3, 9, ""))  # interrupted
    assert caplog.messages == ["units: 2 in 31 s", "regions, round 1: 3 of 9 in 4 s"]


def test_a_long_build_says_each_minute_how_far_it_is(tmp_path, clock, caplog):
    board = Board(Durations(tmp_path / "durations.json"), clock)
    with caplog.at_level("INFO", "nnapi_prof"), board.shown():
        for done in range(0, 1051, 50):
            board.show(Progress(BUILDING, done, 1051, ""))
            clock.s += 20
    assert caplog.messages[:2] == ["compiling: 150 of 1051 files", "compiling: 300 of 1051 files"]
    assert len(caplog.messages) == 8


def lines_of(written: str) -> list[str]:
    """The lines without what moves the cursor and colours them."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written))


SLOW = """
import time
from nnapi_prof.cli.output import LOGGER, Output
from nnapi_prof.cli import progress
from nnapi_prof.execution.profile import Progress
output = Output()
output.quiet = {quiet}
progress.current = lambda: output
with output.logging(), progress.listening() as listener:
    if output.quiet:
        LOGGER.setLevel("ERROR")  # as --quiet does
    with listener.working("reading net.pt"):
        time.sleep(0.3)
    for done in range(21):
        listener.progress(Progress("units", done, 20, "conv2d 3x3 with a long label", later=20))
        time.sleep(0.08)
        if done == 12:
            listener.note("one is hot")
    listener.progress(Progress("chains", 0, 0, ""))
    listener.progress(Progress("regions, round 1", 1, 4, "interrupted here"))
"""


def test_bars_with_the_time_left(tmp_path):
    (tmp_path / "durations.json").write_text('{"reading net.pt": 5}')
    cache = {"NNAPI_PROF_CACHE_DIR": str(tmp_path)}
    lines = lines_of(on_a_terminal("-c", SLOW.format(quiet=False), **cache))
    assert max(map(len, lines)) <= 80
    assert any(re.match(r"reading net\.pt .* about 0:05 left", line) for line in lines)
    moving = [m for line in lines if (m := re.match(r"units .* (\d+)/20 +about 0:0(\d)", line))]
    # 0.08 s for each, 20 more after the phase: at its half, 2.4 s.
    at_half = [int(m[2]) for m in moving if 9 <= int(m[1]) <= 12]
    assert at_half and all(2 <= seconds <= 4 for seconds in at_half)
    assert sum(line == "note: one is hot" for line in lines) == 1
    assert not any(line.startswith("chains") for line in lines)  # nothing was to be done
    assert any(re.match(r"units .* 20/20 +0:0[12]", line) for line in lines)
    last = [line for line in lines if line.startswith("regions")][-1]
    assert "1/4" in last and "left" not in last
    assert not any(lines_of(on_a_terminal("-c", SLOW.format(quiet=True), **cache)))


@pytest.mark.slow
def test_a_profile_on_a_narrow_terminal(profiled, tmp_path):
    costs = ("--input", INPUT, "--costs", tmp_path / "new.sqlite", "--preference", "fast")
    command = ("-m", "nnapi_prof", "profile", *SIM, *costs, profiled.model)
    written = on_a_terminal(*command)
    assert any(re.match(r"(trial|units) +━+ (\d+)/\2", line) for line in lines_of(written))
    assert "\x1b[" in written and "Predicted latency in ms, simulated" in written
    plain = on_a_terminal(*command, NO_COLOR="1", TERM="dumb")
    assert "\x1b[" not in plain and "Predicted latency" in plain


def build(text: str) -> None:
    """A build of which this text of Python is the tool."""
    run_tool([sys.executable, "-u", "-c", text], "it failed")


def test_steps_of_a_build(monkeypatch):
    heard: list[tuple[int, int]] = []
    with build_steps(lambda done, of: heard.append((done, of))):
        build("print('-- configuring\\n[1/3] a.c\\n[3/3] link\\n[x/3]')")
    build("print('[2/3] b.c')")
    assert heard == [(1, 3), (3, 3)]
    monkeypatch.setattr("nnapi_prof.toolchain.SAID_EVERY_S", 0.0)
    text: list[str] = []
    with build_steps_said(text.append):
        build("print('[1/1051] a\\n[1051/1051] b')")
    assert text == ["1 of 1,051 files are compiled"]


def test_a_build_that_fails_hangs_or_is_interrupted(monkeypatch):
    with pytest.raises(BuildError, match=r"(?s)^it failed:\nfirst\nsecond$"):
        build("print('first\\nsecond'); exit(3)")
    monkeypatch.setattr("nnapi_prof.toolchain.SILENCE_TIMEOUT_S", 0.5)
    with pytest.raises(BuildError, match=r"^it failed: it said nothing for 0\.5 s; try again"):
        build("import time; time.sleep(60)")

    with pytest.raises(KeyboardInterrupt), build_steps(raises(KeyboardInterrupt())):
        build("import time; print('[1/2] a'); time.sleep(60)")


def test_a_build_that_goes_on_is_not_cut_off(monkeypatch):
    """However long it takes altogether: XNNPACK's 1,051 files took 40 minutes on a busy machine."""
    monkeypatch.setattr("nnapi_prof.toolchain.SILENCE_TIMEOUT_S", 1.5)
    build("import time\nfor i in range(8): print(f'[{i + 1}/8] a'); time.sleep(0.3)")


def test_a_build_that_is_stopped_takes_what_it_started_with_it(monkeypatch, tmp_path):
    """cmake starts ninja, ninja the compilers: to kill cmake alone leaves the machine busy."""
    monkeypatch.setattr("nnapi_prof.toolchain.SILENCE_TIMEOUT_S", 3.0)
    monkeypatch.setattr("nnapi_prof.toolchain.STOP_S", 1.0)
    mark = tmp_path / "child"
    child = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with pytest.raises(BuildError, match="said nothing"):
        build(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    wait_until(lambda: not is_running(int(mark.read_text())))
