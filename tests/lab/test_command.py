"""The commands of a lab, and what its parts do, with one phone: scheduler and worker are here."""

import contextlib
import json
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import dask
import distributed
import pytest

from nnapi_prof.costs.store import CostStore
from nnapi_prof.lab import LabPhone, cluster, command, held_here, listed, run
from nnapi_prof.lab.run import Coordinator, LabJob, jobs_of
from tests.documents.common import check
from tests.lab.test_lab import OPTIONS, Lab, called, exported, measured, shelf_of
from tests.processes import wait_until

pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own


@contextlib.contextmanager
def in_this_process(phones: Sequence[LabPhone], port: int = 0) -> Iterator[str]:
    """A scheduler, and a worker for the phones of NNAPI_PROF_LAB_PHONES."""
    needs = cluster.worker_options(phones, 1)["resources"]
    worker = {"cls": distributed.Worker, "options": {"nthreads": 1, "resources": needs}}
    place = {"host": "127.0.0.1", "port": port, "dashboard_address": "127.0.0.1:0"}
    scheduler = {"cls": distributed.Scheduler, "options": place}
    with distributed.SpecCluster({0: worker}, scheduler, silence_logs=50) as started:
        yield str(started.scheduler_address)


@pytest.fixture(scope="module")
def lab(built_host: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    phones = shelf_of(folder, 1)  # one that no other process has
    with in_this_process(phones) as address:
        yield Lab(address, phones, [exported(4, folder)], folder)


@pytest.fixture
def npu(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> LabPhone:
    """The phone of this process's worker, which has a long name."""
    monkeypatch.setattr("nnapi_prof.cli.output._PIPE_COLUMNS", 400)
    monkeypatch.setenv(cluster.PHONES, listed(lab.phones))
    return lab.phones[0]


def test_profile_in_words_and_on_a_live_board(lab, npu, capsys, monkeypatch):
    broken, costs = lab.folder / "broken.pt2", lab.folder / "words.sqlite"
    broken.write_bytes(b"no model")
    profiling = ("lab", "profile", "--scheduler", lab.address, "--costs", str(costs), "--runs", "5")

    def told(stream: str) -> list[str]:
        """Lines with single spaces, without what tables are drawn with, and without times."""
        times = r"\b[\d.]+(?= s\b)|\b[\d.]+ +(?=0\.\d+$)|, about \d+ s left"
        stream = re.sub(r"\x1b\[\S*?[hlmKA]|[─-╿]|\r", "", stream)
        lines = (re.sub(times, "", line.strip()) for line in stream.splitlines() if line.strip())
        return [" ".join(line.split()) for line in lines]

    assert called(*profiling, str(lab.models[0]), str(broken)) == 1
    out, err = map(told, capsys.readouterr())
    with CostStore(costs) as store:
        n_rows = sum(row["kind"] not in ("anchor", "threads") for row in store.rows())
    head = "phone model measured refused known before s plan (ms, simulated)"
    failed = (
        f"{npu.label}, broken.pt2: failed: {broken} is not a PyTorch model: save torch.jit.trace("
        "model.eval(), example) with torch.jit.save, or torch.export.export(...) with"
        " torch.export.save"
    )
    row = f"{npu.label} small4.pt2 {n_rows} 0 0 0.017"
    assert out[1:] == [head, row, failed, f"1 profiled, 1 failed, s; costs in {costs}"]
    measured = f"{npu.label}, small4.pt2: {n_rows} measured in s (1 of 2)"
    assert err[1:] == [measured, f"{failed} (2 of 2)"]

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "400")
    assert called(*profiling, str(lab.models[0])) == 0
    out, err = map(told, capsys.readouterr())
    assert re.fullmatch(rf"{re.escape(npu.label)} small4.pt2 0 0 \d+ 0.017", out[2])
    assert out[3:] == [f"1 profiled, 0 failed, s; costs in {costs}"]
    assert err[-3:] == ["1 of 1", "phone model state", f"{npu.label} small4.pt2 0 measured in s"]

    gone = lab.folder / "gone.pt2"
    assert called("lab", "profile", "--scheduler", lab.address, str(gone)) == 2
    assert f"error: {gone} cannot be read (No such file or directory): " in capsys.readouterr().err


def interrupt_at(words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Presses Ctrl-C once a command's note begins with this. Returns its notes until then."""
    notes: list[str] = []

    def say(text: str) -> None:
        notes.append(text)
        if text.startswith(words):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command, "say", say)
    return notes


def test_a_worker_looks_again_for_a_scheduler_that_is_not_there_yet(npu, monkeypatch, capsys):
    notes = interrupt_at("looks", monkeypatch)
    address, gone = "tcp://127.0.0.1:1", "sim:/gone.json"
    worker = ("lab", "worker", "--scheduler", address, "--phone", npu.serial, "--phone", gone)
    with dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}):
        assert called(*worker) == 130
    assert notes[0].startswith(f"note: {gone} does not answer and is left out: no simulated phone")
    assert notes[1:] == [
        f"no scheduler at {address} (Timed out trying to connect to {address} after 0.2 s)",
        f"looks for {address} again in 5 s",
    ]
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["phone", "serial", "host", "fingerprint", "SoC", "Android", "ABI"]
    cells = (f"{npu.name} (simulated)", npu.serial, npu.host, npu.fingerprint, npu.soc, "11")
    assert row.split() == [*" ".join(cells).split(), npu.abi]

    assert called("lab", "worker", "--scheduler", address, "--phone", gone) == 1
    assert "error: no phone is connected to this host: connect one, or" in capsys.readouterr().err


def test_ctrl_c_while_a_cluster_of_its_own_waits_for_a_phone(lab, npu, monkeypatch, capsys):
    notes = interrupt_at("note: ", monkeypatch)
    costs, model = str(lab.folder / "interrupted.sqlite"), str(lab.models[0])
    with held_here(npu.serial):
        words = ("--phones", npu.serial, "--costs", costs, "--json", model)
        assert called("lab", "profile", *words) == 130
    document = json.loads(capsys.readouterr().out)
    check(document, "lab-profile")
    failed = {"phone": npu.to_json(), "model": model, "tries": 0}
    assert document["failed"] == [failed | {"reason": "cancelled before it was done"}]
    assert (document["cancelled"], document["profiled"]) == (True, [])
    busy = f"note: {npu.serial} is in use by another process of {npu.host}: waits for it"
    assert notes[0].startswith("Dask's dashboard: http://127.0.0.1:") and notes[1:] == [busy]


def test_workers_hear_of_a_cancelled_run(lab, npu, monkeypatch, capsys):
    monkeypatch.setattr(cluster, "ASK_S", 0.0)
    monkeypatch.setattr(run, "LOOK_S", float("inf"))  # they hear of it before their `lab profile`
    monkeypatch.setattr(cluster, "_LOADING", loading := threading.Lock())
    names: list[str] = []

    def cancel(jobs: Sequence[LabJob]) -> None:
        if not names:
            names.append(jobs[0].task.run)
            with cluster.connected_to(lab.address) as client:
                at_work = [cluster.LabRun(names[0], {"processing": 1})]
                wait_until(lambda: cluster.runs(client) == at_work)
            assert called("lab", "status", "--scheduler", lab.address) == 0
            assert called("lab", "cancel", "--scheduler", lab.address, "stranger") == 2
            assert called("lab", "cancel", "--scheduler", lab.address, names[0]) == 0
            loading.release()

    loading.acquire()  # so that no task measures before it is cancelled
    outcome = measured(lab, [npu], lab.folder / "heard.sqlite", cancel)
    assert outcome.cancelled and not outcome.profiled
    assert [job.reason for job in outcome.failed] == ["cancelled before it was done"]
    monkeypatch.setenv(cluster.PHONES, "[]")
    assert called("lab", "cancel", "--scheduler", lab.address) == 0
    assert called("lab", "phones", "--scheduler", lab.address) == 0
    out, err = capsys.readouterr()
    status, *lines = out.splitlines()
    assert status.startswith("1 workers with 1 phones; Dask's dashboard: http://127.0.0.1:")
    assert lines == [
        f"run {names[0]}: 1 processing",
        f"cancelled: {names[0]}",
        "cancelled: nothing runs",
        "phone  serial  host  fingerprint  SoC  Android  ABI",
    ]
    nobody = "note: no worker offers a phone: `nnapi-prof lab worker` does"
    assert err == f"nnapi-prof: error: no run 'stranger': there are {names[0]}\n{nobody}\n"


def test_a_phone_in_use_for_longer_than_patience(lab, npu):
    with held_here(npu.serial):
        outcome = measured(lab, [npu], lab.folder / "busy", patience_s=0.0)
    reason = f"{npu.serial} is in use by another process of {npu.host}, for more than 0 s"
    assert [job.reason for job in outcome.failed] == [reason]


def test_a_worker_until_ctrl_c(lab, npu, monkeypatch, capsys):
    notes = interrupt_at("offers", monkeypatch)
    worker = ("lab", "worker", "--scheduler", lab.address, "--phone", npu.serial, "--json")
    assert called(*worker) == 130
    document = json.loads(capsys.readouterr().out)
    check(document, "lab-worker")
    assert document["phones"] == [npu.to_json()] and document["scheduler"] == lab.address
    assert notes == [f"offers 1 phones to {lab.address}"]


def test_why_a_task_has_no_measurements(lab, npu, monkeypatch):
    changed = replace(npu, fingerprint="0" * 16)
    monkeypatch.setenv(cluster.PHONES, listed([npu, changed]))
    (job,) = jobs_of("r", lab.models[:1], [npu], str(lab.folder / "no.sqlite"), (), OPTIONS)
    with held_here(npu.serial):
        answers = [cluster.measure(job.task)]
    others = {"fingerprint": "absent"}, {"fingerprint": changed.fingerprint}, {"sha256": "other"}
    answers += [cluster.measure(replace(job.task, **other)) for other in others]
    other = (
        f"{npu.serial} is another phone, or has another system, than when its worker began: start"
        " `nnapi-prof lab worker` anew"
    )
    model = (
        f"{lab.models[0]} on {npu.host} is not the model that is to be measured: put it there, or"
        " name a path that all hosts of the lab share"
    )
    assert [(answer.reason, answer.busy, answer.dropped) for answer in answers] == [
        (f"{npu.serial} is in use by another process of {npu.host}", True, False),
        ("no phone here", False, True),
        (other, False, True),
        (model, False, False),
    ]


def test_a_scheduler_that_goes_away_and_comes_back(lab, npu, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_S", 1.0)
    notes: list[str] = []
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        address = first.enter_context(in_this_process([npu]))

        def note(text: str) -> None:
            notes.append(text)
            second.enter_context(in_this_process([npu], int(address.rpartition(":")[2])))

        jobs = jobs_of("r", lab.models, [npu], str(lab.folder / "back.sqlite"), (), OPTIONS)
        outcome = Coordinator(address, jobs, note, lambda _: first.close(), 60.0).run()
    assert [job.history for job in outcome.profiled] == [[]] and not outcome.failed
    (told,) = notes  # in Dask's words
    assert told.startswith(f"the scheduler at {address} went away (")
    assert told.endswith("); looks for it again")
