"""``nnapi-prof fleet``: one bundle for several phones, each of which runs its own plan."""

import pytest
import torch
from torch import nn

import nnapi_prof as np_
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.errors import UsageError
from tests.cli.common import Profiled, call, trace

INPUT = "1x16x48x48"
THREADS = {"npu": 4, "gpu": 2}


def wide() -> nn.Module:
    """Convolutions that an NPU is worth asking for, around an operation that it lacks."""
    first = (nn.Conv2d(16, 96, 3, padding=1), nn.ReLU())
    return nn.Sequential(*first, nn.Sigmoid(), nn.Conv2d(96, 96, 3, padding=1), nn.Conv2d(96, 8, 1))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("fleet")
    model = trace(wide(), folder / "wide.pt", (1, 16, 48, 48))
    costs = ("--preference", "fast", "--costs", folder / "costs.sqlite")
    for phone in THREADS:
        call("profile", "--device", f"sim:{phone}-phone", "--input", INPUT, *costs, model)
    return Profiled(model, folder / "costs.sqlite", folder / "wide.nnprof")


def asked(measured: Profiled) -> tuple[object, ...]:
    return ("--input", INPUT, "--costs", measured.costs, "-o", measured.bundle, measured.model)


def test_each_phone_runs_its_own_plan(cli, measured, tmp_path):
    document = cli.document("fleet", *asked(measured), "-k", 2)
    assert document["simulated"] and not document["estimated"]
    assert document["mean_regret"] == pytest.approx(0, abs=1e-9)
    assert document["mean_half"] > 0
    assert [row["k"] for row in document["curve"]] == [1, 2]
    assert document["curve"][0]["mean"] >= document["least_mean_of_one"] - 1e-9
    by_name = {row["name"]: row for row in document["phones"]}
    assert {row["plan"] for row in by_name.values()} == {0, 1}
    for phone, threads in THREADS.items():
        row = by_name[f"simulated {phone}-phone"]
        assert row["predicted_ns"] == row["least_ns"] < row["all_cpu_ns"]
        done = cli("run", "--device", f"sim:{phone}-phone", "--json", measured.bundle)
        run = done.document("run")
        name = document["plans"][row["plan"]]["name"]
        assert f"this phone's plan is {name} (by its build)" in done.err
        assert run["plans"][0]["plan"]["name"] == name
        assert run["conditions"] == f"--threads {threads}"
        assert run["plans"][0]["median_ns"] == pytest.approx(row["predicted_ns"], rel=0.1)
        assert "predictions are for that device" not in " ".join(run["notes"])
        page = tmp_path / f"{phone}.md"
        cli.ok("report", "--costs", measured.costs, "-o", page, measured.bundle)
        assert f"simulated {phone}-phone" in page.read_text()
    done = cli("run", "--device", "sim:slow-nnapi-phone", measured.bundle)
    assert "this phone's plan is all-cpu (it has no name that the bundle knows)" in done.err
    assert done.code == 0


def test_words_for_people_and_threads_that_nobody_measured(cli, measured):
    weighed = ("-k", 1, "--objective", "worst", "--weight", "*gpu*=2")
    out = cli.ok("fleet", *asked(measured), *weighed).out
    assert "Regret by the number of plans" in out and "ms, simulated" in out
    assert len(read_bundle(measured.bundle).plans) in (1, 2)  # the plan, and the CPU for others
    result = cli("fleet", *asked(measured), "--threads", "3")
    assert "measured on none of 2 phones" in result.error


def test_from_python(measured, tmp_path):
    model = np_.load(measured.model, inputs=[INPUT])
    costs = {
        "flagship": np_.read_costs(model, str(measured.costs), "*npu-phone"),
        "described": np_.estimate(model, "gpu-phone"),
        "table": np_.estimate(model, "pixel4"),
    }
    fleet = np_.fleet(model, costs, k=2, weights={"flagship": 3, "described": 1, "table": 1})
    assert fleet.frame().phone.tolist() == list(costs)
    assert fleet.frame().weight.tolist() == [0.6, 0.2, 0.2]
    assert fleet.curve()["mean"].tolist()[1] == fleet.mean_regret <= fleet.curve()["mean"][0]
    assert fleet.estimated and "plans for 3 phones" in repr(fleet)
    assert "Regret by the number of plans" in fleet._repr_html_()
    with pytest.raises(UsageError, match="has only latencies"):
        fleet.save(tmp_path / "few.nnprof")
    of_phones = np_.fleet(model, {name: costs[name] for name in ("flagship", "described")})
    bundle = read_bundle(of_phones.save(tmp_path / "few.nnprof"))
    assert bundle.plan_set is not None and bundle.plan_set == of_phones.bundle.plan_set
    for words, arguments in {
        "cost": {"costs": ["pixel4"]},
        "least": {"costs": []},
        "weights are 3 numbers": {"costs": costs, "weights": [1.0]},
        "a weight is for 'x'": {"costs": costs, "weights": {"x": 1.0}},
        "different conditions": {
            "costs": [*costs.values(), np_.estimate(model, "npu-phone", relaxed=True)]
        },
        "objective": {"costs": costs, "objective": "best"},
    }.items():
        with pytest.raises(UsageError, match=words):
            np_.fleet(model, **arguments)
