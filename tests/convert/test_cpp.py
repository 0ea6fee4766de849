"""Generated C++ classes, compiled, run on the emulator and compared with eager PyTorch."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nnapi_prof.convert import Blob, BufferSlice, ConstantValue, NnapiModel, Operand
from nnapi_prof.convert.export_cpp import class_name, to_cpp
from nnapi_prof.convert.export_json import RegionDescription, lay_out
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.program import laid_out, logical
from nnapi_prof.nnapi.codes import OperandCode
from tests.convert.cases.common import case
from tests.convert.cases.convolution import convolve
from tests.convert.cases.quantised import QUANTISED_LAYERS
from tests.convert.cases.recurrent import RECURRENT
from tests.convert.harness import FIRST, aten, image, program_of, whole
from tests.convert.test_formats import ADD

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent.parent / "device_agent" / "include"
WARNINGS = (
    *("-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wpedantic"),
    "-Werror",
)
COMPILERS = tuple(name for name in ("g++", "clang++") if shutil.which(name))


@pytest.fixture(scope="session")
def compilers():
    """Commands of all C++ compilers here; zig's, which is a dependency of ours, where no other."""
    return tuple((name,) for name in COMPILERS) or ((sys.executable, "-m", "ziglang", "c++"),)


@pytest.fixture(scope="session")
def ndk(tmp_path_factory):
    """A folder with the header that Android's NDK has, for hosts: ours."""
    folder = tmp_path_factory.mktemp("ndk")
    (folder / "android").mkdir()
    (folder / "android" / "NeuralNetworks.h").write_text('#include "np_nnapi.h"\n')
    return folder


@dataclass(frozen=True)
class Built:
    """A class with its driver, as files."""

    region: Region
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """Names in the program's order, which need not be the region's."""
    driver: Path
    weights: Path

    def run(self, library, runs: Sequence[Sequence[Tensor]], device="auto", options=""):
        """The program's outputs of each run, for its inputs of each."""
        region, folder = self.region, self.driver.parent
        for i, inputs in enumerate(runs):
            values = dict(zip(self.inputs, inputs, strict=True))
            for k, (name, type_) in enumerate(zip(region.inputs, region.input_types, strict=True)):
                content = laid_out(values[name], type_).numpy().tobytes()
                (folder / f"in_{i}_{k}").write_bytes(content)
        done = self.call("run", library, self.weights, device, options, folder, len(runs))
        assert done.returncode == 0, done.stdout + done.stderr
        return [[self.read(i, name) for name in self.outputs] for i in range(len(runs))]

    def read(self, run: int, name: str) -> Tensor:
        k = self.region.outputs.index(name)
        type_ = self.region.output_types[k]
        array = np.fromfile(self.driver.parent / f"out_{run}_{k}", type_.device_dtype)
        return logical(torch.from_numpy(array).reshape(type_.memory_shape), type_)

    def call(self, *arguments):
        return subprocess.run(
            [self.driver, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env={k: v for k, v in os.environ.items() if k != "NNAPI_EMULATOR_PHONE"},
        )


@pytest.fixture(scope="session")
def build(ndk, compilers, tmp_path_factory):
    """``build(program, stem)``: compiles the class of a program with a driver."""

    def made(program, stem: str, compiler=0, standard=14) -> Built:
        folder, region = tmp_path_factory.mktemp(stem), whole(program)
        weights = lay_out(region.buffers)
        weights.write(folder / f"{stem}.weights")
        texts = to_cpp(RegionDescription(region), stem, weights)
        (folder / texts.header_file).write_text(texts.header)
        (folder / f"{stem}.cpp").write_text(texts.source)
        defines = [f"-DMODEL={texts.name}", f'-DHEADER="{texts.header_file}"']
        if not region.buffers:
            defines.append("-DWEIGHTLESS")
        command = [
            *(*compilers[compiler % len(compilers)], f"-std=c++{standard}", "-O1", *WARNINGS),
            *("-I", ndk, "-I", INCLUDE, "-I", folder, *defines),
            *(folder / f"{stem}.cpp", HERE / "cpp" / "driver.cpp", "-ldl", "-o", folder / "driver"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        ends, weights_file = program.units, folder / f"{stem}.weights"
        return Built(region, ends.inputs, ends.outputs, folder / "driver", weights_file)

    return made


FIRST_WEIGHT, SECOND_WEIGHT = image(8, 3, 3, 3), image(8, 1, 3, 3, seed=1)
BIAS = image(8)
LINEAR, LINEAR_BIAS = image(10, 8), image(10)


def conv_net(x):
    """Convolution, depthwise convolution, mean over the image, linear and softmax."""
    y = aten.relu.default(convolve(FIRST_WEIGHT, BIAS, stride=2, padding=1)(x))
    y = convolve(SECOND_WEIGHT, BIAS, padding=1, groups=8)(y)
    y = aten.hardtanh.default(y, 0.0, 6.0)
    y = aten.mean.dim(y, [2, 3])
    y = aten.linear.default(y, LINEAR, LINEAR_BIAS)
    return aten.softmax.int(y, -1)


def crossed(x, y, z):
    """Three inputs of different ranks, two outputs that are not made in their order."""
    early = convolve(FIRST_WEIGHT, BIAS, padding=1)(y)
    late = aten.add.Tensor(early, x)
    return late, aten.sigmoid.default(z), early


def integers(x, y):
    """int32 and int64 in, int32 and bool out."""
    total = aten.add.Tensor(x, y)
    return total, aten.lt.Tensor(x, y)


@pytest.fixture(scope="session")
def conv_class(build):
    return build(program_of(conv_net, (image(1, 3, 16, 16),)), "conv_net")


@pytest.mark.parametrize("device", ["auto", "nnapi-reference"])
@pytest.mark.parametrize("options", ["", "m", "b", "m b 1", "r 0", "2"])
def test_a_network_runs_many_times(conv_class, nnapi_library, options, device):
    runs = [(image(1, 3, 16, 16, seed=seed),) for seed in range(3)]
    results = conv_class.run(nnapi_library, runs, device, options)
    rtol = 2e-2 if "r" in options else 1e-5
    torch.testing.assert_close(results, [[conv_net(*x)] for x in runs], rtol=rtol, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "standard"),
    [
        (1, 20),
        *(
            pytest.param(*pair, marks=pytest.mark.again("another compiler or standard"))
            for pair in ((0, 14), (0, 20), (1, 14))
        ),
    ],
)
def test_several_inputs_and_outputs(build, nnapi_library, compiler, standard):
    inputs = image(1, 8, 1, 1), image(1, 3, 5, 7), image(2, 3)
    built = build(program_of(crossed, inputs, split=True), "crossed", compiler, standard)
    (result,) = built.run(nnapi_library, [inputs])
    torch.testing.assert_close(result, crossed(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_integers_and_booleans(build, nnapi_library):
    inputs = torch.arange(-3, 3).reshape(2, 3).int(), torch.tensor([0, -9, 7])
    built = build(program_of(integers, inputs, FIRST, split=True), "integers")
    assert [type_.device_dtype for type_ in built.region.input_types] == ["int32", "int32"]
    (result,) = built.run(nnapi_library, [inputs])
    torch.testing.assert_close(result, integers(*inputs), rtol=0, atol=0)


ODD = {
    "more dimensions than NNAPI has": case(aten.view, image(2, 3, 2, 4, 5), [2, 2, 3, 2, 10]),
    "no constants": case(aten.relu, image(2, 3)),
    "arguments left out": RECURRENT["lstm, outputs"],
    "scales for each channel": QUANTISED_LAYERS["conv channels"],
    "a list of operands on several lines": case(
        lambda x: aten.cat.default([x, aten.relu.default(x)] * 40, 1), image(2, 3)
    ),
}


def oddities(built):
    """Whether a class is of the odd models."""
    model, header = built.region.model, next(built.driver.parent.glob("*.h")).read_text()
    return {
        "more dimensions than NNAPI has": "[2, 3, 2, 4, 5], its first dimensions as one" in header,
        "no constants": not built.region.buffers,
        "arguments left out": any(not value.source for value in model.values),
        "scales for each channel": any(operand.channels for operand in model.operands),
        "a list of operands on several lines": len(model.operations[-1].inputs) > 80,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_odd_models(build, nnapi_library, name):
    odd = ODD[name]
    built = build(odd.program, name.replace(" ", "_"))
    assert oddities(built)[name]
    ((result,),) = built.run(nnapi_library, [odd.inputs])
    torch.testing.assert_close(result, odd.function(*odd.inputs), rtol=odd.rtol, atol=odd.atol)


def test_misuse_is_answered_in_words(conv_class, nnapi_library):
    done = conv_class.call("misuse", nnapi_library, conv_class.weights)
    assert done.returncode == 0, done.stderr
    size = conv_class.weights.stat().st_size
    expected = (
        "no library: -1 ConvNet: no NNAPI here: libno-such-library.so: cannot open",
        "empty: -1 ConvNet: nothing was created yet",
        "device: -1 ConvNet: no NNAPI device is called 'no such device', there are: nnapi-",
        "missing file: -1 ConvNet: the weights file no/such/file cannot be read",
        "folder: -1 ConvNet: the weights file / cannot be read",
        f"short: -1 ConvNet: the weights have {size - 1} bytes, wanted {size}",
        "other: -1 ConvNet: the weights are not those of this model",
        "nullptr: -1 ConvNet: the weights are nullptr",
        "create: 0 ",
        "unset: -1 ConvNet: input 'x' was not set",
        "size: -1 ConvNet: input 'x' has 768 elements, given are 769",
        "name: -1 ConvNet: no input is called 'nobody'",
        "type: -1 ConvNet: input 'x' has elements of another type",
        "data: -1 ConvNet: input: nullptr",
        "output size: -1 ConvNet: output 'softmax_int' has 10 elements, given are 9",
        "input: 0 ",
        "still unset: -1 ConvNet: output 'softmax_int' was not set",
        "moved from: -1 ConvNet: nothing was created yet",
        "0 1",
    )
    for line, beginning in zip(done.stdout.splitlines(), expected, strict=True):
        assert line.startswith(beginning)


def test_a_library_that_is_not_nnapi(conv_class, nnapi_library, tmp_path):
    done = conv_class.call("run", "libm.so.6", conv_class.weights, "auto", "", tmp_path, 0)
    assert done.returncode == 1
    assert done.stdout == "create: -1 ConvNet: libm.so.6 lacks functions of NNAPI\n"


def texts(described: RegionDescription, stem="net"):
    return to_cpp(described, stem, lay_out(described.region.buffers))


@pytest.fixture(scope="module")
def region():
    return convert_region(program_of(conv_net, (image(1, 3, 16, 16),)), [0], 30)


def test_the_text_depends_on_the_region_alone(region):
    assert texts(RegionDescription(region)) == texts(RegionDescription(region))
    asked = RegionDescription(region, Preference.FAST_SINGLE_ANSWER, True, 'an "npu"??/')
    header = texts(asked).header
    assert "Preference preference = Preference::kFastSingleAnswer;" in header
    assert "bool relaxed = true;" in header
    assert r'const char* device = "an \042npu\042\077\077/";' in header


def test_the_text_can_be_read(region):
    result = texts(RegionDescription(region))
    assert max(map(len, result.source.splitlines())) <= 100
    assert max(map(len, result.header.splitlines())) <= 100
    for text in (result.header, result.source):
        assert "\n\n\n" not in text and text.endswith("\n") and not text.endswith("\n\n")
        assert not any(line != line.rstrip() for line in text.splitlines())
    assert '//   input   "x": float32 [1, 16, 16, 3]' in result.header
    assert "channels last, for PyTorch's [1, 3, 16, 16]" in result.header


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("mobilenet_v2", "MobilenetV2"),
        ("U-Net.large", "UNetLarge"),
        ("NULL", "Null"),
        ("3d", "Model3d"),
        ("", "Model"),
        ("größe", "GrE"),
        ("status", "StatusModel"),
    ],
)
def test_class_names(words, name):
    assert class_name(words) == name


# An ADD whose second operand is a constant; no program makes the faults below.
MODEL = replace(
    ADD,
    operands=(
        ADD.operands[0],
        Operand(OperandCode.TENSOR_FLOAT32, (2,), 0.5, -(2**31)),
        *ADD.operands[2:],
    ),
    values=(ConstantValue(1, BufferSlice(0, 8, 8)), ConstantValue(2, bytes(4))),
)


def hand_made(model: NnapiModel, buffers=(bytes(16),)) -> RegionDescription:
    type_ = TensorType((1, 2))
    blobs = tuple(map(Blob, buffers))
    return RegionDescription(Region(model, blobs, ("a",), ("b",), (type_,), (type_,), 30))


def test_odd_models_are_said_or_refused():
    result = texts(hand_made(MODEL)).source
    assert "{1, Source::kWeights, 72, 8}," in result
    assert "{3, 1, 0.5f, -2147483647 - 1}," in result
    with pytest.raises(SerializationError, match="buffer 0, there are 0"):
        texts(hand_made(MODEL, ()))
    with pytest.raises(SerializationError, match="ends at byte 16 of buffer 0, which has 15"):
        texts(hand_made(MODEL, (bytes(15),)))
    unsized = (Operand(OperandCode.TENSOR_FLOAT32, (0,)), *MODEL.operands[1:])
    with pytest.raises(SerializationError, match=r"input 'a' is .* of known sizes"):
        texts(hand_made(replace(MODEL, operands=unsized)))
