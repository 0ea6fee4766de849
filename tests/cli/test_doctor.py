"""``nnapi-prof doctor``: what it shows, its document, its exit code, its haste."""

import itertools
import os
from pathlib import Path

import pytest

from tests.cli.common import python

FAMILIES = ["Python", "Compilers", "Cache", "Agents", "Costs", "ADB", "USB", "Phone"]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cost table of the test's own, and no XNNPACK that others name."""
    monkeypatch.setenv("NNAPI_PROF_COSTS", str(tmp_path / "costs.sqlite"))


def test_without_a_phone(cli):
    result = cli.ok("doctor")
    assert result.err == ""
    lines = result.out.splitlines()
    assert [line for line in lines[:-1] if not line.startswith(" ")] == FAMILIES
    # A finding is a line, and its fix another.
    for before, line in itertools.pairwise(lines):
        if line.startswith("           fix: "):
            assert before.split()[0] in ("warning", "problem")
        else:
            assert before.split()[0] not in ("warning", "problem")
    assert "  warning  device: no phone is available: simulated ones" in result.out
    assert lines[-1].startswith("0 problems, ")


def test_a_problem(cli, tmp_path):
    (tmp_path / "costs.sqlite").write_text("hello " * 200)
    result = cli("doctor")
    assert result.code == 1 and result.err == ""
    assert f"  problem  cost table: {tmp_path}/costs.sqlite: file is not a database\n" in result.out
    assert result.out.splitlines()[-1].startswith("1 problem, ")


def test_the_document(cli, tmp_path):
    data = cli.document("doctor")
    assert data["problems"] == 0
    assert list(dict.fromkeys(each["family"] for each in data["findings"])) == FAMILIES
    assert data["warnings"] == sum(each["level"] == "warning" for each in data["findings"])
    (tmp_path / "costs.sqlite").write_text("hello " * 200)
    result = cli("doctor", "--json")
    assert result.code == 1 and result.document("doctor")["problems"] == 1


def test_a_phone(cli, start_adbd):
    serial = start_adbd("npu-phone")
    result = cli.ok("doctor", "--device", serial)
    assert f"  ok       device: {serial} (nnapi-prof Test Phone), adb over TCP\n" in result.out
    assert "\nNNAPI\n" in result.out
    result = cli("doctor", "--device", start_adbd("npu-phone", storage="ro"))
    assert result.code == 1 and "is read-only" in result.out


def test_fast_and_without_torch(tmp_path):
    """As the user starts it: under 5 s, and what is slow to import is not imported.

    Seconds of the processor, with those of the compilers it tries: machines of tests are shared.
    """
    code = (
        "import sys\nfrom nnapi_prof.cli import main\n"
        "try: main(['doctor', '-q'])\n"
        "finally: print(sorted({'torch', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    before = os.times()
    assert python("-c", code, check=True).stdout.splitlines()[-1] == "[]"
    after = os.times()
    assert sum(after[2:4]) - sum(before[2:4]) < 5
