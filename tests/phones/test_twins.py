"""Each phone with a trouble, or several, against its twin without: the plan, the unit costs, what
failed and the time that measuring takes. A twin of a driver that never runs an operation refuses
it. Most troubles are of a driver whose service dies and returns, and last of a phone that reboots.
"""

import copy
import dataclasses
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import nnapi_prof as np_
from nnapi_prof.convert import ModelBuilder
from nnapi_prof.convert.region import Region, operand_of
from nnapi_prof.costs import Conditions
from nnapi_prof.costs.measurement import FAILURES, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.device.find import open_device
from nnapi_prof.device.protocol import ActionResult
from nnapi_prof.device.protocol.actions import TensorSource, Timing
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.errors import DeviceError
from nnapi_prof.execution import ActionOptions
from nnapi_prof.execution.actions import build_action
from nnapi_prof.graph import Quantisation, TensorType
from nnapi_prof.graph.plan import Preference, Target
from nnapi_prof.nnapi.codes import OperationCode
from tests.cli.common import trace
from tests.emulator.phones.descriptions import ratio
from tests.parts import again_but
from tests.phones import conftest
from tests.phones.conftest import CLEAN, check_like, die, fault, refuse, service

pytestmark = pytest.mark.slow


GOVERNED = {**CLEAN, "cpu": {**CLEAN["cpu"], "governor": conftest.GOVERNOR}}
STEADY = {
    **GOVERNED,
    "cpu": {**GOVERNED["cpu"], "governor": conftest.GOVERNOR | {"lowest": ratio(1)}},
}
"""Its clock never falls, which nobody knows: rounds begin as on a real phone."""
ANDROID_10: conftest.Description = {
    **CLEAN,
    "properties": {**CLEAN["properties"], "ro.build.version.sdk": "29"},
    "accelerators": [{**each, "feature_level": 29} for each in CLEAN["accelerators"]],
}


WRONG = copy.deepcopy(CLEAN)
WRONG["accelerators"][0]["errors"] = [
    {"operation": "MAX_POOL_2D", "how": "nan", "origin": "assumed: a test"}
]
EVERYTHING = service(
    service(GOVERNED, "sim-gpu", memory=["memfd"], compilations=2),
    memory=["file"],
    **dict(compilations=1, loaded=1, load=5000, returns=0.5),
)


@dataclasses.dataclass(frozen=True)
class Phone:
    """A phone that is the twin's but for its trouble."""

    troubled: conftest.Description
    twin: conftest.Description = dataclasses.field(default_factory=lambda: CLEAN)
    how: str = ""
    """A word of the failures' messages, if its NPU never runs a pooling."""


def never(
    kind: str, stage: str, how: str, on: conftest.Description = CLEAN, **members: Any
) -> Phone:
    """An NPU with a fault at every pooling."""
    troubled = fault(service(on, **members), kind=kind, stage=stage, operation="MAX_POOL_2D")
    return Phone(troubled, refuse(on, "MAX_POOL_2D"), how)


DEAD = "DEAD_OBJECT"
PHONES = {
    "governor": Phone(GOVERNED, STEADY),
    "dies once in a run": Phone(die(service(CLEAN, returns=1), "CONV_2D", times=1, from_run=3)),
    "dies once while compiling": Phone(die(service(CLEAN, returns=1), "ADD", "compile", times=1)),
    "dies in every run": never("die", "execute", DEAD, returns=0.3),
    "dies at every compilation": never("die", "compile", DEAD, returns=0.3),
    "dies on Android 10": never("die", "execute", "logcat", ANDROID_10, returns=0.3),
    "dies in every run under a governor": never("die", "execute", DEAD, GOVERNED, returns=0.3),
    "dies at every compilation, holds one, maps files alone": never(
        "die", "compile", DEAD, returns=0.3, compilations=1, memory=["file"]
    ),
    "crashes its client in memory that it maps": never(
        "crash", "execute", "SIGSEGV", memory=["memfd"], loaded=1, load=5000
    ),
    "lingers under a governor": never(
        "hang", "execute", "not done", GOVERNED, lingers=0.5, lingers_factor=4
    ),
    "writes no output": never("skip", "execute", "unwritten"),
    "writes a part of its output": never("partly", "execute", "unwritten"),
    # The logarithm of a negative number is NaN everywhere, and no fault.
    "writes NaN where the CPU does not": Phone(WRONG, refuse(CLEAN, "MAX_POOL_2D"), "NaN"),
    "everything": Phone(die(EVERYTHING, "DEPTHWISE_CONV_2D", times=1), GOVERNED),
}
ALONE = [name for name in PHONES if name.startswith("writes")] + ["governor", "everything"]
ALONE += ["dies once in a run", "dies on Android 10", "lingers under a governor"]


@pytest.mark.parametrize("name", again_but(PHONES, *ALONE, why="part of another phone's trouble"))
def test_profile_and_plan_are_the_twins(profiled, name):
    phone = PHONES[name]
    clean = profiled(phone.twin, "twin", timeout_s=2)
    troubled = profiled(phone.troubled, timeout_s=2)
    assert troubled.segments == clean.segments
    # NNAPI's own choice meets the fault, too; the CPU may be where it ends.
    unlike = [w for w in troubled.unlike(clean) if not (phone.how and w.startswith("max_pool2d"))]
    assert unlike == []
    failed = {(label.split()[0], target) for label, target in troubled.failures}
    true = {("max_pool2d", "sim-npu")} if phone.how else set()
    # NNAPI's choice, too; of what it is not told it gives the whole network, of what hung nothing.
    auto = {("max_pool2d", "auto")} if not name.startswith("lingers") else set()
    if name.startswith("writes"):
        auto.add(("to_channels_last", "auto"))
    assert failed - auto == true
    assert all(phone.how in message for message in troubled.failures.values())
    assert troubled.seconds <= 1.5 * clean.seconds
    if name == "dies once in a run":
        assert max(row.attempts for row in troubled.rows) == 2


# ---- drivers that die, hang, or come back as others ----------------------------------------------


@pytest.mark.parametrize("operation", again_but(["CONV_2D", "ADD"], "CONV_2D", why="another unit"))
def test_a_driver_that_answers_otherwise_the_second_time(profiled, operation):
    """It says once that it does not support an operation."""
    clean = profiled(CLEAN, "twin")
    twice = profiled(refuse(CLEAN, operation, times=1))
    refused = {(row.label, row.target) for row in clean.rows if row.status is Status.REFUSED}
    assert {(r.label, r.target) for r in twice.rows if r.status is Status.REFUSED} == refused
    check_like(twice, clean)


def test_a_driver_that_dies_beside_another_accelerators_models_runs_alone(profiled, tmp_path):
    alone = profiled(die(service(CLEAN, returns=0.1), "CONV_2D", company=1))
    check_like(alone, profiled(CLEAN, "twin"))
    assert conftest.deaths_of_the_npu(tmp_path) < 20, "it is not tried in company again and again"


def test_only_what_kills_the_driver_has_failed(profiled, tmp_path):
    """Its neighbours in the group do not fail with it, nor does NNAPI's own choice count as fast as
    the CPU that it falls back to."""
    clean = profiled(CLEAN, "twin")
    always = profiled(die(service(CLEAN, returns=0.5), "MAX_POOL_2D"))
    # The unit, once more alone, and the whole model on auto.
    assert conftest.deaths_of_the_npu(tmp_path) == 3
    words = {(label.split()[0], target) for label, target in always.failures}
    assert words == {("max_pool2d", "sim-npu")}
    assert all("DEAD_OBJECT" in message for message in always.failures.values())
    failed = [row for row in always.rows if row.status is Status.FAILED]
    assert {row.attempts for row in failed} == {2}
    unlike = [words for words in always.unlike(clean) if not words.startswith("max_pool2d")]
    assert unlike == []


def test_failures_of_an_agent_that_did_not_try_again_are_measured_again(profiled, tmp_path):
    """A table that was filled while a driver died, used again by another model."""
    clean = profiled(CLEAN)
    with sqlite3.connect(tmp_path / "phone.sqlite") as table:
        table.execute(
            "update measurements set status = 'failed', samples_ns = '[]', attempts = null"
            " where target like 'nnapi:sim-npu%'"
        )
    check_like(profiled(CLEAN), clean)


class Shorter(conftest.TenUnits):
    """Another network with many of the same units."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        x = torch.relu(self.fourth(torch.sigmoid(x)))
        return self.last((x + self.fifth(x)).mean((2, 3)))


def test_a_table_filled_while_a_driver_died_plans_another_model_a_day_later(profiled, tmp_path):
    """It died so often that units failed alone, too."""
    ill = die(service(CLEAN, returns=0.2), "CONV_2D", times=5)
    assert profiled(ill, "filled").failures
    with sqlite3.connect(tmp_path / "filled.sqlite") as table:
        table.execute("update measurements set measured_at = replace(measured_at, '20', '19')")
    trace(Shorter(), tmp_path / "shorter.pt", (1, 3, 64, 64))
    shorter = np_.load(tmp_path / "shorter.pt", "1x3x64x64")
    later, clean = profiled(ill, "filled", shorter), profiled(ill, "clean", shorter)
    assert clean.failures == {}
    names = {(unit.label, target) for unit in shorter.graph.units for target in ("sim-npu", "auto")}
    assert names.isdisjoint(later.failures)
    assert later.segments == clean.segments
    # Where NNAPI chose, and the driver died in both attempts, the CPU's time was a true one.
    assert [words for words in later.unlike(clean) if "on nnapi:auto" not in words] == []


def test_another_model_does_not_kill_the_driver_again(profiled, tmp_path):
    died = die(service(CLEAN, returns=0.2), "MAX_POOL_2D")
    first = profiled(died)
    squashed = nn.Sequential(conftest.TenUnits(), nn.Sigmoid())  # has all of these units
    trace(squashed, tmp_path / "squashed.pt", (1, 3, 64, 64))
    second = profiled(died, model=np_.load(tmp_path / "squashed.pt", "1x3x64x64"))
    assert first.failures == second.failures != {}
    tried = [row for row in second.rows if row.status in FAILURES]
    assert tried == [row for row in first.rows if row.status in FAILURES]


def test_a_driver_that_hangs_ends_the_request_and_is_named(profiled):
    stopped = service(CLEAN, "sim-gpu", returns=1)
    stopped = fault(stopped, "sim-gpu", kind="stop", stage="execute", operation="CONV_2D", times=1)
    told, others = list[str](), list[Future[conftest.Profile]]()

    def note(progress: np_.Progress) -> None:
        told.append(progress.label)
        if "no progress for" in progress.label and not others:
            # From the start, too: nothing is measured of a device that seems to have a CPU only.
            others.append(pool.submit(profiled, stopped))

    with ThreadPoolExecutor() as pool:
        with pytest.raises(DeviceError, match="the driver sim-gpu hangs"):
            profiled(stopped, progress=note)
        assert any("no progress for" in words for words in told)
        with pytest.raises(DeviceError, match="the driver sim-gpu hangs"):
            others[0].result()


def test_what_is_measured_after_a_driver_went_on_is_as_if_it_never_hung(profiled):
    stopped = service(CLEAN, stops=3)
    stopped = fault(stopped, kind="stop", stage="compile", operation="CONV_2D", nth=1, times=1)
    check_like(profiled(stopped), profiled(CLEAN, "twin"))


@pytest.mark.parametrize("becomes", ["2.0", "gone"], ids=["another version", "gone"])
def test_a_driver_that_comes_back_as_another(profiled, tmp_path, becomes):
    """One error says so; the next profile has right rows of what there is now, and that after it,
    of what there was before, again."""
    clean = profiled(CLEAN, "twin")
    other = die(service(CLEAN, returns=0.1, becomes=becomes), "CONV_2D", times=1)
    with pytest.raises(DeviceError, match=r"sim-npu of version 1\.0 is "):
        profiled(other)
    after = profiled(other)
    assert after.failures == {}
    rows = [row for row in after.rows if row.target.accelerator == "sim-npu"]
    of_now = {row.signature for row in rows if row.driver_version == becomes}
    assert of_now == (set() if becomes == "gone" else {row.signature for row in rows})
    if becomes != "gone":
        assert (after.segments, after.unlike(clean)) == (clean.segments, [])
    else:
        assert "sim-npu" not in {target for _, target in after.segments}
    (state,) = tmp_path.glob("nnapi-emulator-*")

    def restart(progress: np_.Progress) -> None:
        state.unlink(missing_ok=True)

    if becomes == "gone":  # it appears in the middle of a profile
        with pytest.raises(DeviceError, match="there is an accelerator sim-npu now"):
            profiled(other, "appears", progress=restart)


@pytest.mark.parametrize("zero_point", [0xA5, 0x5A])
def test_outputs_that_equal_the_pattern_are_written(built_host, phone, zero_point):
    """Zeros of a quantised tensor may be the byte by which unwritten outputs are known."""
    type_ = TensorType((1, 64), "uint8", quant=Quantisation(0.05, zero_point))
    operand = operand_of(type_)
    builder = ModelBuilder(27)
    result = builder.add(OperationCode.RELU, [builder.input(operand)], operand.dims)
    model, blobs = builder.finish([result]), tuple(builder.blobs)
    region = Region(model, blobs, ("in",), ("out",), (type_,), (type_,), 27)
    timing = Timing(warmup_min=2, warmup_max=2, rounds=1, min_runs=2, max_runs=2, budget_ns=0)
    target = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)

    def status_on(description):
        request = RequestBuilder()
        # Bytes of 0 are negative numbers, of which RELU makes the zero point.
        options = ActionOptions(Conditions(), 0, 0)
        zeros = (TensorSource.ZERO, 0)
        action = build_action(0, [(target, region)], lambda _: zeros, request, timing, options)
        request.add_action(action.spec)
        with open_device(phone(description)) as opened:
            events = list(opened.client.run(request.request()))
        (answer,) = (event for event in events if isinstance(event, ActionResult))
        return answer.status

    assert status_on(CLEAN) is Status.OK
    silent = fault(CLEAN, kind="skip", stage="execute", operation="RELU")
    assert status_on(silent) is Status.FAILED


def test_a_reboot_loses_nothing_that_was_measured(ten_units, start_daemon, monkeypatch, tmp_path):
    """The connection and all processes end at once; what comes back has the store of before."""
    daemons = [start_daemon("npu-phone")]
    monkeypatch.setenv("NNAPI_PROF_REMOTE_DIR", daemons[0].remote_dir)
    table = tmp_path / "costs.sqlite"

    def reboot(progress: np_.Progress) -> None:
        if progress.phase == "units" and progress.done == 3:
            daemons[0].kill()

    def profile(**options) -> np_.Costs:
        unrefined = np_.MeasureOptions(refine=False)
        return np_.profile(ten_units, daemons[-1].serial, costs=table, options=unrefined, **options)

    def rows() -> list[Any]:
        with CostStore(table) as store:
            return store.select(Selection())

    with pytest.raises(DeviceError, match=r"the \d+ measurements made before are kept"):
        profile(progress=reboot)
    kept = rows()
    assert len(kept) > 3 and all(row.status.value != "crashed" for row in kept)
    daemons.append(start_daemon("npu-phone"))
    if not daemons[1].private:
        monkeypatch.setenv("NNAPI_PROF_REMOTE_DIR", daemons[1].remote_dir)
    again = profile()
    new = rows()[len(kept) :]
    assert rows()[: len(kept)] == kept and new
    assert {row.key for row in kept}.isdisjoint(row.key for row in new), "nothing is measured twice"
    assert np_.partition(ten_units, again, verify=False).plan.segments
