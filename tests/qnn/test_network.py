"""A whole model for chips: in Python, on the command line, and as a file to ship."""

import pytest
import torch
from torch import nn

pytest.importorskip("onnx", reason="no onnx: pip install -e '.[qnn]'")

import onnx

from nnapi_prof.api.chips import convert_for_chip, estimate_chips
from nnapi_prof.errors import UsageError
from nnapi_prof.qnn.doubts import packed_attention
from nnapi_prof.qnn.graphs import Form, export_onnx, preprocess, quantise_form
from nnapi_prof.qnn.rewrites import unshare_initializers
from tests.models import Function
from tests.qnn import graphs


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, 2, 1)
        self.last = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def file(wheel, tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("qnn") / "net.pt2"
    torch.export.save(torch.export.export(Net().eval(), (torch.randn(1, 3, 64, 64),)), path)
    return path


@pytest.mark.slow
def test_each_chip_has_a_time_within_its_band_or_a_reason(file, cache):
    made = estimate_chips(file, "qnn:SM8350,SM8550,SM8750")
    old, middle, new = made.chips
    assert old.whole_ns is None and not old.taken and old.refused and old.error
    for one in (middle, new):
        assert one.low_ns < one.whole_ns < one.high_ns
        assert one.taken["Conv"] == 1 and not one.refused
        assert one.calibration.networks >= 25
    assert new.whole_ns < middle.whole_ns


@pytest.mark.slow
def test_eight_bits_are_faster_and_in_units(file, cache):
    (fp16,) = estimate_chips(file, "SM8850").chips
    (int8,) = estimate_chips(file, "SM8850/int8").chips
    assert int8.whole_ns is not None
    assert int8.simulated_ns["v81"] <= fp16.simulated_ns["v81"]
    assert "int8 in float" not in {doubt.kind.value for doubt in int8.doubts}


@pytest.mark.slow
def test_a_file_for_a_chip_has_its_parts_in_a_binary(file, cache, tmp_path):
    files = convert_for_chip(file, "qnn:SM8650", tmp_path / "net.qnn.onnx")
    nodes = [node.op_type for node in onnx.load(files.path, load_external_data=False).graph.node]
    assert "EPContext" in nodes and "Conv" not in nodes
    assert all(binary.stat().st_size for binary in files.binaries) and files.binaries
    assert files.channels_last == ("x",)


def test_without_the_wheel_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    import nnapi_prof.qnn as module

    monkeypatch.setattr(module, "NEEDED", ("a_package_that_nobody_has",))
    with pytest.raises(UsageError, match="nnapi-prof\\[qnn\\]"):
        estimate_chips(tmp_path / "model.pt2", "SM8650")


@pytest.mark.parametrize(
    "arguments",
    [
        "estimate model.pt2",
        "estimate --phone pixel4 --device qnn:SM8650 model.pt2",
        "estimate --device local model.pt2",
        "estimate --device qnn:SM1 model.pt2",
        "convert --to qnn model.pt2",
        "partition --device qnn:SM8650,SM8750 model.pt2",
        "estimate --device qnn:SM8650 --calibration data.npz model.pt2",
        "run --device qnn:SM8650 model.nnprof",
    ],
)
def test_what_makes_no_sense_is_a_mistake_of_usage(wheel, misused, arguments):
    misused(*arguments.split())


def packed_projection(x: torch.Tensor) -> torch.Tensor:
    """torchvision's way to project query, key and value."""
    n, _, width = x.shape
    qkv = x.reshape(n, 1, 3, width // 3).unsqueeze(0).transpose(0, -2).squeeze(-2)
    return qkv[0] * qkv[1] + qkv[2]


@pytest.mark.slow
def test_packed_attention_is_found(wheel):
    packed = export_onnx(Function(packed_projection), (torch.randn(17, 1, 96),))
    assert len(packed_attention(packed)) == 1
    plain = export_onnx(Net().eval(), (torch.randn(1, 3, 32, 32),))
    assert packed_attention(preprocess(plain).model) == ()


def test_shared_constants_become_each_nodes_own(wheel):
    model = graphs.convolutions(2)
    for node in model.graph.node:
        if node.op_type == "Conv":
            node.input.append("bias")
    model.graph.initializer.append(onnx.numpy_helper.from_array(graphs.weights(16), "bias"))
    biases = [n.input[2] for n in unshare_initializers(model).graph.node if n.op_type == "Conv"]
    assert len(set(biases)) == 2
    quantised = quantise_form(Form(model)).model
    types = {c.name: c.data_type for c in quantised.graph.initializer}
    producer = {name: node for node in quantised.graph.node for name in node.output}
    convolutions = [node for node in quantised.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == 2
    for node in convolutions:
        assert types[producer[node.input[2]].input[0]] == onnx.TensorProto.INT32
