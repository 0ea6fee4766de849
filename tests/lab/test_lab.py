"""Four simulated phones and two models through Dask: what dies on the way costs no row.

``--everything`` takes eight phones.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nnapi_prof as nnp
from nnapi_prof import profile
from nnapi_prof.cli import main
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import open_device
from nnapi_prof.lab import LabPhone, cluster, held_here, held_there, run, shelf
from nnapi_prof.lab.command import of_lab_profile
from nnapi_prof.lab.run import Coordinator, LabJob, LabOutcome, jobs_of
from tests.conftest import PHONES
from tests.costs.conftest import postgres as postgres
from tests.documents.common import check

OPTIONS = {"options": nnp.MeasureOptions(refine=False, runs=5, preferences="fast")}
SAME = ("fingerprint", "signature", "target", "status", "label", "members", "samples_ns")

pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own, of processes that it starts


def small(channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, channels, 3), nn.ReLU(), nn.Conv2d(channels, 2, 1)).eval()


def exported(channels: int, folder: Path) -> Path:
    path = folder / f"small{channels}.pt2"
    torch.export.save(torch.export.export(small(channels), (torch.zeros(1, 3, 12, 12),)), path)
    return path


@dataclass(frozen=True)
class Lab:
    address: str
    phones: list[LabPhone]
    models: list[Path]
    folder: Path


def shelf_of(folder: Path, count: int) -> list[LabPhone]:
    """Simulated phones that differ in their names."""
    described = json.loads((PHONES / "npu-phone.json").read_text())
    for number in range(count):
        path = folder / f"phone{number}.json"
        path.write_text(json.dumps(described | {"name": f"phone {number}"}))
    phones, silent = shelf([f"{folder}/phone*.json"])
    assert len({phone.fingerprint for phone in phones}) == count and not silent
    return phones


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory, built_host: object, request: pytest.FixtureRequest
) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    models = [exported(channels, folder) for channels in (4, 6)]
    phones = shelf_of(folder, 8 if request.config.getoption("--everything") else 4)
    with cluster.own_cluster(phones, processes=2) as address:
        yield Lab(address, phones, models, folder)


def measured(
    lab: Lab,
    phones: Sequence[LabPhone],
    costs: Path,
    show: Callable[[Sequence[LabJob]], None] = lambda _: None,
    notes: list[str] | None = None,
    patience_s: float = 300.0,
) -> LabOutcome:
    jobs = jobs_of(cluster.new_run(), lab.models, phones, str(costs), (), OPTIONS)
    words = [] if notes is None else notes
    return Coordinator(lab.address, jobs, words.append, show, patience_s).run()


def called(*words: str) -> object:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code


def rows(costs: Path) -> list[tuple[Any, ...]]:
    """What the rows say but for when, sorted."""
    with CostStore(costs) as store:
        return sorted(tuple(map(str, map(row.get, SAME))) for row in store.rows())


def blame_at_once(dask_scheduler: Any) -> None:
    """A worker's first death counts against all that it was to run."""
    dask_scheduler.allowed_failures = 0


@pytest.mark.slow("measures the phones by workers, and again one after another")
def test_a_worker_that_dies_loses_no_row(lab):
    with cluster.connected_to(lab.address) as client:
        pids = list(client.run(os.getpid).values())
        client.run_on_scheduler(blame_at_once)

    def kill(jobs: Sequence[LabJob]) -> None:
        if pids and sum(job.over for job in jobs) >= len(jobs) / 4:
            os.kill(pids.pop(), signal.SIGKILL)
            pids.clear()

    costs, serial = lab.folder / "costs.sqlite", lab.folder / "serial.sqlite"
    outcome = measured(lab, lab.phones, costs, kill)
    assert not pids and not outcome.failed and not outcome.cancelled
    # Only what the worker had begun counts as tried; the rest of its queue is as it was.
    histories = [job.history for job in outcome.profiled if job.history]
    assert ["its worker died before it began"] in histories
    for job in outcome.profiled:
        assert job.tries == job.history.count("its worker died while it measured") <= 1
    asked = {(job.phone.serial, job.task.model) for job in outcome.profiled}
    assert len(asked) == len(outcome.profiled) == len(lab.phones) * 2
    for phone in lab.phones:
        for model in lab.models:
            profile(model, phone.serial, costs=serial, **OPTIONS)
    assert rows(costs) == rows(serial) and len(rows(costs)) > 12 * len(lab.phones)

    again = measured(lab, lab.phones[:3], costs)  # what is there is not measured again
    answers = [job.answer for job in again.profiled]
    assert [answer.measured for answer in answers if answer] == [0] * 6
    check(of_lab_profile(str(costs), again), "lab-profile")


def test_a_phone_in_use_and_a_phone_that_is_gone(lab, monkeypatch):
    monkeypatch.setattr(run, "PAUSE_S", 0.2)
    busy, gone, free = lab.phones[:3]
    path = Path(gone.serial.removeprefix("sim:"))
    content = path.read_text()
    path.unlink()
    notes: list[str] = []
    costs = lab.folder / "three.sqlite"
    with contextlib.ExitStack() as user:
        user.enter_context(held_here(busy.serial))

        def let_go(jobs: Sequence[LabJob]) -> None:
            if all(job.over for job in jobs if job.phone != busy):
                user.close()

        outcome = measured(lab, (busy, gone, free), costs, let_go, notes)
    path.write_text(content)
    assert {job.phone for job in outcome.profiled} == {busy, free} and len(outcome.profiled) == 4
    assert {job.phone for job in outcome.failed} == {gone} and len(outcome.failed) == 2
    assert all("set aside after 3 tries: no simulated" in str(j.reason) for j in outcome.failed)
    assert any(f"{busy.serial} is in use by another process" in note for note in notes)
    check(of_lab_profile(str(costs), outcome), "lab-profile")


def test_a_guessed_shape_is_told_once(lab):
    model = lab.folder / "guessed.pt"
    torch.jit.save(torch.jit.trace(small(5), torch.zeros(1, 3, 12, 12)), model)
    notes: list[str] = []
    costs = lab.folder / "guessed.sqlite"
    outcome = measured(replace(lab, models=[model]), lab.phones[:2], costs, notes=notes)
    assert len(outcome.profiled) == 2 and len(notes) == 1
    assert notes[0].startswith("guessed.pt: input shape guessed as 1x3x224x224 from the first")


def test_a_phone_that_nobody_offers(lab):
    stranger = LabPhone("x", "far", "0" * 16, "far phone", "", "", "arm64-v8a", False)
    outcome = measured(lab, [stranger], lab.folder / "none.sqlite", patience_s=0.5)
    reason = "set aside: no worker has offered it for 0 s"
    assert [job.reason for job in outcome.failed] == [reason] * 2


def test_status_phones_and_cancel(lab, capsys):
    def document(name: str) -> Any:
        assert called("lab", name, "--scheduler", lab.address, "--json") == 0
        printed = json.loads(capsys.readouterr().out)
        check(printed, f"lab-{name}")
        return printed

    names = {phone["serial"] for phone in document("phones")["phones"]}
    assert names == {phone.serial for phone in lab.phones}
    status: dict[str, Any] = {}

    def cancel(jobs: Sequence[LabJob]) -> None:
        if not status and (now := document("status"))["runs"]:
            status.update(now)
            status["cancelled"] = document("cancel")["runs"]

    with held_here(lab.phones[0].serial):  # so that the run does not end before it is cancelled
        outcome = measured(lab, lab.phones, lab.folder / "cancelled.sqlite", cancel)
    assert (status["workers"], status["phones"]) == (2, len(lab.phones))
    assert status["cancelled"] == [outcome.run] == [each["run"] for each in status["runs"]]
    assert outcome.cancelled and len(outcome.profiled) < 2 * len(lab.phones)
    assert {job.reason for job in outcome.failed} == {"cancelled before it was done"}


@pytest.mark.parametrize(
    ("dask", "words"),
    [
        (False, "needs Dask and psycopg, which are not installed: `pip install 'nnapi-prof[lab]'`"),
        (True, "no scheduler at tcp://127.0.0.1:1"),
    ],
)
def test_without_dask_or_a_scheduler(monkeypatch, capsys, dask, words):
    monkeypatch.setattr(cluster, "CONNECT_S", 0.3)
    if not dask:
        monkeypatch.setitem(sys.modules, "distributed", None)
    assert called("lab", "status", "--scheduler", "tcp://127.0.0.1:1") == 1
    assert words in capsys.readouterr().err


@pytest.mark.slow("starts a scheduler, workers, a database and a daemon")
@pytest.mark.postgres
@pytest.mark.adbd
def test_a_phone_that_another_host_has(start_adbd, postgres, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "PAUSE_S", 0.2)
    model = exported(4, tmp_path)
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
