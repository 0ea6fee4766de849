"""Where input shapes come from, and what is said when they do not fit."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils import bundled_inputs

from nnapi_prof import frontend
from nnapi_prof.api.model import load
from nnapi_prof.errors import InputSpecError
from nnapi_prof.frontend.inputs import DTYPES
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.program import Program

specs = st.builds(
    frontend.InputSpec,
    st.lists(st.integers(1, 4096), min_size=1, max_size=6).map(tuple),
    st.sampled_from(DTYPES),
    st.sets(st.integers(0, 0)).map(tuple),
) | st.builds(frontend.InputSpec, st.just(()), st.sampled_from(DTYPES))


def shape_of(program: Program) -> tuple[int | str, ...]:
    """The shape of the first input."""
    return program.units.values[program.units.inputs[0]].shape


@given(specs)
def test_specs_read_what_they_print(spec):
    assert frontend.parse_input_spec(str(spec)) == spec


def test_open_sizes_have_examples():
    spec = frontend.parse_input_spec("?x3x?=96x?n:half")
    assert spec == frontend.InputSpec((1, 3, 96, 224), "float16", (0, 2, 3), ("", "", "n"))
    assert str(spec) == "?=1x3x?=96x?n=224:float16"
    assert spec.closed == frontend.InputSpec((1, 3, 96, 224), "float16")


def test_open_sizes_are_loaded_at_their_examples(saved):
    path = saved(nn.Conv2d(3, 4, 3).eval(), torch.ones(1, 3, 8, 8))
    program = frontend.load(path, [frontend.parse_input_spec("1x3x?=20x?")])
    assert shape_of(program) == (1, 3, 20, 224)
    assert program.notes == ("sizes left open are those of 1x3x20x224 here",)


NO_SHAPES = "", "1,3,224,224", "1x-3", "1x3x??", "1x3x?=", "1x?2", "1x?xx4", "1x?n m", "1xn"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, f"input {text!r} is not a shape: write sizes joined by x") for text in NO_SHAPES),
        ("1x3x?=0", "input '1x3x?=0' has a dimension of 0"),
        ("1x" + "9" * 5000, "is not a shape"),
        ("1x0x4", "input '1x0x4' has a dimension of 0: every size must be at least 1"),
        ("1x3:complex64", "input '1x3:complex64' has the element type 'complex64': one of float32"),
    ],
)
def test_bad_specs(text, message):
    with pytest.raises(InputSpecError, match=re.escape(message)) as caught:
        frontend.parse_input_spec(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        ("1x3x999999999x999999", "11,999,987,988 MB"),
        ("9999999999999999999x1:uint8", "9,999,999,999,999 MB"),
    ],
)
def test_inputs_larger_than_memory(saved, text, megabytes):
    path = saved(nn.ReLU(), torch.ones(1, 3))
    with pytest.raises(InputSpecError, match=f"takes {megabytes}, more than") as caught:
        frontend.load(path, [frontend.parse_input_spec(text)])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.ones(2, 3, dtype=torch.int16), "takes input as int16, which no device has"),
        (torch.ones(0, 3), "takes input as 0x3, which has a dimension of 0: every size must"),
    ],
)
def test_an_export_takes_what_no_device_does(tmp_path, value, message):
    """It is refused when it is loaded, not when the bundle that was made of it is run."""
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(nn.ReLU(), (value,)), path)
    with pytest.raises(InputSpecError, match=message) as caught:
        frontend.load(path)
    assert caught.value.exit_code == 2


def both(a: Tensor, b: Tensor) -> Tensor:
    return a + b


def listed(xs: list[Tensor]) -> Tensor:
    total = torch.zeros(1)
    for x in xs:
        total = total + x
    return total


def refusal(path: Path, *stated: str) -> str:
    with pytest.raises(InputSpecError) as caught:
        frontend.load(path, [frontend.parse_input_spec(text) for text in stated])
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("model", "stated", "words"),
    [
        (nn.ReLU(), ["1x3"] * 2, "takes 1 input, 2 were stated: state a shape in inputs for each"),
        (both, ["1x3"], "takes 2 inputs, 1 was stated: state a shape in inputs for each"),
        (
            both,
            [],
            "takes 2 inputs and stores no shapes: state each with inputs, as in "
            'inputs=["1x3x224x224"]',
        ),
        (listed, [], "takes the input xs of type List[Tensor]: only tensors can be inputs"),
        (
            nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(9, 4)),
            [],
            "takes 1 input and stores no shapes (the model does not run on 1x1x224x224, ",
        ),
    ],
)
def test_inputs_that_do_not_fit(saved, model, stated, words):
    assert refusal(saved(model), *stated).startswith(f"model.pt {words}")


def test_wrong_shape_says_pytorchs_essential_line_and_where(saved):
    path = saved(nn.Sequential(nn.Conv2d(3, 4, 3)).eval())
    message = refusal(path, "1x4x8x8")
    assert message.startswith(
        "model.pt does not run on the input 1x4x8x8: Given groups=1, weight of size [4, 3, 3, 3], "
        "expected input[1, 4, 8, 8] to have 3 channels, but got 4 channels instead (at "
    )
    assert re.search(r"conv\.py:\d+\): state the shapes it wants with inputs$", message)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("layers", "shape", "origin"),
    [
        ([nn.Conv2d(6, 4, 3, groups=2), nn.ReLU()], (1, 6, 224, 224), "convolution"),
        # 224x224 does not run
        ([nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(1352, 4)], (1, 1, 28, 28), "convolution"),
        ([nn.Linear(5, 2)], (1, 5), "linear layer"),
    ],
)
def test_guesses_come_from_the_first_layer_and_run(saved, layers, shape, origin):
    program = frontend.load(saved(nn.Sequential(*layers).eval()))
    sizes = "x".join(map(str, shape))
    assert shape_of(program) == shape
    assert program.notes == (
        f"input shape guessed as {sizes} from the first {origin}; state it where it is not",
    )


def test_bundled_inputs_come_before_a_guess(tmp_path):
    path = tmp_path / "bundled.pt"
    with quiet_torch():
        script = torch.jit.script(nn.Sequential(nn.Conv2d(3, 2, 3)).eval())
        bundled_inputs.augment_model_with_bundled_inputs(script, [(torch.zeros(1, 3, 9, 7),)])
        torch.jit.save(script, str(path))
    program = frontend.load(path)
    assert shape_of(program) == (1, 3, 9, 7) and program.notes == ()
    assert shape_of(frontend.load(path, [frontend.InputSpec((2, 3, 5, 5))])) == (2, 3, 5, 5)


def test_exported_program_knows_its_shapes(tmp_path):
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.Linear(4, 2).eval(), (torch.ones(3, 4),)), path)
    assert frontend.load(path).units.values["linear"].shape == (3, 2)
    assert refusal(path, "2x4") == (
        "model.pt2 was exported for the input 3x4, 2x4 was stated: leave inputs out or export the "
        "model again for other shapes"
    )
    assert refusal(path, "3x4", "3x4").startswith("model.pt2 takes 1 input, 2 were stated")


def test_free_dimension_of_an_exported_program(tmp_path):
    path, batch = tmp_path / "model.pt2", {0: torch.export.Dim("batch", min=2, max=64)}
    layer, example = nn.Linear(4, 2).eval(), (torch.ones(3, 4),)
    torch.export.save(torch.export.export(layer, example, dynamic_shapes=(batch,)), path)
    assert frontend.load(path, [frontend.InputSpec((7, 4))]).units.values["linear"].shape == (7, 2)


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x, pair, times=2, flag=None, *, scale, mode="plain"):
        y = self.layer(x) * scale
        return {"y": y * times if mode == "plain" else y, "sum": pair["a"] + pair["b"]}


def test_exported_program_with_keywords_and_nested_inputs(tmp_path):
    path = tmp_path / "model.pt2"
    pair = {"a": torch.ones(2), "b": torch.ones(3, 2)}
    arguments = (torch.ones(3, 4), pair, 3, None)
    model = Nested().eval()
    torch.export.save(torch.export.export(model, arguments, {"scale": torch.ones(2)}), path)
    program = frontend.load(path)
    assert [tuple(value.shape) for value in program.example_inputs] == [(3, 4), (2,), (3, 2), (2,)]
    x, a, b, scale = program.example_inputs
    expected = model(x, {"a": a, "b": b}, 3, scale=scale)
    for actual in (program.module(x, a, b, scale), frontend.reference(path)(x, a, b, scale)):
        torch.testing.assert_close(actual[0], expected["y"])
        torch.testing.assert_close(actual[1], expected["sum"])


def test_examples_of_integers_are_no_zeros_where_they_divide(saved):
    def divide(a: Tensor, b: Tensor) -> Tensor:
        return a // b

    program = frontend.load(saved(divide), [frontend.InputSpec((2, 3), "int32")] * 2)
    assert (program.example_inputs[1] == 1).all()


def test_quantised_inputs_are_stated_with_scale_and_zero_point():
    spec = frontend.parse_input_spec("2x?:quint8@0.05@130")
    assert (spec.dtype, spec.quant) == ("uint8", (0.05, 130))
    assert frontend.parse_input_spec(str(spec)) == spec
    for wrong in ("quint8", "quint8@0@3", "qint8@0.1@200"):
        with pytest.raises(InputSpecError, match=r"quint8@0.05@128, is required"):
            frontend.parse_input_spec(f"2x3:{wrong}")


class Tokens(nn.Module):
    """Token numbers and their mask, [n, tokens], to scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 50)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.out(self.embed(tokens) * mask.unsqueeze(-1))


def test_inputs_of_a_model_of_tokens_are_guessed_as_such(saved):
    model = Tokens().eval()
    path = saved(model, torch.zeros(1, 5, dtype=torch.int64), torch.ones(1, 5, dtype=torch.int64))
    program = frontend.load(path)
    assert [str(frontend.InputSpec.of(value)) for value in program.example_inputs] == [
        "1x64:int64", "1x64:int64",
    ]  # fmt: skip
    assert "guessed as 1x64:int64, 1x64:int64 from the first embedding" in program.notes[0]


class Lengths(nn.Module):
    """Means of the first rows of each sequence, whose lengths must be in it."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        torch._assert(lengths.shape[0] == x.shape[0], "a length for each")
        mask = torch.arange(x.shape[1]) < lengths.unsqueeze(1)
        return torch.relu(x).masked_fill(~mask.unsqueeze(-1), 0.0).sum(1) / lengths.unsqueeze(1)


@pytest.mark.parametrize("names", [("x", "lengths"), ("lengths", "x"), ()])
@pytest.mark.parametrize("ending", ["pt", "pt2"])
def test_values_from_a_file_are_those_that_the_model_has(tmp_path, names, ending):
    path, values = tmp_path / f"lengths.{ending}", tmp_path / "values.npz"
    x, lengths = torch.randn(2, 6, 4), torch.tensor([6, 4])
    arrays = {"x": x.double().numpy(), "lengths": lengths.numpy()}
    if names:
        np.savez(values, **{name: arrays[name] for name in names})
    else:
        np.savez(values, *arrays.values())
    with quiet_torch():
        if ending == "pt":
            torch.jit.save(torch.jit.script(Lengths()), str(path))
        else:
            torch.export.save(torch.export.export(Lengths(), (x, lengths)), path)
    model = load(path, f"@{values}")
    for value, stated in zip(model.program.example_inputs, (x, lengths), strict=True):
        assert torch.equal(value, stated)
    np.savez(values, x=arrays["x"], length=arrays["lengths"])
    with pytest.raises(InputSpecError, match=r"has length, and the inputs of .* are x, lengths"):
        load(path, f"@{values}")
    np.savez(values, arrays["x"], np.array([[1, 1]]))
    with pytest.raises(InputSpecError):
        load(path, f"@{values}")
    np.savez(values, np.where(np.arange(4) == 1, np.nan, arrays["x"]), arrays["lengths"])
    with pytest.raises(InputSpecError, match="12 of 48 values of arr_0 are NaN"):
        load(path, f"@{values}")


@pytest.mark.parametrize("damage", ["cut", "flipped", "objects", "text"])
def test_files_of_values_that_cannot_be_read(saved, tmp_path, damage):
    path, values = saved(nn.ReLU()), tmp_path / "values.npz"
    np.savez(values, np.array([None]) if damage == "objects" else np.ones((1, 1000)))
    content = bytearray(values.read_bytes())
    content[len(content) // 2] ^= damage == "flipped"
    values.write_bytes({"cut": content[:500], "text": b"1 2 3"}.get(damage, content))
    with pytest.raises(InputSpecError, match=r"cannot be read as arrays .*numpy\.savez") as refused:
        load(path, f"@{values}")
    assert "pickle" not in str(refused.value)
