"""Tables as CSV: what pandas reads back is what was written, and every column is explained."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from nnapi_prof.reports import frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.tables import COLUMNS, READ, README, TABLES, write
from tests.reports.sample import hot, measured_on_hardware, sample

NAMES = {table.name for table in TABLES}
EVIL = 'a,"b"\r\nc\rd;=1+1\te '
OWN_SIMULATED = ("simulated", "predicted_simulated", "measured_simulated")


@pytest.fixture(scope="module")
def data() -> ReportData:
    sample_ = sample(10, (4,))
    return replace(sample_, measurements=hot(sample_.measurements))


@pytest.fixture(scope="module")
def folder(data: ReportData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "new" / "folder"
    write(path, data)
    return path


def read(path: Path) -> pd.DataFrame:
    """By the call that the README names."""
    result = eval(READ, {"pandas": pd, "path": path})
    assert isinstance(result, pd.DataFrame)
    return result


def same(read_back: pd.DataFrame, made: pd.DataFrame) -> None:
    """Cell by cell: numbers to pandas' last bit, unknown for unknown, lists as their words."""
    assert list(read_back.columns) == list(made.columns)
    assert len(read_back) == len(made)
    for name in made.columns:
        for got, want in zip(read_back[name], made[name], strict=True):
            if isinstance(want, tuple):
                assert str("" if pd.isna(got) else got) == " ".join(map(str, want))
            elif want is None or want == "" or pd.isna(want):
                assert pd.isna(got), (name, got, want)
            elif isinstance(want, str):
                assert str(got) == want, (name, got, want)
            elif isinstance(want, float):
                assert got == pytest.approx(want, rel=1e-15), (name, got, want)  # its last bit
            else:
                assert got == want, (name, got, want)


def test_writes_one_file_for_each_frame_and_says_which(data: ReportData, tmp_path: Path) -> None:
    paths = write(tmp_path, data)
    assert [path.name for path in paths] == [*(f"{t.name}.csv" for t in TABLES), README]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_pandas_reads_back_what_was_written(data: ReportData, folder: Path, name: str) -> None:
    table = next(table for table in TABLES if table.name == name)
    frame = table.frame(data)
    assert len(frame)
    same(read(folder / f"{name}.csv"), frame)


def test_every_frame_of_frames_is_there_whole(data: ReportData, folder: Path) -> None:
    assert data.run is not None
    every = {
        "plans": frames.baseline_frame(data.plans, data.run, data.permutes),
        "timings": frames.segment_frame(data.run.runs),
        "units": frames.unit_frame(data.cost_model),
        "refusals": frames.refusal_frame(data.cost_model),
        "measurements": frames.measurement_frame(data.own_measurements),
        "residuals": frames.residual_frame(data.cost_model),
        "cost_model": frames.fit_frame(data.cost_model),
    }
    for name, frame in every.items():
        same(read(folder / f"{name}.csv")[list(frame.columns)], frame)
    segments = read(folder / "segments.csv")
    for plan in data.plans:
        frame = frames.plan_frame(plan, data.graph)
        own = segments[segments["plan"] == plan.name].reset_index(drop=True)
        same(own[list(frame.columns)], frame)


def test_samples_are_the_raw_runs(data: ReportData, folder: Path) -> None:
    assert data.run is not None
    result = read(folder / "samples.csv")
    for run in data.run.runs:
        own = result[result["plan"] == run.plan.name]
        assert [round(ms * 1e6) for ms in own["measured_ms"]] == list(run.total_ns)


def test_latencies_stand_beside_whether_they_are_simulated(
    data: ReportData, folder: Path, tmp_path: Path
) -> None:
    real = measured_on_hardware(data)
    plans = tuple(replace(plan, simulated=False) for plan in real.baselines)
    rows = tuple(replace(row, simulated=False) for row in real.measurements)
    write(tmp_path, replace(real, baselines=plans, measurements=rows))
    assert "simulated phone, not from" in (folder / README).read_text()
    assert "simulated phone, not from" not in (tmp_path / README).read_text()
    for name in NAMES:
        columns = list(read(folder / f"{name}.csv").columns)
        marks = [column for column in columns if column in OWN_SIMULATED]
        latencies = [column for column in columns if column.endswith(("_ms", "mhz_before"))]
        assert bool(marks) == bool(latencies), name
        for mark in marks:
            assert read(folder / f"{name}.csv")[mark].all()
            assert not read(tmp_path / f"{name}.csv")[mark].any()


def test_the_readme_explains_each_column_of_each_file(folder: Path) -> None:
    explained: dict[str, list[str]] = {}
    name = ""
    for line in (folder / README).read_text(encoding="utf-8").splitlines():
        if line.endswith(tuple(table.about for table in TABLES)):
            name = line.partition(".csv: ")[0]
            explained[name] = []
        elif name and line.startswith("  "):
            column, _, meaning = line.strip().partition(": ")
            assert meaning == COLUMNS[column]
            explained[name].append(column)
    assert explained == {n: list(read(folder / f"{n}.csv").columns) for n in explained}
    assert set(explained) == NAMES
    assert set(COLUMNS) == {column for columns in explained.values() for column in columns}


def test_columns_with_a_unit_say_it_in_name_and_meaning() -> None:
    for name, meaning in COLUMNS.items():
        if name.endswith("_ms"):
            assert meaning.endswith(", ms"), name
        assert name.endswith("_ms") or not meaning.endswith(", ms"), name
        assert ("bytes" in name) == meaning.startswith("bytes"), name


def test_before_a_run_tables_of_runs_are_empty_with_their_columns(
    data: ReportData, tmp_path: Path
) -> None:
    write(tmp_path, replace(data, run=None))
    for name in ("timings", "samples", "outputs"):
        result = read(tmp_path / f"{name}.csv")
        assert len(result) == 0 and len(result.columns) > 3
    assert read(tmp_path / "plans.csv")["measured_simulated"].isna().all()


@pytest.mark.parametrize("word", [EVIL, "NA", "null", "nan", "1.0", "-", "None"])
def test_any_word_survives(data: ReportData, tmp_path: Path, word: str) -> None:
    units = tuple(replace(u, label=word, name=f"{word} {u.index}") for u in data.graph.units)
    graph = replace(data.graph, units=units)
    plan = replace(data.plan, segments=tuple(replace(s, why=word) for s in data.plan.segments))
    poisoned = replace(
        data, graph=graph, plan=plan, model=word, cost_model=replace(data.cost_model, graph=graph)
    )
    write(tmp_path, poisoned)
    with (tmp_path / "units.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["label"] for row in rows} == {word}
    with (tmp_path / "segments.csv").open(newline="", encoding="utf-8") as file:
        assert {r["cause"] for r in csv.DictReader(file) if r["plan"] == plan.name} == {word}


def test_a_folder_that_cannot_be_made_is_an_os_error(data: ReportData, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write(tmp_path / "file", data)
