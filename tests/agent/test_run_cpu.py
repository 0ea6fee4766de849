"""``agent run`` on the CPU engine: blobs, tensors, samples, kept outputs."""

import hashlib
import os

import numpy as np
import pytest

from tests.agent import packer
from tests.agent.packer import CPU, RANDOM, SEGMENT, Model, Request, Segment, relus, tensor


def conv_request() -> tuple[Request, np.ndarray]:
    """A 3x3 convolution, 2 channels to 4, with weights in blobs; and what it must give."""
    weights = np.random.default_rng(1).standard_normal((4, 3, 3, 2)).astype(np.float32)
    bias = np.arange(4, dtype=np.float32)
    request, model = Request(), Model()
    x = model.tensor(1, 6, 5, 2)
    inputs = [x, model.buffered(0, 4, 3, 3, 2), model.buffered(1, 4)]
    inputs += [model.scalar(v) for v in (1, 1, 1, 1, 1, 1, 1)]  # padding, strides, RELU
    y = model.add(packer.CONV_2D, inputs, 1, 6, 5, 4)
    m = request.model(model.pack([x], [y]), [request.blob(weights), request.blob(bias)])
    x = tensor(RANDOM, 1, 6, 5, 2, value=7, keep=True)
    y = tensor(SEGMENT, 1, 6, 5, 4, keep=True)
    request.action([x, y], [Segment(CPU, m, [0], [1])], runs=(3, 5))
    padded = np.pad(packer.pseudo_random(7, 6, 5, 2), ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    expected = np.einsum("hwcij,oijc->hwo", windows, weights) + bias
    return request, np.maximum(expected, 0)


def test_convolution(agent):
    request, expected = conv_request()
    answer = agent.run(request)
    assert answer.exit_code == 0, answer.lines
    assert answer.types == ["hello", "start", "result", "end"]
    hello, _, result, end = answer.lines
    assert (hello["protocol"], hello["actions"]) == (5, 1)
    assert (hello["simulated"], hello["phone"]) == (False, None)
    assert (end["actions"], end["ok"], end["failed"]) == (1, 1, 0)
    assert (result["status"], result["clock"]) == ("ok", "monotonic")
    assert "message" not in result and result["signal"] is None and result["code"] is None
    assert np.array_equal(answer.output(result, 0, 6, 5, 2), packer.pseudo_random(7, 6, 5, 2))
    assert np.allclose(answer.output(result, 1, 6, 5, 4), expected, rtol=1e-5, atol=1e-5)
    assert sorted(os.listdir(agent.work)) == ["0-0.bin", "0-1.bin"]

    (segment,) = result["segments"]
    assert sum(segment["kernels"].values()) == 1  # XNNPACK's, where it is built in
    assert segment["compile_ns"] > 0
    assert len(segment["samples_ns"]) == len(result["total_ns"]) == 3  # no budget: the least
    assert all(t >= s > 0 for t, s in zip(result["total_ns"], segment["samples_ns"], strict=True))
    assert segment["hardware_ns"] == segment["driver_ns"] == []
    assert result["first_ns"] > 0 and result["rss_peak_kb"] > 0
    assert len(result["cpu_khz"]) == len(result["thermal_mc"]) == 2


def test_segments_pass_tensors_on(agent):
    """relu(x) + b, with b a tensor that is a blob, x zero in one action and random in the other."""
    request, model = Request(), Model()
    b = np.array([1, 2, 3, 4], np.float32)
    p, q = model.tensor(4), model.tensor(4)
    sum_ = model.add(packer.ADD, [p, q, model.scalar(0)], 4)
    plus = request.model(model.pack([p, q], [sum_]))
    relu = request.model(packer.unary(packer.RELU, 4))
    blob = tensor(packer.BLOB, 4, value=request.blob(b))
    for x in (tensor(packer.ZERO, 4), tensor(RANDOM, 4, value=3)):
        request.action(
            [x, tensor(SEGMENT, 4), blob, tensor(SEGMENT, 4, keep=True)],
            [Segment(CPU, relu, [0], [1]), Segment(CPU, plus, [1, 2], [3])],
        )
    answer = agent.run(request)
    zero, random = answer.results
    assert np.array_equal(answer.output(zero, 0, 4), b)
    assert np.array_equal(answer.output(random, 0, 4), packer.positive(3, 4) + b)
    assert len(zero["segments"]) == 2


def test_unknown_batch_is_the_actions(agent):
    request = Request()
    m = request.model(packer.unary(packer.RELU, 0, 3))
    tensors = [tensor(RANDOM, 5, 3, value=2), tensor(SEGMENT, 5, 3, keep=True)]
    request.action(tensors, [Segment(CPU, m, [0], [1])])
    answer = agent.run(request)
    (result,) = answer.results
    assert result["status"] == "ok", result
    assert np.array_equal(answer.output(result, 0, 5, 3), packer.positive(2, 5, 3))


def test_missing_and_corrupt_blobs(agent):
    request, _ = conv_request()
    names = [hashlib.sha256(raw).hexdigest() for raw in request.blobs]
    agent.push(request)
    (agent.store / names[0]).unlink()
    (agent.store / names[1]).write_bytes(b"something else")
    answer = agent.run_bytes(request.pack())
    assert answer.exit_code == 3
    assert answer.types == ["hello", "missing"]
    assert answer.lines[1]["blobs"] == names
    assert os.listdir(agent.store) == []  # the corrupt one is deleted, so that it is pushed again
    assert agent.run(request).exit_code == 0


def test_blob_of_another_length(agent):
    request = Request()
    request.blob(b"12345678")
    sections = request.sections()
    agent.push(request)
    raw = sections["BLOB"]
    sections["BLOB"] = raw[:4] + (4).to_bytes(8, "little") + raw[12:]
    answer = agent.run_bytes(packer.container(sections))
    assert answer.exit_code == 1
    assert "the request says 4 bytes, those with this hash are 8" in answer.error
    assert len(os.listdir(agent.store)) == 1


def test_unknown_operation_is_refused(agent):
    answer = agent.run(relus(CPU, code=0x1FFFF))
    (result,) = answer.results
    assert answer.exit_code == 0
    assert result["status"] in ("refused", "failed")
    assert (result["stage"], result["total_ns"], result["first_ns"]) == ("compile", [], None)
    assert result["segments"][0]["compile_ns"] is None
    assert answer.of_type("end")[0]["failed"] == 1


@pytest.mark.parametrize("place, what", [(1, "request"), (3, "store"), (5, "work")])
def test_absent_paths(agent, place, what):
    command = agent.command(Request().pack())[1:]
    command[place] = "/nowhere/at/all"
    answer = agent.call(*command)
    assert answer.exit_code == 1
    assert "/nowhere/at/all: No such file or directory" in answer.error


@pytest.mark.parametrize("threads", [1000, 0xFFFFFFFF])
def test_more_threads_than_any_device_has(agent, threads):
    """Some systems do not give so many; the engine must not wait for them."""
    (result,) = agent.run(relus(CPU, threads=threads)).results
    assert result["status"] == "ok"
