"""Graphs of a few nodes through Qualcomm's compiler: estimates, refusals, faults, and the traps of
its options."""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
import torch

from nnapi_prof.qnn import CHIPS, NpuGeneration, QnnPrecision, compiler, find_chip
from nnapi_prof.qnn.doubts import (
    PACKED,
    Doubt,
    DoubtKind,
    of_compiled,
    of_int8,
    outside_quantisation,
    packed_attention,
)
from nnapi_prof.qnn.worker import main, read_estimates, read_reasons

onnx = pytest.importorskip("onnx", reason="no onnx: pip install -e '.[qnn]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install -e '.[qnn]'")

from nnapi_prof.qnn.compiler import MODE, Compiled, CompileRequest, GraphPart  # noqa: E402
from nnapi_prof.qnn.graphs import (  # noqa: E402
    Form,
    count_macs,
    export_onnx,
    float_form,
    preprocess,
    quantise_form,
    random_sample,
    rewritten,
)
from nnapi_prof.qnn.rewrites import unshare_initializers  # noqa: E402
from tests.models import Function  # noqa: E402
from tests.qnn import graphs  # noqa: E402

V73 = NpuGeneration.V73.soc_model


def compiled(pool, folder, model, soc_model=V73, **options) -> Compiled:
    path = folder / "graph.onnx"
    form = Form(model)
    form.write(path)
    return pool.compile([CompileRequest(path, form.hash, soc_model, **options)])[0]


def test_an_estimate_is_remembered_and_the_same_for_other_names_and_weights(pool, tmp_path):
    model = graphs.convolutions()
    first = compiled(pool, tmp_path, model)
    assert first.us is not None and MODE == 3, "in mode 1 the estimate is many times that"
    assert 0 < first.low_us <= first.us <= first.high_us
    assert first.subgraphs == 1
    renamed = graphs.convolutions(names="other_", seed=1)
    assert Form(renamed).hash == Form(model).hash
    assert compiled(pool, tmp_path, renamed) == first
    assert pool.n_compiled == 1


def test_weights_of_zeros_have_another_hash():
    """The compiler leaves out what adds them."""
    model, zeros = graphs.convolutions(), graphs.convolutions()
    (first, *_) = zeros.graph.initializer
    first.CopyFrom(onnx.numpy_helper.from_array(np.zeros(first.dims, np.float32), first.name))
    assert Form(zeros).hash != Form(model).hash


def test_a_graph_of_another_shape_has_another_hash():
    hashes = {
        Form(graphs.convolutions(**options)).hash
        for options in ({}, {"n": 3}, {"size": 29}, {"channels": 8})
    }
    assert len(hashes) == 4


def test_a_phones_own_number_gives_refusals_and_no_time(pool, tmp_path):
    phone = find_chip("SM8650")
    result = compiled(pool, tmp_path, graphs.softsign(), phone.soc_model, reasons=True)
    assert result.us is None and result.error is None
    assert "Softsign" in {kind for _, kind in result.on_cpu}
    assert "Conv" in {kind for _, kind in result.on_npu}
    assert any("Softsign" in reason for reason in result.reasons.values())


def test_the_emulators_own_time_is_no_estimate():
    head = ["0", "BACKEND", "0", "US", "BACKEND", "ROOT"]

    def row(value, unit, name):
        return [*head[:2], str(value), unit, *head[4:], name]

    rows = [
        row(850_364, "US", "Accelerator (execute) time"),
        row(0, "US", "Performance Estimates"),
        row(1_000_000, "CYCLES", "Simulated (Accelerator exec cycles)"),
        row(353, "US", "Simulated (Accelerator exec time us)"),
        row(306, "US", "Simulated (Accelerator exec time us (lower estimate))"),
        row(423, "US", "Simulated (Accelerator exec time us (upper estimate))"),
        row(7, "BYTES", "Intermediate Spill"),
        row(99_999, "US", "Conv_1 (cycles)"),
    ]
    (graph,) = read_estimates(rows)
    assert graph == {"us": 353, "low_us": 306, "high_us": 423, "spilled_bytes": 7, "missing": 0}
    assert read_estimates(rows[:1]) == []


def test_reasons_are_read_by_node():
    text = (
        "REASON : Operators of type `Erf` are not supported by QNN EP.Erf node `the_node` will not"
        " be\nQNN.backendValidateOpConfig() failed for node `t_2` of type `Transpose` with error"
        " code 3110"
    )
    reasons = read_reasons(text)
    assert "Erf" in reasons["the_node"]
    assert "3110" in reasons["t_2"]


@pytest.mark.slow
def test_a_session_that_fails_has_no_estimate_and_the_next_graph_has_one(pool, tmp_path):
    """An unknown number of a chip ends it."""
    bad = compiled(pool, tmp_path, graphs.convolutions(1), soc_model=46)
    assert bad.us is None and bad.error
    assert compiled(pool, tmp_path, graphs.convolutions(1)).us is not None


@pytest.mark.slow
def test_the_worker_answers_each_request_with_its_parts_or_an_error(wheel, tmp_path):
    """In a fork of this process, which the library may end."""
    source, requests, answers = (tmp_path / name for name in ("g.onnx", "requests", "answers"))
    Form(graphs.softsign()).write(source)
    context = tmp_path / "context.onnx"
    base = {"onnx": str(source), "mode": MODE, "log": str(tmp_path / "log")}
    asked = [
        {"soc_model": V73},
        {"soc_model": find_chip("SM8650").soc_model, "reasons": True, "context": str(context)},
        {"soc_model": 46},
    ]
    requests.write_text("".join(json.dumps(base | one) + "\n" for one in asked))

    def work() -> None:
        sys.stdin = requests.open()
        main(os.open(answers, os.O_WRONLY | os.O_CREAT))

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0
    simulated, own, unknown = map(json.loads, answers.read_text().splitlines())
    assert {"npu": False, "nodes": [["the_softsign", "Softsign"]]} in simulated["assigned"]
    parts = {(part["npu"], kind) for part in simulated["assigned"] for _, kind in part["nodes"]}
    assert parts == {(True, "Transpose"), (True, "Conv"), (False, "Softsign")}
    assert simulated["estimates"] and all(one["us"] > 0 for one in simulated["estimates"])
    assert simulated["error"] is own["error"] is None and unknown["error"]
    why = "Operators of type `Softsign` are not supported by QNN EP"
    assert own["reasons"]["the_softsign"] == why and own["estimates"] == []
    assert context.exists()


def test_a_worker_that_ends_or_takes_too_long_gives_no_estimate(pool, tmp_path, monkeypatch):
    request = CompileRequest(tmp_path / "none.onnx", "0", V73)
    worker = compiler._Worker(tmp_path)
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    with pytest.raises(compiler.WorkerDied, match="the compiler's process ended with signal 9"):
        worker.ask(request, 1.0)
    assert not worker.used_up and compiler._cpu_s(worker.process.pid) == 0
    for name in ("BASE_S", "POLL_S"):
        monkeypatch.setattr(compiler, name, 0.0)
    message = "the compiler did not finish in 0 s of a core"
    assert pool.compile([request]) == [Compiled(error=message)] and not pool.n_compiled


@pytest.mark.slow
def test_a_worker_killed_at_random_loses_nothing(pool, tmp_path):
    models = [graphs.convolutions(2, channels=8 * k) for k in range(1, 9)]
    requests = []
    for number, model in enumerate(models):
        form = Form(model)
        requests.append(CompileRequest(form.write(tmp_path / f"{number}.onnx"), form.hash, V73))
    over = threading.Event()

    def kill() -> None:
        for _ in range(2):
            while not pool.pids and not over.is_set():
                time.sleep(0.01)
            time.sleep(1.0)
            for pid in pool.pids:
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    answers = pool.compile(requests)
    over.set()
    killer.join()
    assert [answer.error for answer in answers] == [None] * len(models)
    assert pool.compile(requests) == answers
    assert pool.n_compiled == len(models)


@pytest.mark.slow
def test_a_convolution_with_a_zero_point_behind_its_relu_is_found_outside_its_unit(pool, tmp_path):
    good, bad = graphs.quantised_convolution(0), graphs.quantised_convolution(7)
    assert outside_quantisation(bad) == ("conv",)
    assert outside_quantisation(good) == ()
    assert compiled(pool, tmp_path, bad).us > 2 * compiled(pool, tmp_path, good).us


def test_doubts_are_worded_with_their_numbers():
    parts = (GraphPart(True, (("conv", "Conv"),)),) * 2
    old = Compiled(us=700, low_us=100, high_us=300, missing=3, parts=parts)
    generations = NpuGeneration.V73, NpuGeneration.V81
    simulated = dict(zip(generations, (old, Compiled(us=100, parts=parts[:1])), strict=True))
    faster = dict.fromkeys(generations, Compiled(us=350))
    doubts = [
        *of_compiled(simulated, QnnPrecision.FP16, macs=3e8, moved=0),
        *of_int8(simulated, faster),
        Doubt(DoubtKind.INT8_IN_FLOAT, nodes=tuple("abcd")),
        *(Doubt(DoubtKind.EXPORTERS_DIFFER, value=times) for times in (1.5, 0.0)),
        Doubt(DoubtKind.PACKED_ATTENTION, nodes=("unpack",)),
    ]
    apart = "the graph of torch.onnx's tracing exporter (dynamo=False) is {}: these are figures"
    apart += " of the other one (dynamo=True); ship that one"
    assert [doubt.words() for doubt in doubts] == [
        "the simulator's own bounds on v73 are 3.0 times apart (more than 2): it does not know this"
        " graph well",
        "the simulator has no cost for 3 operations on v73",
        "on v73 it takes 7.0 times what its arithmetic and its bytes take: data movement dominates,"
        " which the simulator may overestimate",
        "v73 is simulated 7.0 times as slow as v81 (others 1.8 to 4.2): a form of the graph that"
        " one of them handles badly",
        "the NPU gets 2 parts, each an invocation with transfers of its own",
        "int8 takes 2.00 times as long as fp16 on v73: suspect the Q/DQ form",
        "4 convolutions or products stand outside a Q/DQ unit and compute in float: a, b, c ...",
        apart.format("1.5 times as slow"),
        apart.format("not to be compiled"),
        "1 attention blocks project query, key and value packed, through a transpose of rank 5"
        " (unpack): write three linear layers, or timm's form of the network; as torch.onnx's"
        " exporter with dynamo=True writes it, v73 is simulated to take 20 to 50 times as long",
    ]


def test_macs_are_those_of_convolutions():
    assert count_macs(graphs.convolutions(2, channels=16, size=28)) == 2 * 28 * 28 * 16 * 16 * 9
    node = onnx.helper.make_node("ConvTranspose", ["x", "w"], ["y"])
    shapes = {"x": (1, 16, 28, 28)}, {"y": (1, 8, 30, 30)}
    up = graphs.graph([node], *shapes, {"w": graphs.weights(16, 8, 3, 3)})
    assert count_macs(up) == 28 * 28 * 16 * 8 * 9


def test_a_random_sample_of_integers_has_zeros_and_ones():
    sample = random_sample(graphs.quantised_convolution(0))["x"]
    assert sample.dtype == np.uint8 and set(np.unique(sample)) == {0, 1}


def test_every_chip_has_a_number_of_its_own():
    assert len({chip.soc_model for chip in CHIPS.values()}) == len(CHIPS)


FORMS = {
    "a shuffle": (graphs.shuffle(), True),
    "a shuffle of four groups": (graphs.shuffle(groups=4, size=7), True),
    "an exchange of rows and columns": (graphs.shuffle(order=(0, 1, 2, 4, 3)), False),
    "scaled channels": (graphs.scale(), True),
    "scaled channels, of rank 4": (graphs.scale(rank=4, size=7), True),
    "scaled pixels": (graphs.scale(channels=3), False),
    "a product and its bias": (graphs.biased(), True),
    "a product with shared weights": (graphs.biased(shared=True), True),
    "a product of rank 2 and its bias": (graphs.biased(rank=2), True),
    "a product of rank 4 and its bias": (graphs.biased(rank=4), True),
    "a constant that is no bias": (graphs.biased(of_rank=2), False),
    "a product that is read twice": (graphs.biased(twice=True), False),
}


@pytest.mark.parametrize(("model", "changes"), FORMS.values(), ids=FORMS)
def test_a_form_that_the_compiler_handles_better_computes_the_same(model, changes):
    better = onnx.ModelProto()
    better.CopyFrom(model)
    better = float_form(rewritten(better)).model
    onnx.checker.check_model(better, full_check=True)
    assert (better != model) is changes
    feeds = random_sample(model)
    before, after = (
        onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
        for one in (model, better)
    )
    for a, b in zip(before.run(None, feeds), after.run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("soc_model", [generation.soc_model for generation in NpuGeneration])
@pytest.mark.parametrize(
    "plain",
    [graphs.shuffle(), graphs.channels_last(graphs.scale(64))],
    ids=["a shuffle", "scaled channels"],
)
def test_that_form_is_simulated_to_be_faster(pool, tmp_path, plain, soc_model):
    better = onnx.ModelProto()
    better.CopyFrom(plain)
    better = float_form(rewritten(better)).model
    before, after = (compiled(pool, tmp_path, one, soc_model) for one in (plain, better))
    assert after.us < 0.9 * before.us


def packed_projection(x: torch.Tensor) -> torch.Tensor:
    """torchvision's way to project query, key and value."""
    n, _, width = x.shape
    qkv = x.reshape(n, 1, 3, width // 3).unsqueeze(0).transpose(0, -2).squeeze(-2)
    return qkv[0] * qkv[1] + qkv[2]


@pytest.mark.slow
def test_packed_attention_is_found(wheel):
    packed = export_onnx(Function(packed_projection), (torch.randn(17, 1, 96),))
    assert len(packed_attention(packed)) == 1
    node, axes = onnx.helper.make_node, {"first": np.array([0]), "fourth": np.array([3])}
    nodes = [
        node("Unsqueeze", ["x", "first"], ["a"]),
        node("Transpose", ["a"], ["b"], "unpack", perm=PACKED),
        node("Squeeze", ["b", "fourth"], ["y"]),
    ]
    unknown = graphs.graph(nodes, {"x": (8, 0, 3, 16)}, {"y": (3, 8, 0, 16)}, axes)
    assert packed_attention(unknown) == ("unpack",)
    plain = export_onnx(Function(torch.relu), (torch.randn(1, 3, 32, 32),))
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
