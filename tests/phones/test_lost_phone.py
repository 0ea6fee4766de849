"""A phone that reboots in the middle of a profile."""

from typing import Any

import pytest

import nnapi_prof as np_
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import DeviceError

pytestmark = pytest.mark.slow


def test_a_reboot_loses_nothing_that_was_measured(ten_units, start_daemon, monkeypatch, tmp_path):
    """The connection and all processes end at once; what comes back has the store of before."""
    daemons = [start_daemon("npu-phone")]
    monkeypatch.setenv("NNAPI_PROF_REMOTE_DIR", daemons[0].remote_dir)
    table = tmp_path / "costs.sqlite"

    def reboot(progress: np_.Progress) -> None:
        if progress.phase == "units" and progress.done == 3:
            daemons[0].kill()

    def rows() -> list[Any]:
        with CostStore(table) as store:
            return store.select(Selection())

    with pytest.raises(DeviceError, match=r"the \d+ measurements made before are kept"):
        np_.profile(
            ten_units,
            daemons[0].serial,
            costs=table,
            options=np_.MeasureOptions(refine=False),
            progress=reboot,
        )
    kept = rows()
    assert len(kept) > 3 and all(row.status.value != "crashed" for row in kept)
    daemons.append(start_daemon("npu-phone"))
    if not daemons[1].private:
        monkeypatch.setenv("NNAPI_PROF_REMOTE_DIR", daemons[1].remote_dir)
    again = np_.profile(
        ten_units, daemons[1].serial, costs=table, options=np_.MeasureOptions(refine=False)
    )
    new = rows()[len(kept) :]
    assert rows()[: len(kept)] == kept and new
    assert {row.key for row in kept}.isdisjoint(row.key for row in new), "nothing is measured twice"
    assert np_.partition(ten_units, again, verify=False).plan.segments
