"""The runs that a bundle keeps."""

from dataclasses import replace
from pathlib import Path

import pytest

from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.execution import report
from nnapi_prof.execution.report import RunReport, choose, every, keep, last

NPU = "simulated npu-phone (simulated phone, Android 11; NNAPI: sim-npu, sim-gpu)"


def run(time: str, device: str = NPU, fingerprint: str = "aa11") -> RunReport:
    is_simulated = device.startswith("simulated")
    return RunReport("m", device, fingerprint, is_simulated, f"{time}+00:00", (), ())


FIRST = run("2026-01-31T12:00:00")
SECOND = run("2026-01-31T13:00:00", "Pixel 6 (9A)", "bb22")
THIRD = run("2026-02-03T09:00:00")
RUNS = (FIRST, SECOND, THIRD)


def test_the_last_run_and_all_before_it(tmp_path: Path) -> None:
    assert last(tmp_path) is None and every(tmp_path) == ()
    for each in RUNS:
        assert keep(tmp_path, each) == tmp_path / "run.json"
        assert last(tmp_path) == each
    assert every(tmp_path) == RUNS
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "2026-01-31T12-00-00.json",
        "2026-01-31T13-00-00.json",
    ]


def test_runs_of_one_second_stay_apart_and_a_run_kept_twice_is_one(tmp_path: Path) -> None:
    runs = [replace(FIRST, notes=(str(n),)) for n in range(4)]
    for each in (runs[0], *runs):
        keep(tmp_path, each)
    assert every(tmp_path) == tuple(runs)


def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_KEPT", 2)
    runs = [run(f"2026-01-{day:02}T00:00:00") for day in range(1, 6)]
    for each in runs:
        keep(tmp_path, each)
    assert every(tmp_path) == tuple(runs[2:])


def test_a_bundle_of_before_there_was_a_history(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(FIRST.to_json())
    keep(tmp_path, SECOND)
    assert every(tmp_path) == (FIRST, SECOND)


def test_damaged_runs(tmp_path: Path) -> None:
    """tests/hostile has more of them."""
    (tmp_path / "run.json").write_text('{"runs": 3}')
    keep(tmp_path, FIRST)  # the damaged one is no run: it goes
    assert every(tmp_path) == (FIRST,)
    keep(tmp_path, SECOND)
    (earlier,) = (tmp_path / "runs").iterdir()
    earlier.write_bytes(b"\xff")
    assert last(tmp_path) == SECOND
    with pytest.raises(SerializationError, match=r"12-00-00\.json: .*remove the file"):
        every(tmp_path)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("2026-01-31", SECOND),
        ("2026-01-31T12:00:00", FIRST),
        ("2026-01-31T12:30", FIRST),
        ("2026-12-31", THIRD),
        ("npu-phone", THIRD),
        ("NPU", THIRD),
        ("Pixel*", SECOND),
        ("bb", SECOND),
        ("npu-phone@2026-02-01", FIRST),
        ("aa11@2026-02-03", THIRD),
    ],
)
def test_choosing(words: str, wanted: RunReport) -> None:
    assert choose(RUNS, words) is wanted


@pytest.mark.parametrize("words", ["2026-01-30", "gpu", "Pixel@2026-01-31T12:00:00"])
def test_none_that_fits(words: str) -> None:
    told = rf"fits '{words}': there are 2026-01-31T12:00:00 on .*T13:00:00 on Pixel 6 \(9A\)"
    with pytest.raises(UsageError, match=f"no run of the bundle {told}"):
        choose(RUNS, words)
