"""Cost tables: opening, reading, importing, exporting; estimating and calibrating from them."""

import sqlite3
from pathlib import Path

from nnapi_prof.costs.store import CostStore
from tests.cli.messages.provoked import SHAPE, SIM, Arguments, Place, provoked


def profile_into(at: Place, costs: object) -> Arguments:
    return ["profile", *SIM, *SHAPE, "--costs", costs, at.model]


def change(path: Path, statement: str) -> Path:
    with sqlite3.connect(path) as link:
        link.execute(statement)
    link.close()
    return path


@provoked(
    1,
    "cost table {tmp}/junk.sqlite: cannot open it: file is not a database; check that it is a "
    "file of nnapi-prof and writable, or name another with --costs or $NNAPI_PROF_COSTS",
)
def a_cost_table_that_is_no_database(at: Place) -> Arguments:
    return profile_into(at, at.file("junk.sqlite", "hello " * 200))


@provoked(
    1,
    "cost table postgresql+psycopg://me:***@127.0.0.1:1/costs: cannot open it: {*}; check that "
    "it is within reach and yours, or name another with --costs or $NNAPI_PROF_COSTS",
)
def a_server_out_of_reach(at: Place) -> Arguments:
    return profile_into(at, "postgresql://me:secret@127.0.0.1:1/costs")


@provoked(1, facts=("URL", "'port'", "--costs"))
def a_wrong_url(at: Place) -> Arguments:
    return profile_into(at, "postgresql://me@host:port/costs")


@provoked(
    2,
    "no device of the cost table is called 'pixel'; there are: {*} (simulated npu-phone); "
    "`nnapi-prof costs list` shows them",
)
def an_unknown_device_of_the_table(at: Place) -> Arguments:
    return ["costs", "show", "--costs", at.profiled.costs, "--device", "pixel"]


@provoked(2, "--since 'yesterday' is not a date: write 2026-01-31 or 2026-01-31T12:30")
def a_day_that_is_none(at: Place) -> Arguments:
    return ["costs", "show", "--costs", at.profiled.costs, "--since", "yesterday"]


@provoked(
    2, "cannot write /proc/absent/costs.csv: No such file or directory: name another --output"
)
def an_export_that_cannot_be_written(at: Place) -> Arguments:
    to = ("--format", "csv", "-o", "/proc/absent/costs.csv")
    return ["costs", "show", "--costs", at.profiled.costs, *to]


# ---- estimates ---------------------------------------------------------------------------------


@provoked(
    2,
    "no phone 'pixel44' (did you mean pixel4?): there are dsp-phone, gpu-phone, npu-phone, "
    "slow-nnapi-phone, a03s, mi8se, pixel4, s10, sm8750, or name a JSON file that `nnapi-prof "
    "calibrate` wrote",
)
def an_unknown_phone_to_estimate(at: Place) -> Arguments:
    return ["estimate", "--phone", "pixel44", *SHAPE, at.model]


@provoked(2, facts=("{tmp}/mine.json", "JSON", "line 1 column 2"))
def a_damaged_phone_to_estimate(at: Place) -> Arguments:
    return ["estimate", "--phone", at.file("mine.json", "{"), *SHAPE, at.model]


@provoked(2, facts=("cost table", "empty"))
def calibrating_from_an_empty_table(at: Place) -> Arguments:
    CostStore(at.tmp / "empty.sqlite").close()
    return ["calibrate", "--costs", at.tmp / "empty.sqlite"]


@provoked(
    1,
    "1 measurements on the device's CPU are too few for 5 folds: run `nnapi-prof profile` with "
    "more models, or state fewer --folds",
)
def calibrating_from_too_few_rows(at: Place) -> Arguments:
    of_cpu = "status = 'ok' and kind = 'unit' and target = 'cpu'"
    first = f"(select min(id) from measurements where {of_cpu})"
    few = f"delete from measurements where id != {first}"
    costs = change(at.profiled.costs, few)
    return ["calibrate", "--costs", costs, "-o", at.tmp / "phone.json"]
