"""``nnapi-prof throughput``, and the function behind it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import nnapi_prof as np_
from nnapi_prof.errors import UsageError
from tests.cli.common import INPUT, Profiled, Result

Cli = Callable[..., Result]


def named(profiled: Profiled) -> list[object]:
    return ["--device", "sim:npu-phone", "--input", INPUT, "--costs", profiled.costs]


def test_frames_per_second_as_a_document(cli: Cli, profiled: Profiled) -> None:
    done = cli(
        *("throughput", *named(profiled), "--contention", 1.1, "--frames-in-flight", 4),
        *("--json", profiled.model),
    )
    document = done.document("throughput")
    contention = document["contention"]
    assert contention["basis"] == "given"
    assert {pair["factor"]["value"] for pair in contention["pairs"]} == {1.1}
    assert document["simulated"] and not document["estimated"]
    assert document["frames_in_flight"] <= 4
    rates = {row["how"]: row["frames_per_second"] for row in document["baselines"]}
    assert document["frames_per_second"] >= rates["best single device"] * (1 - 1e-9)
    assert document["frames_per_second"] <= document["most_per_second"] * (1 + 1e-9)
    assert document["proof"]["objective"] == "time a frame in ms"
    assert sum(plan["share"] for plan in document["plans"]) == pytest.approx(1.0)
    assert document["lanes"][0]["name"] == "cpu"
    assert [row["frames_in_flight"] for row in document["curve"]][:3] == [1, 2, 3]


def test_frames_per_second_for_people(cli: Cli, profiled: Profiled) -> None:
    out = cli("throughput", *named(profiled), profiled.model).out
    assert "Frames per second, predicted, simulated" in out
    assert "best single device" in out and "measured one at a time" in out
    assert "slow each other down 1.1 times is assumed" in " ".join(out.split())


def test_what_is_asked_is_checked(cli: Cli, profiled: Profiled) -> None:
    done = cli("throughput", *named(profiled), "--contention", 0.9, profiled.model)
    assert done.code == 2 and "--contention" in done.error
    slow = ("--contention", 1.1, "--max-latency-ms", 0.001)
    done = cli("throughput", *named(profiled), *slow, profiled.model)
    assert done.code == 1 and "one alone takes" in done.error


def test_from_python(profiled: Profiled) -> None:
    model = np_.load(profiled.model, inputs=[INPUT])
    costs = np_.read_costs(model, str(profiled.costs), "simulated npu*")
    found = np_.throughput(model, costs, contention={("cpu", "sim-npu"): 1.2}, frames_in_flight=3)
    assert found.contention.factors == {("cpu", "sim-npu"): 1.2}
    assert costs.contention.basis.value == "assumed"
    assert found.frames_per_second >= found.baselines["best single device"] * (1 - 1e-9)
    assert found.curve().frames_in_flight.tolist()[:3] == [1, 2, 3]
    assert "frames/s by" in repr(found) and "no plans do more than" in found._repr_html_()
    with pytest.raises(UsageError, match="frames per second are of latencies"):
        np_.throughput(model, costs.adjusted(weight={"*": 2.0}), contention=1.0)
    with pytest.raises(UsageError, match=r"contention is 0\.5"):
        np_.throughput(model, costs, contention=0.5)
    with pytest.raises(UsageError, match="frames_in_flight is 64"):
        np_.throughput(model, costs, contention=1.0, frames_in_flight=64)
