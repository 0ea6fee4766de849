"""A lab's other ends: PostgreSQL for its table, a real adbd, another host that has the phone."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import open_device
from nnapi_prof.lab import cluster, held_there, run, shelf
from nnapi_prof.lab.run import Coordinator, LabJob, jobs_of
from tests.costs.postgres import Server
from tests.lab.test_lab import OPTIONS, Small

pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own, of processes that it starts


@pytest.mark.slow("starts a scheduler, workers, a database and a daemon")
@pytest.mark.postgres
@pytest.mark.adbd
def test_a_phone_that_another_host_has(
    start_adbd: Callable[..., str],
    postgres: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "PAUSE_S", 0.2)
    model = tmp_path / "small.pt2"
    torch.export.save(torch.export.export(Small(4).eval(), (torch.zeros(1, 3, 12, 12),)), model)
    phones, silent = shelf([start_adbd("npu-phone")])
    assert len(phones) == 1 and not silent
    notes: list[str] = []
    costs = postgres.empty()
    with contextlib.ExitStack() as stack, cluster.own_cluster(phones) as address:
        theirs = stack.enter_context(open_device(phones[0].serial)).client
        stack.enter_context(held_there(theirs.transport, theirs.folder, "right 2"))

        def let_go(jobs: Sequence[LabJob]) -> None:
            if any(job.history for job in jobs):
                stack.close()

        jobs = jobs_of(cluster.new_run(), [model], phones, costs, (), OPTIONS)
        outcome = Coordinator(address, jobs, notes.append, let_go, 60.0).run()
    (job,) = outcome.profiled
    assert notes == [f"{phones[0].serial} is in use by right: waits for it"]
    assert job.answer is not None and job.answer.simulated
    with CostStore(costs) as store:
        rows = [row for row in store.rows() if row["kind"] != "threads"]
        assert len(rows) == job.answer.measured + job.answer.refused > 5
