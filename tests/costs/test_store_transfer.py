"""What a table can hold comes back, goes into another table, and into a frame and its files."""

import csv
import io
import json
import sys
from typing import Any, get_type_hints

import hypothesis.strategies as st
import pandas
import pytest
from hypothesis import HealthCheck, given, settings

from nnapi_prof.costs import CONDITIONAL, Conditions, Mode
from nnapi_prof.costs.measurement import Kind, Measurement, Round, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.files import COLUMNS, Merged, encode, frame, merge
from nnapi_prof.costs.store.rows import escape_texts, from_row
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, HOST, Preference, Target
from tests.costs.test_store import measurement

INT32 = st.integers(-(2**31), 2**31 - 1)
NS = st.integers(0, 10**16)
COUNT = st.integers(0, 2**31 - 1)
# As databases keep it: no NUL, no half surrogate pairs.
TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
HARD = st.sampled_from(["", '"', '""', '"x', "\r", "a\nb", "None", "nan", "NULL", ",;\t'", "1.0"])
TEXTS = TEXT | HARD
NAMES = st.text("abc-_ü/", min_size=1, max_size=8)
TARGETS = st.sampled_from([CPU, HOST]) | st.builds(Target.nnapi, NAMES, st.sampled_from(Preference))


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def several(values: st.SearchStrategy[Any], max_size: int = 5) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=max_size).map(tuple)


PAIRS = st.tuples(maybe(INT32), maybe(INT32))
ROUNDS = st.builds(Round, COUNT, PAIRS, PAIRS, maybe(st.booleans()), maybe(COUNT))
CONDITIONS = st.builds(
    Conditions,
    st.sampled_from(CONDITIONAL),
    st.sampled_from(Mode),
    st.integers(1, 64),
    st.sampled_from(["big", "all", "0xf0"]),
    st.integers(0, 3600),
)
BY_TYPE = {
    int: COUNT,
    int | None: maybe(INT32),
    bool: st.booleans(),
    bool | None: maybe(st.booleans()),
    str: TEXTS,
    str | None: maybe(TEXTS),
    tuple[int, ...]: several(NS, max_size=9),
    tuple[str, ...]: several(TEXTS),
    tuple[Round, ...]: several(ROUNDS),
    Kind: st.sampled_from(Kind),
    Status: st.sampled_from(Status),
    Conditions: CONDITIONS,
    Target: TARGETS,
    Target | None: maybe(TARGETS),
}
BY_NAME = {
    "signature": NAMES,
    "offsets": several(st.integers(-(2**63), 2**63 - 1)),
    "fingerprint": st.sampled_from(["phone", "other"]),
    "cpu_mask": maybe(st.sampled_from(["", "f0"])),
    **dict.fromkeys(("compile_ns", "first_ns"), maybe(NS)),
    **dict.fromkeys(("macs", "weight_bytes", "pixels"), maybe(COUNT)),
    "measured_at": st.datetimes().map(lambda moment: f"{moment.isoformat()}+00:00"),
}
MEASURED = st.builds(
    Measurement, **{n: BY_TYPE[kind] for n, kind in get_type_hints(Measurement).items()} | BY_NAME
)


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.lists(MEASURED, max_size=4))
def test_all_that_a_table_can_hold_comes_back(rows):
    """As measurements, and in another table after a merge."""
    with CostStore("sqlite://") as a, CostStore("sqlite://") as b:  # in memory
        n = a.add(*rows)
        assert [escape_texts(from_row(row)) for row in a.rows()] == a.select(Selection())
        assert n == len(set(rows)) and {from_row(row) for row in a.rows()} == set(rows)
        assert merge(b, a).added == n
        assert without_id(a) == without_id(b)
        assert merge(b, a).added == 0


def without_id(store: CostStore) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "id"} for row in store.rows()]


def test_between_databases_with_devices(anywhere, tmp_path):
    with CostStore(tmp_path / "a.sqlite") as source, CostStore(anywhere) as store:
        source.add(*(measurement(str(i)) for i in range(3)), measurement("x", fingerprint="tab"))
        source.add_device("phone", {"phone": "ü", "properties": {"a": None}}, True)
        store.add(measurement("1"), measurement("own"))
        assert merge(store, source) == Merged(rows=4, added=3, left_out=0, devices=2)
        assert store.devices() == source.devices()
        rows = {row["digest"]: row for row in without_id(store)}
        first = without_id(source)
        assert [rows[row["digest"]] for row in first] == first and len(rows) == 5


def test_what_is_older_does_not_win_by_arriving_later(anywhere, tmp_path):
    with CostStore(tmp_path / "a.sqlite") as source, CostStore(anywhere) as store:
        source.add(measurement(samples_ns=(1,), measured_at="2025-01-01T00:00:00.123+00:00"))
        store.add(measurement(samples_ns=(2,), measured_at="2025-01-01T00:00:00.123456+00:00"))
        merge(store, source)
        assert [m.samples_ns for m in store.measurements("phone")] == [(2,)]


@pytest.fixture
def table(tmp_path):
    with CostStore(tmp_path / "made.sqlite") as store:
        refusal = 'no\x1b[31m\r, "never"'
        store.add(measurement("a"), measurement("b", message=refusal, status=Status.REFUSED))
        yield frame(store)


def test_csv_as_a_spreadsheet_sees_it(table):
    first, second = csv.DictReader(io.StringIO(encode(table, "csv").decode(), newline=""))
    assert tuple(first) == COLUMNS
    assert json.loads(first["samples_ns"]) == [30, 10, 20]
    assert json.loads(first["rounds"])[1]["repeats"] == 0
    assert (first["median_ns"], first["n_samples"], first["warm"]) == ("15.0", "2", "True")
    assert first["message"] == "" and second["message"] == r'no\x1b[31m\r, "never"'


def test_parquet_has_types(table):
    back = pandas.read_parquet(io.BytesIO(encode(table, "parquet")))
    assert tuple(back.columns) == COLUMNS and back.warm.tolist() == [True, True]
    assert [list(samples) for samples in back.samples_ns] == table.samples_ns.tolist()
    assert back.p95_ns.tolist() == table.p95_ns.tolist() and back.p95_ns[0] > back.median_ns[0]


def test_a_frame_has_its_columns_and_types_whatever_is_in_it(store):
    empty = frame(store)
    store.add(measurement(), measurement("t", status=Status.TIMEOUT, samples_ns=(), rounds=()))
    full = frame(store, Selection(targets=("nnapi:*",)))
    assert tuple(empty.columns) == tuple(full.columns) == COLUMNS and len(empty) == 0
    assert empty.dtypes.tolist() == full.dtypes.tolist()
    assert full.cpu_khz_after.isna().all() and full.compile_ns.tolist() == [2**40] * 2
    assert full.n_samples.tolist() == [2, 0] and full.minimum_ns.isna().tolist() == [False, True]
    assert full.samples_ns.tolist() == [[30, 10, 20], []]


def test_without_pyarrow_the_extra_is_named(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CostError, match=r"pip install nnapi-prof\[parquet\]"):
        encode(table, "parquet")


def test_without_a_driver_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(CostError, match=r"pip install nnapi-prof\[postgres\]"):
        CostStore("postgresql://someone:secret@host/costs")


def test_a_server_that_is_not_there_is_told_of_at_once_without_the_password():
    with pytest.raises(CostError, match=r"cannot open it: .*within reach") as caught:
        CostStore("postgresql://someone:secret@localhost:1/costs")
    assert "secret" not in str(caught.value)
