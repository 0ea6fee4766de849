"""What a user is told whose command fails: provoked for real, each error once.

Of all cases: one message of at most three lines that says what was wrong, where, and what to do; no
traceback; nothing on standard output, or under ``--json`` one document with the same words. Those
with a family's very words run for people, the others for programs.
"""

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests import warm
from tests.cli.common import INPUT, Result, count_rows, start_program
from tests.cli.messages import CASES, SHAPE, Place
from tests.conftest import rig
from tests.doctor.common import without_root
from tests.doctor.conftest import open_folder as open_folder
from tests.processes import wait_until

# How a message tells what to do: an order, a command, or what there is to choose from.
ADVICE = re.compile(
    r"(?:[:;,(] |\bor )(?:allow|check|choose|confirm|free|give|leave|make|fix|name|put|remove|run|"
    r"save|say|see|state|update|use|write|unset|add|on the phone, switch on)\b"
    r"|: `nnapi-prof|; `nnapi-prof|there (?:are|is):? \S|--costs and \$|one of .* is required"
    r"|must be at least|must be left open in `|\? See `"
)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[getattr(pytest.mark, need) for need in case.needs])
        for case in CASES
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit announces its retirement
def test_words(case, cli, profiled, tmp_path, monkeypatch, request):
    """Programs get the facts in the same words, and nothing else; or what was there before it
    failed."""
    own = (profiled.model, profiled.costs, profiled.bundle)
    place = Place(*own, tmp_path, monkeypatch, request.getfixturevalue)
    result = cli(*case.provoke(place), *(() if case.message else ("--json",)))
    # The cases have placeholders for the test's own folder and model.
    words = result.error.replace(str(tmp_path), "{tmp}").replace(str(place.model), "{model}")
    assert case.matches(words), f"{words}\n!=\n{case.message or case.facts}"
    assert result.code == case.code
    assert sum("nnapi-prof: error: " in line for line in result.err.splitlines()) == 1
    assert len(words) <= 3 * 110
    assert ADVICE.search(words), f"says nothing to do: {words}"
    if case.message:
        assert result.out == ""
        return
    document = result.document(case.document)
    if case.document == "error":
        assert (document["message"], document["exit_code"]) == (result.error, result.code)


def test_a_cost_table_of_another_user(cli, profiled, open_folder):
    """One that may be read is read; it is not written to."""
    table, other = open_folder / "costs.sqlite", open_folder / "other.sqlite"
    cli.ok("costs", "merge", "--costs", table, profiled.costs)
    with sqlite3.connect(table) as link:
        link.execute("pragma journal_mode = delete")
        shutil.copy(table, other)
        link.execute("delete from measurements")
    link.close()
    table.chmod(0o444)
    with without_root():
        listed = cli("costs", "list", "--costs", table)
        result = cli("costs", "merge", "--costs", table, other)
    assert listed.code == 0
    assert result.code == 1 and result.out == ""
    assert result.error == (
        f"cost table {table}: cannot write it: attempt to write a readonly database; check that it "
        "is a file of nnapi-prof and writable, or name another with --costs or $NNAPI_PROF_COSTS"
    )


# ---- what happens to a process -----------------------------------------------------------------


def test_ctrl_c(tiny):
    """Pressed while the model is read, long before anything was measured."""
    process = start_program("estimate", "--phone", "pixel4", *SHAPE, "--json", tiny)
    maps = Path(f"/proc/{process.pid}/maps")
    deadline = time.monotonic() + 110  # importing torch takes long on a busy machine
    while "libtorch" not in maps.read_text():  # the command runs: torch is being imported
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    result = Result(process.returncode, out, err)
    assert result.code == 130 and "Traceback" not in result.err
    assert result.err.splitlines()[-1] == "nnapi-prof: interrupted"
    assert result.document("error")["exit_code"] == 130


ON_A_FULL_DISK = """
import contextlib, ctypes, subprocess, sys
from nnapi_prof.cli import main
CLONE_NEWNS = 0x20000
assert ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", sys.argv[1]], check=True)
for line in sys.argv[2:]:
    with contextlib.suppress(SystemExit):
        main(line.split())
"""


@pytest.mark.slow
def test_a_full_disk(profiled, tmp_path):
    """One process writes a report, a bundle and an export there."""
    if os.geteuid() != 0 or rig.mount_isolation() is None:
        pytest.skip("needs a mount namespace: run the tests as root")
    full, (costs, bundle) = tmp_path / "full", (profiled.costs, profiled.bundle)
    full.mkdir()
    lines = (
        f"report --costs {costs} -o {full}/x.html {bundle}",
        f"partition {Place.sim} {Place.shape} --costs {costs} -o {full}/x.nnprof {profiled.model}",
        f"costs show --costs {costs} --format csv -o {full}/x.csv",
    )
    command = (*warm.python(), "-c", ON_A_FULL_DISK, full, *lines)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    files = (f"the report {full}/x.html", f"{full}/x.nnprof", f"{full}/x.csv")
    problem = "No space left on device: name another --output"
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert errors == [f"nnapi-prof: error: cannot write {file}: {problem}" for file in files]
    assert done.stdout == "" and "Traceback" not in done.stderr


@pytest.mark.slow("measures for real")
def test_ctrl_c_keeps_what_was_measured(cli, tiny, tmp_path):
    costs = tmp_path / "costs.sqlite"
    named = ("--device", "local", "--accelerator", "auto", "--input", INPUT, "--costs", costs)
    fast = (*named, "--preference", "fast", "--threads", 1, "--no-refine", "--warmup-ms", 5)
    over = threading.Event()

    def press() -> None:
        wait_until(lambda: count_rows(costs) >= 4 or over.is_set(), timeout_s=300)
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    done = cli("profile", *fast, "--runs", 100_000, "--budget-ms", 300, tiny)
    over.set()
    rows = count_rows(costs)
    assert done.code == 130 and rows >= 4
    assert done.out.startswith(f"interrupted: {rows} measured, 0 refused by the converter")
    assert "Traceback" not in done.out + done.err and "error:" not in done.err
    result = cli.ok("profile", *fast, "--runs", 5, "--budget-ms", 20, tiny)
    counts = re.search(r"(\d+) measured, 0 refused .*, (\d+) known before", result.out)
    assert counts is not None and int(counts[1]) > 0 and int(counts[2]) >= rows
    assert count_rows(costs) == rows + int(counts[1])
    with contextlib.closing(sqlite3.connect(costs)) as link:
        # The reference runs again and again, and what was measured in a drifting window again.
        query = (
            "select count(*) from measurements where kind <> 'anchor' and drift_percent is null"
            " group by signature, target, threads having count(*) > 1"
        )
        assert link.execute(query).fetchall() == []


TABLE = f"--input {INPUT} --costs {{costs}}"
NAMED = f"{TABLE} --device sim:npu-phone"
MISUSED = [
    # ---- any command
    ("frobnicate", "no such command 'frobnicate': see `nnapi-prof --help`"),
    ("profil", "no such command 'profil': did you mean 'profile'? See `nnapi-prof --help`"),
    ("run --runz 3", "no such option '--runz': did you mean '--runs'? See `nnapi-prof"),
    ("--frobnicate", "no such option '--frobnicate': see `nnapi-prof --help`"),
    ("run --frob x", "no such option '--frob': see `nnapi-prof run --help`"),
    ("profile", "missing argument 'MODEL': see `nnapi-prof profile --help`"),
    ("profile a.pt b.pt", "got unexpected extra argument (b.pt): see `nnapi-prof"),
    ("profile --costs", "option '--costs' requires an argument"),
    ("profile --runs 0 a.pt", "invalid value for '--runs': 0 is not in the range"),
    ("profile --runs many a.pt", "'many' is not a valid integer"),
    ("profile --preference slow a.pt", "'low_power', 'fast', 'sustained'"),
    ("run --tolerance -1 a", "invalid value for '--tolerance'"),
    ("devices -q -v", "exclude each other"),
    ("schema devics", "no document 'devics' (did you mean devices?)"),
    ("completion tcsh", "'bash', 'zsh', 'fish'"),
    # ---- conditions, and doors to NNAPI
    ("profile {named} --relaxed --float16 {model}", "--float16 has no float32"),
    ("profile {named} --cpus little {model}", "'little' is neither big nor all nor a mask like"),
    ("profile {named} --threads few {model}", "'few' is neither auto nor a number from 1 to "),
    ("profile {named} --memory-mb 0 {model}", "invalid value for '--memory-mb'"),
    ("profile {named} --cooldown-s -1 {model}", "invalid value for '--cooldown-s'"),
    ("partition {named} --memory-mb 0 {model}", "invalid value for '--memory-mb'"),
    ("partition {named} --cooldown-s -1 {model}", "invalid value for '--cooldown-s'"),
    ("profile {named},library=/a.so --nnapi-library /b.so {model}", "leave one out"),
    ("profile {named},library= {model}", "names no library"),
    # ---- plans
    ("partition {named} -o {out} --max-error 0.001 {model}", "add one of them"),
    ("partition {named} -o {out} --forbid conv2d*=tpu {model}", "no target 'tpu'; there are cpu,"),
    ("partition {named} -o {out} --pin conv2d* {model}", "say where, as in --pin 'conv2d*=cpu'"),
    ("partition {named} -o {out} --pin conv2d*=nnapi:* {model}", "one target wanted"),
    ("partition {named} -o {out} --pin conv2d*=cpu --pin *=nnapi:sim-npu/fast {model}",
     "is pinned to cpu, too"),
    ("partition {named} -o {out} --preference low_power {model}", "nothing was measured under it"),
    ("partition {named} --frames-in-flight 2 {model}",
     "--frames-in-flight is for --objective throughput"),
    ("partition {named} --objective throughput --pin conv2d*=cpu {model}",
     "--pin and --objective throughput exclude each other"),
    ("partition {named} --parallel --max-regions 1 {model}",
     "--max-regions and --parallel exclude each other"),
    ("pareto {named} --budget much {model}", "'much' is not an error: write 2%, 0.02 or 34dB"),
    ("pareto {named} --budget 1.2.3 {model}", "'1.2.3' is not an error: write 2%, 0.02 or"),
    ("pareto {named} --precisions int3 {model}", "some of float32,relaxed,float16,int8 are"),
    ("pareto {named} --precisions float32 {model}", "name them with --precisions"),
    ("fleet {table} --phones pixel* {model}", "no device of the cost table is called 'pixel*'"),
    ("fleet {table} --weight gpu {model}", "a pattern of phones and a number"),
    ("fleet {table} --weight *=0 {model}", "the weight of some phone is above 0"),
    ("fleet {table} --weight pixel*=1 {model}", "no device of the cost table is called"),
    # ---- estimates and cost tables
    ("estimate --phone pixel4 --threads 4 {model}", "pixel4 was measured with 1 CPU thread"),
    ("estimate --phone pixel4 --burst {model}", "not measured with --burst"),
    ("calibrate --costs {costs} --device nobody", "no device of the cost table is called 'nobody'"),
    ("costs frobnicate", "no such command 'frobnicate'"),
    ("costs show --costs {costs} --kind block", "invalid value for '--kind'"),
    ("costs show --costs {costs} --input 1x3", "--input is of a --model, and none was given"),
    ("costs show --costs {costs} --model absent.pt", "absent.pt does not exist"),
    ("costs show --costs {costs} -o rows.csv", "--output is for --format csv or parquet"),
    ("costs show --costs {costs} --format csv --limit 3", "leave --limit and --json out"),
    ("costs show --costs {costs} --format xlsx", "'xlsx' is not one of"),
    ("costs merge --costs {costs}", "missing argument 'TABLE...'"),
    ("costs prune --costs {costs} --yes", "nothing says what to delete: "),
    # ---- conversions
    ("convert --level 6 a.pt", "6 is not one of 27, 28, 29, 30, 31, 1000006, 1000007, 1000008"),
    ("convert --level thirty a.pt", "thirty is not one of 27, 28, 29, 30, 31, 1000006"),
    ("convert --input 1x3 {bundle}", "--input is for models: a bundle has its own"),
    ("convert --min-region 2 {bundle}", "--min-region is for models: a bundle has its own"),
    ("convert --whole {bundle}", "--whole is for models: a bundle has its own"),
    ("convert --preference fast {bundle}", "--preference is for models: a bundle has its own"),
    ("convert --costs {costs} {model}", "--costs is for bundles and stock PyTorch"),
    ("convert --costs {costs} --to runtime {bundle}", "--costs is for bundles and stock PyTorch"),
    # ---- reports and comparisons
    ("report --costs {costs} {bundle} {bundle}", "`nnapi-prof compare BASE NEW`"),
    ("report --costs {costs} --run npu --run gpu {bundle}", "`nnapi-prof compare BASE NEW`"),
    ("report --costs {costs} --at 2026-01-31 --at 2026-02-28 {bundle}",
     "`nnapi-prof compare BASE NEW`"),
    ("report --costs {costs} --run npu --at 2026-01-31 {bundle}", "exclude each other"),
    ("report --costs {costs} --run npu {bundle}", "never run: `nnapi-prof run` does it"),
    ("compare --fail-if-slower much {bundle} {bundle}", "is not a share: write 5% or 0.05"),
    ("compare --fail-if-slower 5 {bundle} {bundle}", "'5' is not a share: write 5% or 0.05"),
    ("compare {costs}#Pixel {costs}", "no device of the cost table is called"),
    ("compare {tmp} {tmp}", "is not a bundle: `nnapi-prof partition` makes one"),
    ("compare {tmp}/none.json {costs}", "none.json does not exist: name a bundle"),
    ("compare -o {tmp}/x.pdf --costs {costs} {bundle} {bundle}", "x.pdf names no format"),
    ("compare {bundle}#Pixel {bundle}", "it was never run: `nnapi-prof run` does it"),
    ("compare --costs {costs} {bundle} {costs}", "not of one kind"),
    # ---- agents
    ("agent clean --device sim:npu-phone --all --older-than 3", "choose one"),
    ("agent clean --older-than -1", "see `nnapi-prof agent clean --help`"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "words"), MISUSED)
def test_it_is_refused(cli, profiled, line, words):
    folder = profiled.costs.parent
    before = sorted(folder.rglob("*"))
    line = line.replace("{named}", NAMED).replace("{table}", TABLE)
    places = {"costs": profiled.costs, "bundle": profiled.bundle, "model": profiled.model}
    places |= {"out": folder / "out.nnprof", "tmp": folder}
    result = cli(*(word.format(**places) for word in line.split()))
    assert result.code == 2 and result.out == ""
    assert words in result.error and "Usage:" not in result.err
    assert sorted(folder.rglob("*")) == before
