"""A model with an operation that nobody can convert: it stays behind, and everybody says why."""

import html
import json
import re

import pytest
import torch
from torch import nn

from tests.api.test_model import scripted
from tests.cli.common import INPUT, SIM, TinyNet, trace


def multiplied(x: torch.Tensor) -> torch.Tensor:
    return torch.logcumsumexp(x, 1) * 0.1


@pytest.mark.slow
def test_an_operation_that_nobody_converts(cli, tmp_path):
    torch.manual_seed(0)
    model = trace(TinyNet(multiplied), tmp_path / "odd.pt")
    operation, node = "aten.logcumsumexp.default", "logcumsumexp"
    costs, bundle = ("--costs", tmp_path / "costs.sqlite"), tmp_path / "odd.nnprof"
    named = (*SIM, "--input", INPUT, *costs)
    sentence = rf"{re.escape(operation)} cannot run on NNAPI: NNAPI has no such operation"

    out = cli.ok("profile", *named, "--preference", "fast", model).out
    counts = re.search(r"(\d+) measured, (\d+) refused by the converter", out)
    assert counts is not None and int(counts[1]) > 0
    # One on the CPU and one on each of sim-npu and sim-gpu; on nnapi-reference and auto where a
    # trial does not leave them at that.
    assert 3 <= int(counts[2]) <= 5

    out = cli.ok("partition", *named, "--output", bundle, model).out
    manifest = json.loads((bundle / "manifest.json").read_text())
    segments, units = manifest["plans"][0]["segments"], manifest["graph"]["units"]
    (behind,) = (s for s in segments if s["target"] == "host")
    assert [units[index]["label"].split()[0] for index in behind["units"]] == [node]
    assert re.search(rf"no engine of the agent runs {node} [0-9x]+ \(unit \d+\)", out)
    table = out[: out.index("Why")]  # by the labels that other tables have, not by nodes
    assert all(units[segment["units"][0]]["label"] in table for segment in segments)

    out = cli.ok("run", *SIM, "--runs", 3, bundle).out
    assert "agrees with eager PyTorch" in out and "DIFFERS" not in out
    assert "on the host, in eager PyTorch: " in out

    page = html.unescape(cli.ok("report", *costs, "-o", "-", bundle).out)
    assert re.search(sentence, page)
    assert not re.search(rf"{node}(_\d+)?: {sentence}", page)  # the cost is any such unit's

    # Where the whole model is asked for, it is refused.
    for option, advice in (("--whole", "stays on the CPU"), ("--format=json", "partition")):
        result = cli("convert", "--input", INPUT, option, model)
        assert result.code == 1 and re.search(sentence, result.error) and advice in result.error
        assert "Stays on the CPU" in result.out and operation in result.out
    assert not (tmp_path / "odd.nnapi.pt").exists()


class Detector(nn.Module):
    """[1, 3, 32, 32] -> boxes [n, 4] and scores [n] of a detector, those that are likely."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 6, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.second(self.first(x).relu()).flatten(2)[0].T
        scores = rows[:, 4].sigmoid()
        likely = scores > 0.5
        return rows[:, :4][likely], scores[likely]


class Suppressing(Detector):
    """The same, without boxes that overlap a likelier one: non-maximum suppression, greedy."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.second(self.first(x).relu()).flatten(2)[0].t()
        scores, corner = rows[:, 4].sigmoid(), rows[:, :2]
        far = corner + rows[:, 2:4].exp()
        order, area = scores.argsort(descending=True), (far - corner).prod(1)
        survivors: list[torch.Tensor] = []
        while order.numel() > 0:
            best, rest = order[0], order[1:]
            survivors.append(best)
            low, high = corner[rest].maximum(corner[best]), far[rest].minimum(far[best])
            shared = (high - low).clamp(min=0).prod(1)
            order = rest[shared <= 0.5 * (area[rest] + area[best] - shared)]
        likely = torch.stack(survivors)
        return rows[:, :4][likely], scores[likely]


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "node"), [("pt", "loop_on_data"), ("pt2", "index_on_data")])
def test_what_depends_on_data_stays_on_the_host(cli, tmp_path, ending, node):
    torch.manual_seed(0)
    model, x = tmp_path / f"detector.{ending}", torch.randn(1, 3, 32, 32)
    if ending == "pt":
        scripted(Suppressing().eval()).save(str(model))
    else:
        torch.export.save(torch.export.export(Detector().eval(), (x,)), model)
    shape = ("--input", "1x3x32x32")
    named = (*SIM, "--costs", tmp_path / "c.sqlite", *shape)
    result = cli.ok("go", *named, model)
    assert f"{node} on the host (eager PyTorch)" in result.out and "no advice" not in result.err
    assert node in (tmp_path / "detector.html").read_text()
    pin = ("--pin", "conv2d*=nnapi:sim-npu/fast")
    cli.ok("partition", *named, *pin, "-o", tmp_path / "d.nnprof", model)
    out = cli.ok("run", *SIM, tmp_path / "d.nnprof").out
    assert f"on the host, in eager PyTorch: {node}" in out
    assert re.search(rf"host +│ {node} +│ [0-9.<]+ est\.", out)
    cli.ok("convert", *shape, model)
    cli.error("convert", "--whole", *shape, model, code=1)
