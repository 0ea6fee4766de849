"""What users do wrong, as cases: how each error is provoked, and what the user is told.

One case of each family of errors has its very words; the others have the facts that their words
must hold: which file, option, number or name it is about."""

import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from nnapi_prof.bundle.storage import VERSION
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import phone_file
from nnapi_prof.device.transport import adb
from tests.cli.common import INPUT, SIM, Profiled, trace

SHAPE = ("--input", INPUT)
Arguments = Sequence[object]


@dataclass(frozen=True)
class Place(Profiled):
    """Where a case happens: a folder of its own, a profiled model, and the tests' fixtures."""

    tmp: Path
    env: pytest.MonkeyPatch
    fixture: Callable[[str], Any]
    sim, shape = " ".join(SIM), " ".join(SHAPE)

    def file(self, name: str, content: str | bytes = "") -> Path:
        path = self.tmp / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@dataclass(frozen=True)
class Case:
    """``message`` is exact but for {tmp}, {model}, {serial} and {*}, any text; without one, the
    ``facts`` stand in what is told, in this order.

    ``document`` is what ``--json`` prints. ``needs`` are markers of tests/conftest.py, for what
    provokes it.
    """

    name: str
    provoke: Callable[[Place], Arguments]
    code: int
    message: str = ""
    facts: tuple[str, ...] = ()
    document: str = "error"
    needs: tuple[str, ...] = ()

    def matches(self, words: str) -> bool:
        """Whether a message with placeholders is this case's."""
        template = self.message or "{*}".join(("", *self.facts, ""))
        parts = [re.escape(part) for part in re.split(r"\{(?:\*|serial)\}", template)]
        return re.fullmatch((".+" if self.message else ".*").join(parts), words) is not None


CASES: list[Case] = []


def provoked(
    code: int, told: str | tuple[str, ...], **more: Any
) -> Callable[[Callable[[Place], Arguments]], None]:
    """Registers a function that makes an error possible and returns the command that meets it;
    what is told is a message, or facts."""

    def register(provoke: Callable[[Place], Arguments]) -> None:
        kind = "message" if isinstance(told, str) else "facts"
        case = Case(provoke.__name__, provoke, code, **{kind: told}, **more)
        assert case.name not in {each.name for each in CASES}, case.name
        CASES.append(case)

    return register


def met_by(
    line: str,
    code: int,
    told: str | tuple[str, ...],
    *,
    file: tuple[str, str] | None = None,
    variable: tuple[str, str] | None = None,
    **more: Any,
) -> None:
    """Registers a command line that meets an error; ``at`` is the place. Before, a file is written
    (its name there, and its content), or a variable of the environment set."""

    def provoke(at: Place) -> Arguments:
        words = line.format(at=at).split()
        if file is not None:
            at.file(*file)
        if variable is not None:
            at.env.setenv(variable[0], variable[1].format(at=at))
        return words

    provoke.__name__ = " ".join([*(file or variable or ())[:1], line])
    provoked(code, told, **more)(provoke)


PARTITION = "partition {at.sim} {at.shape} --costs {at.costs} -o {at.tmp}/x.nnprof {at.model}"
NPU = "conv2d*=nnapi:sim-npu/fast"

for line, code, told in (
    # ---- models and inputs
    ("profile {at.sim} {at.tmp}/absent.pt", 2,
     "{tmp}/absent.pt does not exist: give the path of a .pt or .pt2 file"),
    ("profile {at.sim} --input 1,3,16,16 {at.model}", 2,
     "input '1,3,16,16' is not a shape: write sizes joined by x, as in 1x3x224x224 or "
     "1x128:int64; ? or ?=256 leaves a size open, ?n or ?n=256 one that others have too, scalar is "
     "a tensor without dimensions"),
    ("profile {at.sim} {at.shape} {at.shape} {at.model}", 2,
     "tiny.pt takes 1 input, 2 were stated: give --input SHAPE once for each"),
    ("profile {at.sim} --input 1x3x16 {at.model}", 2,
     "tiny.pt does not run on the input 1x3x16: {*}: state the shapes it wants with --input, or "
     "values with --input @FILE.npz"),
    ("profile {at.sim} {at.shape}:int64 {at.model}", 2, ("tiny.pt", "1x3x16x16:int64", "--input")),
    ("convert --input 1x3x?x? --format json {at.model}", 2,
     "--format json and cpp are for fixed sizes: state them instead of ?"),
    # ---- plans
    ("partition {at.sim} {at.shape} --costs {at.tmp}/new.sqlite {at.model}", 1,
     "5 of the model's 5 units were never measured on this device (the first is clone, "
     "to_channels_last 1x3x16x16); run nnapi-prof profile with the same model, inputs and device"),
    (f"{PARTITION} --pin softmax*=cpu", 2,
     "--pin softmax*=cpu: no unit is called so: name some of the model's, which begins with "
     "to_channels_last, conv2d+relu, sigmoid"),
    (f"{PARTITION} --pin {NPU} --forbid {NPU}", 1,
     "the constraints leave conv2d+relu 3x3 3->8 16x16 (unit 1) nowhere to run (cpu and 3 more: "
     "pinned to nnapi:sim-npu/fast; nnapi:sim-npu/fast: forbidden): allow it on one of these "
     "targets"),
    (f"{PARTITION} --pin {NPU} --max-regions 0", 1, ("at most 0", "segments")),
    (f"{PARTITION} --pin {NPU} --max-compile-ms 0.001", 1, ("compiles", "0.00100 ms")),
    # ---- bundles, conversions, reports
    ("run {at.sim} {at.tmp}/absent.nnprof", 2,
     "bundle {tmp}/absent.nnprof does not exist: `nnapi-prof partition` makes one"),
    ("convert {at.shape} --format runtime {at.model}", 2,
     ("--format runtime", "bundles", "{model}")),
    ("convert {at.shape} -o /proc/absent/out.pt {at.model}", 2,
     ("/proc/absent/out.pt", "No such file", "--output")),
    ("report --costs {at.costs} -o {at.tmp}/x.pdf {at.bundle}", 2,
     "the ending of {tmp}/x.pdf names no format: there are .html, .md, .trace.json, .json, or say "
     "--format html|md|trace|json"),
    # ---- devices
    ("profile --device R5CT12 {at.shape} {at.model}", 1,
     "no device R5CT12: there are local, sim:dsp-phone, sim:gpu-phone, sim:npu-phone, "
     "sim:slow-nnapi-phone; HOST:PORT reaches a phone over the network"),
    ("profile --device sim:npu-fone {at.shape} {at.model}", 1,
     "no simulated phone 'npu-fone' (did you mean npu-phone?): there are dsp-phone, gpu-phone, "
     "npu-phone, slow-nnapi-phone; sim:PATH.json takes a description of your own"),
    ("profile --device sim:gpu-phone --accelerator tpu {at.shape} {at.model}", 2,
     "no accelerator 'tpu' on this device; there are: sim-gpu, nnapi-reference, auto"),
    # ---- cost tables and estimates
    ("profile {at.sim} {at.shape} --costs postgresql://me:secret@127.0.0.1:1/costs {at.model}", 1,
     "cost table postgresql+psycopg://me:***@127.0.0.1:1/costs: cannot open it: {*}; check that "
     "it is within reach and yours, or name another with --costs or $NNAPI_PROF_COSTS"),
    ("profile {at.sim} {at.shape} --costs postgresql://me@host:port/costs {at.model}", 1,
     ("URL", "'port'", "--costs")),
    ("costs show --costs {at.costs} --device pixel", 2,
     "no device of the cost table is called 'pixel'; there are: {*} (simulated npu-phone); "
     "`nnapi-prof costs list` shows them"),
    ("costs show --costs {at.costs} --since yesterday", 2,
     "--since 'yesterday' is not a date: write 2026-01-31 or 2026-01-31T12:30"),
    ("costs show --costs {at.costs} --format csv -o /proc/absent/costs.csv", 2,
     "cannot write /proc/absent/costs.csv: No such file or directory: name another --output"),
    ("estimate --phone pixel44 {at.shape} {at.model}", 2,
     "no phone 'pixel44' (did you mean pixel4?): there are dsp-phone, gpu-phone, npu-phone, "
     "slow-nnapi-phone, a03s, mi8se, pixel4, s10, sm8750, or name a JSON file that `nnapi-prof "
     "calibrate` wrote"),
):  # fmt: skip
    met_by(line, code, told)
met_by(
    "report --costs {at.costs} -o /proc/absent.html {at.bundle}",
    2,
    ("/proc/absent.html", "No such file", "--output"),
    document="report",
)

for name, content, line, code, told in (
    ("profiled/tiny.nnprof/run.json", "{", "report --costs {at.costs} {at.bundle}", 1,
     "{tmp}/profiled/tiny.nnprof/run.json: this is not a run report (Expecting property name "
     "enclosed in double quotes: line 1 column 2 (char 1)); `nnapi-prof run` makes it again"),
    ("new.nnprof/manifest.json", '{"ver', "compare {at.tmp}/new.nnprof {at.bundle}", 1,
     ("new.nnprof: the bundle is damaged", "nnapi-prof partition")),
    ("new.nnprof", "", "compare {at.tmp}/new.nnprof {at.bundle}", 2,
     "{tmp}/new.nnprof is not a bundle: `nnapi-prof partition` makes one"),
    ("mine.json", "{", "profile --device sim:{at.tmp}/mine.json {at.shape} {at.model}", 1,
     ("{tmp}/mine.json", "line 1, column 2")),
    ("mine.json", "{", "estimate --phone {at.tmp}/mine.json {at.shape} {at.model}", 2,
     ("{tmp}/mine.json", "JSON", "line 1 column 2")),
    ("junk.sqlite", "hello " * 200,
     "profile {at.sim} {at.shape} --costs {at.tmp}/junk.sqlite {at.model}", 1,
     "cost table {tmp}/junk.sqlite: cannot open it: file is not a database; check that it is a "
     "file of nnapi-prof and writable, or name another with --costs or $NNAPI_PROF_COSTS"),
):  # fmt: skip
    met_by(line, code, told, file=(name, content))
for name, value, line, told in (
    ("ANDROID_USER_HOME", "/proc/absent", "agent info --device 127.0.0.1:1",
     ("/proc/absent/adbkey", "No such file", "ADB_VENDOR_KEYS")),
    ("NNAPI_PROF_CC", "no-such-cc",
     "profile {at.sim} {at.shape} --costs {at.tmp}/costs.sqlite {at.model}",
     "NNAPI_PROF_CC is 'no-such-cc', which is not a working C compiler: name another, or unset it "
     "(`nnapi-prof doctor` tells what is wrong)"),
    ("NNAPI_PROF_CACHE_DIR", "/proc/absent", "run {at.sim} {at.bundle}",
     ("/proc/absent", "No such file", "NNAPI_PROF_CACHE_DIR")),
    ("NNAPI_PROF_XNNPACK", "{at.tmp}", "agent info {at.sim}", ("NNAPI_PROF_XNNPACK", "{tmp}")),
):  # fmt: skip
    met_by(line, 1, told, variable=(name, value))


# ---- models ------------------------------------------------------------------------------------


@provoked(
    2, "{tmp}/cut.pt is truncated or damaged (File is not a zip file): save or copy the file again"
)
def a_truncated_model(at: Place) -> Arguments:
    cut = at.file("cut.pt", at.model.read_bytes()[:2000])
    return ["estimate", "--phone", "pixel4", *SHAPE, cut]


@provoked(
    1,
    "{tmp}/nothing.pt computes nothing: its outputs are constants or its inputs as they are; "
    "give a model with operations to measure and to place",
)
def a_model_that_computes_nothing(at: Place) -> Arguments:
    return ["profile", *SIM, *SHAPE, trace(nn.Identity(), at.tmp / "nothing.pt")]


# ---- bundles -----------------------------------------------------------------------------------


@provoked(
    1,
    "{tmp}/profiled/tiny.nnprof: the bundle was made by a newer nnapi-prof (its version is 4, "
    "3 is read): update nnapi-prof, or make it again with `nnapi-prof partition`",
)
def a_bundle_of_a_newer_version(at: Place) -> Arguments:
    manifest = at.bundle / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": VERSION + 1}))
    return ["run", *SIM, at.bundle]


# ---- devices, their descriptions and storage; what agents are built with -----------------------


@provoked(
    1,
    "no phone can be simulated by {tmp}/mine.json: accelerators[0].feature_level: found "
    '"high", wanted a whole number from 27 to 31: fix the description '
    "(device_agent/emulator/PHONES.md)",
)
def a_description_with_a_wrong_value(at: Place) -> Arguments:
    described = json.loads(phone_file("gpu-phone").read_text())
    described["accelerators"][0]["feature_level"] = "high"
    mine = at.file("mine.json", json.dumps(described))
    return ["profile", "--device", f"sim:{mine}", *SHAPE, at.model]


@provoked(1, ("{serial}", "no answer for 0.3 s"))
def an_offline_phone(at: Place) -> Arguments:
    at.env.setattr(adb, "LINK_TIMEOUT_S", 0.3)
    return ["run", "--device", at.fixture("asking_phone")(silent=True).serial, at.bundle]


@provoked(
    1,
    ("{serial}", "/data/local/tmp/nnapi-prof/", "126: Permission denied", "NNAPI_PROF_REMOTE_DIR"),
    needs=("adbd",),
)
def storage_that_forbids_execution(at: Place) -> Arguments:
    return ["agent", "push", "--device", at.fixture("start_adbd")(storage="64m,noexec")]


# ---- cost tables and estimates -----------------------------------------------------------------


@provoked(2, ("cost table", "empty"))
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
    with sqlite3.connect(at.costs) as link:
        link.execute(f"delete from measurements where id != {first}")
    link.close()
    return ["calibrate", "--costs", at.costs, "-o", at.tmp / "phone.json"]
