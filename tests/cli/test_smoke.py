"""Each command once, in this process, on a simulated phone: what ``make check`` runs of them."""

import json

import pytest

from nnapi_prof.cli import commands
from tests.cli.common import INPUT
from tests.documents.common import check

PHONE = "--device sim:npu-phone"
TABLE = f"{PHONE} --input {INPUT} --costs {{costs}}"

# Command lines, and a key of the document that each prints with --json.
LINES = {
    "go": (f"{TABLE} --output {{out}}/go.html {{model}}", "plan"),
    "devices": ("", "devices"),
    "profile": (f"{TABLE} --preference fast {{model}}", "units"),
    "partition": (f"{TABLE} --output {{out}}/again.nnprof {{model}}", "plan"),
    "pareto": (f"{TABLE} --budget 20dB {{model}}", "points"),
    "fleet": (f"--input {INPUT} --costs {{costs}} -k 1 -o {{out}}/fleet.nnprof {{model}}", "plans"),
    "advise": ("--costs {costs} {bundle}", "predicted_ns"),
    "run": (f"{PHONE} {{bundle}}", "outputs"),
    "compare": ("--costs {costs} {bundle} {bundle}", "schema"),
    "estimate": (f"--phone pixel4 --threads 1 --input {INPUT} {{model}}", "plan"),
    "calibrate": ("--costs {costs} --output {out}/phone.json", "targets"),
    "costs": ("list --costs {costs}", "devices"),
    "report": ("--costs {costs} --output {out}/report.html {bundle}", "plan"),
    "agent": (f"info {PHONE}", "nnapi"),
    "doctor": ("", "findings"),
    "convert": (f"--to json --input {INPUT} --output {{out}}/model.json {{model}}", "files"),
    "ship": ("{bundle}", "steps"),
    "schema": ("", "documents"),
    "completion": ("bash", "script"),
    "bisect": (f"{PHONE} --target sim-npu --input {INPUT} {{model}}", "n_units"),
}


def test_every_command_has_a_line():
    """Of a lab, a scheduler takes seconds to start: tests/lab has them."""
    assert {*LINES, "lab"} == set(commands())


@pytest.mark.parametrize("command", LINES)
def test_command(cli, profiled, tmp_path, command):
    words, key = LINES[command]
    places = {"costs": profiled.costs, "bundle": profiled.bundle, "model": profiled.model}
    result = cli.ok(command, *words.format(out=tmp_path, **places).split(), "--json")
    document = json.loads(result.out)
    check(document, document["schema"].split("/")[1])
    assert document[key]
