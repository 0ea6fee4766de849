"""Progress: the time left, lines where nobody watches, bars on a terminal."""

import re
import sys

import pytest

from nnapi_prof.cli.output import Output
from nnapi_prof.cli.progress import BUILDING, Board, Durations, TimeLeft, in_words
from nnapi_prof.errors import BuildError
from nnapi_prof.execution.profile import Progress
from nnapi_prof.toolchain import build_steps, build_steps_said, run_tool
from tests.cli.common import INPUT, SIM, on_a_terminal
from tests.processes import is_running, wait_until


class Clock:
    """Seconds that pass when they are told to."""

    s = 100.0

    def __call__(self) -> float:
        return self.s


# ---- how long it will take ----------------------------------------------------------------------


def test_time_left_by_what_is_done():
    clock = Clock()
    left = TimeLeft(clock)
    assert left.seconds(Progress("units", 0, 100, "")) is None
    clock.s += 50  # the model is read, the first request built: that comes once
    assert left.seconds(Progress("units", 1, 100, "")) is None
    clock.s += 10
    assert left.seconds(Progress("units", 11, 100, "")) == pytest.approx(89)
    assert left.seconds(Progress("units", 11, 100, "", later=40)) == pytest.approx(89 + 40)


def test_time_left_over_phases():
    """A phase that has begun is judged by those before it, then by itself."""
    clock = Clock()
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


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "0:00"), (7.4, "0:07"), (80, "1:20"), (3720, "1:02:00")]
)
def test_in_words(seconds, words):
    assert in_words(seconds) == words


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


# ---- where standard error is no terminal ---------------------------------------------------------


def test_a_line_for_each_long_phase(tmp_path, caplog):
    clock = Clock()
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


def test_a_long_build_says_each_minute_how_far_it_is(tmp_path, caplog):
    clock = Clock()
    board = Board(Durations(tmp_path / "durations.json"), clock)
    with caplog.at_level("INFO", "nnapi_prof"), board.shown():
        for done in range(0, 1051, 50):
            board.show(Progress(BUILDING, done, 1051, ""))
            clock.s += 20
    assert caplog.messages[:2] == ["compiling: 150 of 1051 files", "compiling: 300 of 1051 files"]
    assert len(caplog.messages) == 8


def test_short_work_is_silent(cli, profiled):
    result = cli.ok("run", *SIM, profiled.bundle)
    assert result.err.splitlines() == [f"result in {profiled.bundle / 'run.json'}"]


# ---- on a terminal -------------------------------------------------------------------------------


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
    written = on_a_terminal("-c", SLOW.format(quiet=False), NNAPI_PROF_CACHE_DIR=str(tmp_path))
    lines = lines_of(written)
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


def test_quiet_on_a_terminal(tmp_path):
    written = on_a_terminal("-c", SLOW.format(quiet=True), NNAPI_PROF_CACHE_DIR=str(tmp_path))
    assert [line for line in lines_of(written) if line] == []


@pytest.mark.slow
def test_a_profile_on_a_narrow_terminal(profiled, tmp_path):
    costs = ("--input", INPUT, "--costs", tmp_path / "new.sqlite", "--preference", "fast")
    command = ("-m", "nnapi_prof", "profile", *SIM, *costs, profiled.model)
    written = on_a_terminal(*command)
    assert any(re.match(r"(trial|units) +━+ (\d+)/\2", line) for line in lines_of(written))
    assert "\x1b[" in written and "Predicted latency in ms, simulated" in written
    plain = on_a_terminal(*command, NO_COLOR="1", TERM="dumb")
    assert "\x1b[" not in plain and "Predicted latency" in plain


# ---- builds --------------------------------------------------------------------------------------


def build(text: str) -> None:
    """A build of which this text of Python is the tool."""
    run_tool([sys.executable, "-u", "-c", text], "it failed")


def test_steps_of_a_build():
    heard: list[tuple[int, int]] = []
    with build_steps(lambda done, of: heard.append((done, of))):
        build("print('-- configuring\\n[1/3] a.c\\n[3/3] link\\n[x/3]')")
    build("print('[2/3] b.c')")
    assert heard == [(1, 3), (3, 3)]


def test_a_build_that_fails_or_hangs(monkeypatch):
    with pytest.raises(BuildError, match=r"(?s)^it failed:\nfirst\nsecond$"):
        build("print('first\\nsecond'); exit(3)")
    monkeypatch.setattr("nnapi_prof.toolchain.SILENCE_TIMEOUT_S", 0.5)
    with pytest.raises(BuildError, match=r"^it failed: it said nothing for 0\.5 s; try again"):
        build("import time; time.sleep(60)")


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


def test_a_build_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr("nnapi_prof.toolchain.SAID_EVERY_S", 0.0)
    text: list[str] = []
    with build_steps_said(text.append):
        build("print('[1/1051] a\\n[1051/1051] b')")
    assert text == ["1 of 1,051 files are compiled"]


def test_a_reader_of_steps_that_raises_stops_the_build():
    def interrupt(_: int, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), build_steps(interrupt):
        build("import time; print('[1/2] a'); time.sleep(60)")


def test_one_document():
    output = Output(as_json=True)
    output.print_document({"schema": "nnapi-prof/devices/1"})
    with pytest.raises(RuntimeError, match="a second document: nnapi-prof/run/1"):
        output.print_document({"schema": "nnapi-prof/run/1"})
