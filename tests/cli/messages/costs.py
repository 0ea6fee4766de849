"""Cost tables: opening, reading, importing, exporting; estimating and calibrating from them."""

import sqlite3

from nnapi_prof.costs.store import CostStore
from tests.cli.messages.provoked import SHAPE, SIM, Arguments, Place, met_by, provoked


@provoked(
    1,
    "cost table {tmp}/junk.sqlite: cannot open it: file is not a database; check that it is a "
    "file of nnapi-prof and writable, or name another with --costs or $NNAPI_PROF_COSTS",
)
def a_cost_table_that_is_no_database(at: Place) -> Arguments:
    costs = at.file("junk.sqlite", "hello " * 200)
    return ["profile", *SIM, *SHAPE, "--costs", costs, at.model]


met_by(
    "profile {at.sim} {at.shape} --costs postgresql://me:secret@127.0.0.1:1/costs {at.model}",
    1,
    "cost table postgresql+psycopg://me:***@127.0.0.1:1/costs: cannot open it: {*}; check that "
    "it is within reach and yours, or name another with --costs or $NNAPI_PROF_COSTS",
)
met_by(
    "profile {at.sim} {at.shape} --costs postgresql://me@host:port/costs {at.model}",
    1,
    facts=("URL", "'port'", "--costs"),
)
met_by(
    "costs show --costs {at.profiled.costs} --device pixel",
    2,
    "no device of the cost table is called 'pixel'; there are: {*} (simulated npu-phone); "
    "`nnapi-prof costs list` shows them",
)
met_by(
    "costs show --costs {at.profiled.costs} --since yesterday",
    2,
    "--since 'yesterday' is not a date: write 2026-01-31 or 2026-01-31T12:30",
)
met_by(
    "costs show --costs {at.profiled.costs} --format csv -o /proc/absent/costs.csv",
    2,
    "cannot write /proc/absent/costs.csv: No such file or directory: name another --output",
)

# ---- estimates ---------------------------------------------------------------------------------

met_by(
    "estimate --phone pixel44 {at.shape} {at.model}",
    2,
    "no phone 'pixel44' (did you mean pixel4?): there are dsp-phone, gpu-phone, npu-phone, "
    "slow-nnapi-phone, a03s, mi8se, pixel4, s10, sm8750, or name a JSON file that `nnapi-prof "
    "calibrate` wrote",
)


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
    with sqlite3.connect(at.profiled.costs) as link:
        link.execute(f"delete from measurements where id != {first}")
    link.close()
    return ["calibrate", "--costs", at.profiled.costs, "-o", at.tmp / "phone.json"]
