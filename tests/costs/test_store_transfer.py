"""CSV and Parquet: what goes out comes back exactly, and what cannot be is refused by its cell."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings

from nnapi_prof.costs.conditions import CONDITIONAL, Conditions, Mode
from nnapi_prof.costs.measurement import Kind, Measurement, Round, Statistic, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.files import COLUMNS, FILE_COLUMNS, Imported, export, frame, import_
from nnapi_prof.costs.store.schema import MEASUREMENTS
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import CostError, UsageError
from nnapi_prof.graph.plan import CPU, HOST, Preference, Target
from tests.costs.test_store import measurement

FORMATS = ["csv", "parquet"]
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
NS = st.integers(0, 10**16)
COUNT = st.integers(0, 2**31 - 1)
# As databases keep it: no NUL, no half surrogate pairs.
TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
HARD = st.sampled_from(["", '"', '""', '"x', "\r", "a\nb", "None", "nan", "NULL", ",;\t'", "1.0"])
TEXTS = TEXT | HARD
NAMES = st.text("abc-_ü/", min_size=1, max_size=8)
ROUNDS = st.builds(
    Round,
    COUNT,
    st.tuples(st.none() | INT32, st.none() | INT32),
    st.tuples(st.none() | INT32, st.none() | INT32),
    st.none() | st.booleans(),
    st.none() | COUNT,
)
TARGETS = st.sampled_from([CPU, HOST]) | st.builds(
    Target.nnapi, NAMES, st.sampled_from(list(Preference))
)


def several(values: st.SearchStrategy[Any], **sizes: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, **{"max_size": 5, **sizes}).map(tuple)


MEASURED = st.builds(
    Measurement,
    signature=NAMES,
    kind=st.sampled_from(list(Kind)),
    label=TEXTS,
    members=several(TEXTS),
    offsets=several(INT64),
    target=TARGETS,
    fingerprint=st.sampled_from(["phone", "other"]),
    agent_version=TEXTS,
    status=st.sampled_from(list(Status)),
    driver_version=TEXTS,
    conditions=st.builds(
        Conditions,
        st.sampled_from(CONDITIONAL),
        st.sampled_from(list(Mode)),
        st.integers(1, 64),
        st.sampled_from(["big", "all", "0xf0"]),
        st.integers(0, 3600),
    ),
    message=st.none() | TEXTS,
    samples_ns=several(NS, max_size=9),
    hardware_ns=several(NS),
    driver_ns=several(NS),
    beside=st.none() | TARGETS,
    alone_ns=several(NS),
    cpu_ns=several(NS),
    rounds=several(ROUNDS),
    warmup_runs=st.none() | INT32,
    warm=st.none() | st.booleans(),
    cpu_mask=st.none() | st.sampled_from(["", "f0"]),
    kernels_xnnpack=st.none() | INT32,
    kernels_portable=st.none() | INT32,
    memory=st.none() | st.sampled_from(["shared", "pointers", ""]),
    compile_ns=st.none() | NS,
    first_ns=st.none() | NS,
    n_operations=COUNT,
    input_bytes=COUNT,
    output_bytes=COUNT,
    operation=st.none() | st.sampled_from(["CONV_2D", ""]),
    element=st.none() | st.sampled_from(["float32", "quant8"]),
    kernel_class=st.none() | st.sampled_from(["CONV_2D 1x1/quant8", "ADD"]),
    macs=st.none() | COUNT,
    weight_bytes=st.none() | COUNT,
    pixels=st.none() | COUNT,
    width=st.none() | INT32,
    in_channels=st.none() | INT32,
    out_channels=st.none() | INT32,
    kernel=st.none() | INT32,
    stride=st.none() | INT32,
    n_inputs=st.none() | INT32,
    rank=st.none() | INT32,
    simulated=st.booleans(),
    clock=st.sampled_from(["monotonic", "simulated", ""]),
    cpu_khz_before=st.none() | INT32,
    cpu_khz_after=st.none() | INT32,
    thermal_mc_before=st.none() | INT32,
    thermal_mc_after=st.none() | INT32,
    rss_peak_kb=st.none() | INT32,
    skin_mc=st.none() | INT32,
    battery_percent=st.none() | INT32,
    charging=st.none() | st.booleans(),
    load_percent=st.none() | INT32,
    drift_percent=st.none() | INT32,
    statistic=st.just(Statistic.MEDIAN),
    measured_at=st.datetimes().map(lambda moment: f"{moment.isoformat()}+00:00"),
)


def test_every_field_is_drawn() -> None:
    """A field that is added to Measurement is added to the round trip."""
    drawn = next(iter([MEASURED])).wrapped_strategy.kwargs  # type: ignore[attr-defined]
    assert set(drawn) == {field.name for field in fields(Measurement)}


@pytest.mark.parametrize("suffix", FORMATS)
def test_all_that_a_table_can_hold_comes_back(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"costs.{suffix}"

    @settings(
        max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(MEASURED, max_size=4))
    def check(rows: list[Measurement]) -> None:
        with CostStore("sqlite://") as a, CostStore("sqlite://") as b:  # in memory
            n = a.add(*rows)
            assert export(a, file) == n
            assert import_(b, file).added == n
            assert without_id(a) == without_id(b)
            assert import_(b, file).added == 0
            assert import_(a, file).added == 0

    check()


def without_id(store: CostStore) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "id"} for row in store.rows()]


@pytest.mark.parametrize("suffix", FORMATS)
def test_between_databases_with_devices(anywhere: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"out.{suffix}"
    with CostStore(tmp_path / "a.sqlite") as store:
        store.add(*(measurement(str(i)) for i in range(3)), measurement("x", fingerprint="tab"))
        store.add_device("phone", {"phone": "ü", "properties": {"a": None}}, True)
        devices = store.devices()
        assert export(store, file) == 4
        first = without_id(store)
    with CostStore(anywhere) as store:
        store.add(measurement("1"), measurement("own"))
        assert import_(store, file) == Imported(rows=4, added=3, devices=2)
        assert store.devices() == devices
        assert export(store, file, Selection(signatures=["0", "1", "2", "x"])) == 4
        assert import_(store, file) == Imported(rows=4, added=0, devices=2)
        rows = {row["digest"]: row for row in without_id(store)}
        assert [rows[row["digest"]] for row in first] == first and len(rows) == 5


def test_what_is_older_does_not_win_by_arriving_later(anywhere: str, tmp_path: Path) -> None:
    with CostStore(tmp_path / "a.sqlite") as store:
        store.add(measurement(samples_ns=(1,), measured_at="2025-01-01T00:00:00.123+00:00"))
        export(store, tmp_path / "old.csv")
    with CostStore(anywhere) as store:
        store.add(measurement(samples_ns=(2,), measured_at="2025-01-01T00:00:00.123456+00:00"))
        import_(store, tmp_path / "old.csv")
        assert [m.samples_ns for m in store.measurements("phone")] == [(2,)]


def test_a_cell_of_a_million_samples(tmp_path: Path) -> None:
    samples = tuple(range(10**9, 10**9 + 200_000))
    limit = csv.field_size_limit()
    for suffix in FORMATS:
        with CostStore(tmp_path / f"{suffix}.sqlite") as store:
            store.add(measurement(samples_ns=samples))
            export(store, tmp_path / f"f.{suffix}")
        with CostStore(tmp_path / f"{suffix}2.sqlite") as store:
            import_(store, tmp_path / f"f.{suffix}")
            assert store.measurements("phone")[0].samples_ns == samples
    assert csv.field_size_limit() == limit


# ---- the formats -------------------------------------------------------------------------------


@pytest.fixture
def exported(tmp_path: Path) -> Callable[[str], Path]:
    def make(suffix: str) -> Path:
        file = tmp_path / f"costs.{suffix}"
        with CostStore(tmp_path / "made.sqlite") as store:
            store.add(measurement("a"), measurement("b", message="no", status=Status.REFUSED))
            store.add_device("phone", {"phone": "npu-phone"}, True)
            export(store, file)
        return file

    return make


def test_csv_as_a_spreadsheet_sees_it(exported: Callable[[str], Path]) -> None:
    with exported("csv").open(newline="") as lines:
        first, second = csv.DictReader(lines)
    assert tuple(first) == FILE_COLUMNS
    assert json.loads(first["samples_ns"]) == [30, 10, 20]
    assert (first["median_ns"], first["n_samples"], first["warm"]) == ("15.0", "2", "true")
    assert json.loads(first["device_info"])["description"] == {"phone": "npu-phone"}
    assert second["device_info"] == "" and second["message"] == "no" and first["message"] == ""


def test_parquet_has_types_and_says_what_its_columns_are(exported: Callable[[str], Path]) -> None:
    schema = pyarrow.parquet.read_schema(exported("parquet"))
    assert schema.field("samples_ns").type == pyarrow.list_(pyarrow.int64())
    assert schema.field("warm").type == pyarrow.bool_()
    comment = schema.field("samples_ns").metadata[b"comment"].decode()
    assert comment == MEASUREMENTS.c.samples_ns.comment
    assert pandas.read_parquet(exported("parquet")).median_ns.tolist() == [15.0, 15.0]


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_pandas_wrote_again_is_read(
    exported: Callable[[str], Path], suffix: str, tmp_path: Path
) -> None:
    """Whole numbers with gaps are floating-point numbers there."""
    file, other = exported(suffix), tmp_path / f"again.{suffix}"
    if suffix == "csv":
        pandas.read_csv(file).to_csv(other)  # with an index
        lines = other.read_text().splitlines()
        other.write_text("\n".join(line.partition(",")[2] for line in lines))
    else:
        pandas.read_parquet(file).to_parquet(other)
    with CostStore(tmp_path / "made.sqlite") as store:
        assert import_(store, other) == Imported(rows=2, added=0, devices=1)


def test_columns_that_may_be_empty_may_be_missing(
    exported: Callable[[str], Path], tmp_path: Path
) -> None:
    file = exported("csv")
    table = pandas.read_csv(file).drop(columns=["memory", "median_ns", "device_info", "warm"])
    table.to_csv(file, index=False)
    with CostStore(tmp_path / "new.sqlite") as store:
        assert import_(store, file).added == 2
        assert [row["memory"] for row in store.rows()] == [None, None]


def test_a_frame_has_its_columns_and_types_whatever_is_in_it(anywhere: str) -> None:
    with CostStore(anywhere) as store:
        empty = frame(store)
        store.add(measurement(), measurement("t", status=Status.TIMEOUT, samples_ns=(), rounds=()))
        full = frame(store, Selection(targets=("nnapi:*",)))
    assert tuple(empty.columns) == tuple(full.columns) == COLUMNS and len(empty) == 0
    assert empty.dtypes.tolist() == full.dtypes.tolist()
    assert full.cpu_khz_after.isna().all() and full.compile_ns.tolist() == [2**40] * 2
    assert full.n_samples.tolist() == [2, 0] and full.minimum_ns.isna().tolist() == [False, True]
    assert full.samples_ns.tolist() == [[30, 10, 20], []]


# ---- what is refused ---------------------------------------------------------------------------

WRONG = [
    ("kind", "block", "'block' is none of unit, chain, region, plan, beside"),
    ("status", "", "'' is none of ok, refused"),
    ("target", "gpu", "'gpu' is none of cpu, host, nnapi:ACCELERATOR/PREFERENCE"),
    ("target", "nnapi:x/slow", "is none of cpu"),
    ("target", "nnapi:" + "x" * 130 + "/fast", "is longer than 128 characters"),
    ("precision", "int8", "'int8' is none of float32, relaxed, float16"),
    ("mode", "later", "is none of sync, burst, async"),
    ("cpus", "f0", "'f0' is neither big nor all nor a mask"),
    ("threads", "0", "0 is too small"),
    ("threads", "two", "'two' is not a whole number"),
    ("threads", "", "is empty"),
    ("threads", "1.5", "1.5 is not a whole number"),
    ("n_units", "3", "3 for 2 members"),
    ("input_bytes", "-1", "-1 is too small"),
    ("rss_peak_kb", str(2**31), "does not fit 32 bits"),
    ("compile_ns", str(2**63), "does not fit 64 bits"),
    ("simulated", "yes", "'yes' is not a truth value (true, false)"),
    ("samples_ns", "30 10", "'30 10' is not JSON"),
    ("samples_ns", "[30, null]", "None is not a whole number"),
    ("samples_ns", "{}", "{} is not a list"),
    ("members", "[1]", "1 is not text"),
    ("rounds", '[{"runs": 3}]', "is not an object of cpu_khz, repeats, runs, thermal_mc"),
    ("message", '"open', "is not JSON"),
    ("measured_at", "yesterday", "'yesterday' is not a time in ISO 8601"),
    ("measured_at", "2026-01-01T00:00:00", "is not in UTC"),
    ("fingerprint", "", "is empty"),
    ("device_info", "[]", "is not a JSON object of description, simulated and first_seen"),
]


@pytest.mark.parametrize(("column", "cell", "words"), WRONG)
def test_the_cell_that_is_wrong_is_named(
    exported: Callable[[str], Path], tmp_path: Path, column: str, cell: str, words: str
) -> None:
    file = exported("csv")
    table = pandas.read_csv(file, dtype=str, keep_default_na=False)
    table.loc[1, column] = cell
    table.to_csv(file, index=False)
    with CostStore(tmp_path / "new.sqlite") as store:
        with pytest.raises(CostError) as caught:
            import_(store, file)
        text = str(caught.value)
        assert text.startswith(f"{file}: row 2, column {column}: ") and words in text
        assert text.endswith("; nothing was imported")
        assert store.rows() == [] and store.devices() == []


def test_parquet_of_other_types_is_refused(exported: Callable[[str], Path], tmp_path: Path) -> None:
    file = exported("parquet")
    table = pandas.read_parquet(file)
    table["threads"] = [1.0, 1.5]
    table.to_parquet(file)
    with (
        CostStore(tmp_path / "new.sqlite") as store,
        pytest.raises(CostError, match=r"row 2, column threads: 1.5 is not a whole number"),
    ):
        import_(store, file)


def rewrite(change: Callable[[str], str]) -> Callable[[Path], None]:
    return lambda path: path.write_text(change(path.read_text())) and None


FILES = [
    (lambda path: path.unlink(), UsageError, "does not exist: give a .csv or .parquet file"),
    (lambda path: path.write_text(""), CostError, "the column signature is missing"),
    (lambda path: path.write_bytes(b"\xff\xfe\0"), CostError, "is not CSV in UTF-8"),
    (rewrite(lambda text: text.replace("label", "name", 1)), CostError, "label is missing"),
    (rewrite(lambda text: text.replace("memory", "colour", 1)), CostError, "'colour' is unknown"),
    (rewrite(lambda text: text.replace("memory", "label", 1)), CostError, "label is there twice"),
    (rewrite(lambda text: text + "a,b\n"), CostError, "row 3 has 2 cells, the header"),
    (rewrite(lambda text: text + '"a"b,'), CostError, "is not CSV: "),
]


@pytest.mark.parametrize(("change", "kind", "words"), FILES)
def test_files_that_are_none(
    exported: Callable[[str], Path],
    tmp_path: Path,
    change: Callable[[Path], None],
    kind: type[Exception],
    words: str,
) -> None:
    file = exported("csv")
    change(file)
    with CostStore(tmp_path / "new.sqlite") as store, pytest.raises(kind) as caught:
        import_(store, file)
    assert str(file) in str(caught.value) and words in str(caught.value)


def test_other_files_and_places(tmp_path: Path, exported: Callable[[str], Path]) -> None:
    junk = tmp_path / "junk.parquet"
    junk.write_text("hello")
    with CostStore(tmp_path / "new.sqlite") as store:
        with pytest.raises(CostError, match=r"junk.parquet is not a Parquet file: "):
            import_(store, junk)
        with pytest.raises(UsageError, match=r"x.json is unclear: name it .csv or .parquet"):
            export(store, tmp_path / "x.json")
        with pytest.raises(UsageError, match="does not exist"):
            import_(store, tmp_path / "absent.parquet")
        with pytest.raises(UsageError, match=r"cannot write .*No such file"):
            export(store, tmp_path / "no" / "out.csv")
        (tmp_path / "folder.csv").mkdir()
        with pytest.raises(UsageError, match=r"folder.csv is a folder: name a file"):
            import_(store, tmp_path / "folder.csv")


def test_an_export_that_fails_leaves_what_was_there(
    exported: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = exported("csv")
    before = file.read_text()

    def full(*arguments: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nnapi_prof.costs.store.files._to_cell", full)
    with CostStore(tmp_path / "made.sqlite") as store, pytest.raises(UsageError, match="No space"):
        export(store, file)
    assert file.read_text() == before
    assert not list(tmp_path.glob(".nnapi-prof-*"))


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        CostStore(tmp_path / "c.sqlite") as store,
        pytest.raises(CostError, match=r"pip install nnapi-prof\[parquet\]"),
    ):
        export(store, tmp_path / "out.parquet")


def test_without_a_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(CostError, match=r"pip install nnapi-prof\[postgres\]"):
        CostStore("postgresql://someone:secret@host/costs")


def test_a_server_that_is_not_there_is_told_of_at_once_without_the_password() -> None:
    with pytest.raises(CostError, match=r"cannot open it: .*within reach") as caught:
        CostStore("postgresql://someone:secret@localhost:1/costs")
    assert "secret" not in str(caught.value)
