"""Calibration data: from files, functions and iterables, or made up; and its two parts."""

import io
import zipfile

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.bundled_inputs import augment_model_with_bundled_inputs

from nnapi_prof.errors import InputSpecError, ModelFileError, UsageError
from nnapi_prof.frontend import load, prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.precision.samples import Sample, load_samples


class Pair(nn.Module):
    def forward(self, x, y):
        return x + y[:, :1]


@pytest.fixture(scope="module")
def single():
    with quiet_torch():
        return prepare(nn.Linear(6, 2).eval(), (torch.zeros(1, 6),), "single")


@pytest.fixture(scope="module")
def pair():
    with quiet_torch():
        return prepare(Pair().eval(), (torch.zeros(2, 3), torch.zeros(2, 4)), "pair")


def both(samples):
    """Of both parts."""
    return [*samples.calibration, *samples.held_out]


def inputs_of(samples):
    """All samples' inputs, one row each, in their own order."""
    rows = torch.cat([sample.inputs[0] for sample in both(samples)])
    return rows[rows[:, 0].argsort()]


def rows(n, width=6):
    return torch.arange(n * width, dtype=torch.float32).reshape(n, width)


# Parts


def test_a_quarter_is_held_out_and_always_the_same(single):
    first, second = (load_samples(single, rows(16), seed=3) for _ in range(2))
    assert (len(first.calibration), len(first.held_out)) == (12, 4)
    assert torch.equal(inputs_of(first), rows(16))
    for one, other in zip(first.held_out, second.held_out, strict=True):
        assert torch.equal(one.inputs[0], other.inputs[0])
    other = load_samples(single, rows(16), seed=4)
    chosen, others = ({int(s.inputs[0][0, 0]) for s in each.held_out} for each in (first, other))
    assert chosen != others
    assert not first.notes and not first.made_up


@pytest.mark.parametrize(("n", "parts"), [(1, (1, 1)), (2, (1, 1)), (3, (2, 1)), (200, (96, 32))])
def test_sizes_of_the_parts(single, n, parts):
    samples = load_samples(single, rows(n))
    assert (len(samples.calibration), len(samples.held_out)) == parts
    assert ["one sample only" in note for note in samples.notes] == [True] * (n == 1)
    chosen = load_samples(single, rows(20), held_out=0.9, limit=10)
    assert (len(chosen.calibration), len(chosen.held_out)) == (1, 9)


# Kinds of elements


@pytest.mark.parametrize(
    "source",
    [
        rows(8),
        [rows(8)],
        [rows(8)[:5], rows(8)[5:]],
        list(rows(8).unsqueeze(1)),
        list(rows(8)),
        iter(rows(8)),
        [(row,) for row in rows(8)],
        [{"input": row} for row in rows(8)],
        rows(8).numpy(),
        rows(8).double().numpy(),
        [rows(8).half()],
        lambda: rows(8).split(3),
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows(8)), 3),
        [Sample((row[None],)) for row in rows(8)],
    ],
)
def test_what_an_iterable_may_give(single, source):
    assert torch.equal(inputs_of(load_samples(single, source)), rows(8))


@pytest.mark.parametrize(
    "source",
    [
        [(rows(4), torch.arange(4))],
        [[rows(4), torch.arange(4)]],
        [((rows(4),), torch.arange(4))],
        [{"x": rows(4), "labels": torch.arange(4)}],
        [(row, i) for i, row in enumerate(rows(4))],
        torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(rows(4), torch.arange(4)), 2, shuffle=True
        ),
    ],
)
def test_targets_stay_with_their_samples(single, source):
    for sample in both(load_samples(single, source)):
        assert float(sample.inputs[0][0, 0]) == 6 * int(sample.target)


@pytest.mark.parametrize(
    "source",
    [
        (rows(6, 3), rows(6, 4)),
        [(rows(6, 3), rows(6, 4))],
        [{"y": rows(6, 4), "x": rows(6, 3)}],
        [(rows(6, 3), rows(6, 4), torch.arange(6))],
        [((rows(6, 3), rows(6, 4)), torch.arange(6))],
    ],
)
def test_several_inputs_in_batches_of_the_models_own(pair, source):
    samples = both(load_samples(pair, source))
    assert [len(value) for s in samples for value in s.inputs] == [2, 2] * 3
    assert all(torch.equal(s.inputs[0][:, 0] * 4, s.inputs[1][:, 0] * 3) for s in samples)
    assert all(sample.target is None or len(sample.target) == 2 for sample in samples)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "has no samples"),
        (7, "samples are int"),
        ([rows(4, 5)], r"has the shapes 4x5, single takes 1x6"),
        ([torch.zeros(2, 2, 6)], r"has the shapes 2x2x6"),
        ([rows(4).long()], "is int64, single takes float32: convert it"),
        ([rows(4).log()], "not finite"),
        ([(rows(1), rows(1), rows(1))], "has 3 values, the model takes 1"),
        ([{"a": rows(1), "b": rows(1)}], "has a, b, the model takes input"),
        (["text"], "has str in it"),
    ],
)
def test_what_does_not_fit_is_refused(single, source, message):
    with pytest.raises(InputSpecError, match=message):
        load_samples(single, source)


def test_a_batch_smaller_than_the_models_is_refused(pair):
    with pytest.raises(InputSpecError, match="a batch has 1 samples, pair takes 2 at once"):
        load_samples(pair, [(rows(1, 3), rows(1, 4))])


# Files


def test_files(single, tmp_path):
    torch.save(rows(4), tmp_path / "tensor.pt")
    torch.save(list(rows(4).unsqueeze(1)), tmp_path / "list.pt")
    torch.save({"input": rows(4), "targets": torch.arange(4)}, tmp_path / "named.pt")
    np.savez(tmp_path / "arrays.npz", input=rows(4).numpy(), labels=np.arange(4))
    np.savez_compressed(tmp_path / "packed.npz", rows(4).numpy())
    for path in sorted(tmp_path.iterdir()):
        assert torch.equal(inputs_of(load_samples(single, path)), rows(4)), path
        assert torch.equal(inputs_of(load_samples(single, str(path))), rows(4))
    for path in (tmp_path, tmp_path / "image.png", tmp_path / "array.npy"):
        path.is_dir() or path.write_bytes(b"\x89PNG")
        with pytest.raises(InputSpecError, match=r"neither a \.pt nor an \.npz file"):
            load_samples(single, path)


def test_functions_of_the_users_own(single, tmp_path, monkeypatch):
    (tmp_path / "own_samples.py").write_text(
        "import torch\ndef data():\n    yield from torch.arange(24.0).reshape(4, 6)\nnumber = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    assert torch.equal(inputs_of(load_samples(single, "own_samples:data")), rows(4))
    for name in ("own_samples:number", "own_samples:none", "no_such_module:data"):
        with pytest.raises(UsageError, match=f"{name} "):
            load_samples(single, name)


# Files of strangers


class Evil:
    def __reduce__(self):
        return (print, ("this must not run",))


def refuse(single, path):
    with pytest.raises((InputSpecError, ModelFileError), match=str(path.name)) as caught:
        load_samples(single, path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 700
    return message


def rewritten(path, changes):
    """The archive with other records."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in records.items():
            archive.writestr(name, changes.get(name.partition("/")[2], data))
    return path


def test_pickles_that_do_things_are_refused(single, tmp_path, capsys):
    torch.save([rows(2), Evil()], tmp_path / "evil.pt")
    assert "print, which" in refuse(single, tmp_path / "evil.pt")
    np.savez(tmp_path / "evil.npz", x=np.array([Evil()], object))
    assert "its elements are object" in refuse(single, tmp_path / "evil.npz")
    torch.save(nn.Linear(1, 1), tmp_path / "module.pt")
    refuse(single, tmp_path / "module.pt")
    assert not capsys.readouterr().out


def test_other_bytes_are_refused(single, tmp_path):
    for name in ("a.pt", "a.npz"):
        path = tmp_path / name
        for data in (b"", b"PK", b"\x93NUMPY\x01\x00", b"\x80\x02}q\x00.", bytes(100)):
            path.write_bytes(data)
            refuse(single, path)
    refuse(single, tmp_path / "missing.pt")


def test_files_that_are_cut_off(single, tmp_path):
    torch.save(rows(50), tmp_path / "a.pt")
    np.savez(tmp_path / "a.npz", rows(50).numpy())
    for path in list(tmp_path.iterdir()):
        whole = path.read_bytes()
        for length in (10, len(whole) // 2, len(whole) - 30):
            path.write_bytes(whole[:length])
            refuse(single, path)


def test_arrays_that_say_they_are_large(single, tmp_path):
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 6)}
    np.lib.format.write_array_header_1_0(stream, header)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", stream.getvalue() + bytes(96))
    assert "it says that its shape is" in refuse(single, tmp_path / "a.npz")


def test_tensors_that_reach_beyond_their_bytes(single, tmp_path):
    path = tmp_path / "a.pt"
    torch.save(rows(50), path)
    refuse(single, rewritten(path, {"data/0": bytes(40)}))
    torch.save(torch.zeros(1).expand(1 << 40, 6), path)
    assert "at most are read" in refuse(single, path)


# Without data


def test_bundled_inputs_stand_for_data(single, tmp_path):
    with quiet_torch():
        model = torch.jit.script(nn.Linear(6, 2).eval())
        augment_model_with_bundled_inputs(model, [(row[None],) for row in rows(4)])
        torch.jit.save(model, str(tmp_path / "a.pt"))
        program = load(tmp_path / "a.pt")
    samples = load_samples(program, model=tmp_path / "a.pt")
    assert torch.equal(inputs_of(samples), rows(4))
    assert "what is stored with the model stands for it (4 of its inputs)" in samples.notes[0]
    assert not samples.made_up


def test_the_example_of_an_exported_program_stands_for_data(tmp_path):
    with quiet_torch():
        exported = torch.export.export(nn.Linear(6, 2).eval(), (rows(1),))
        torch.export.save(exported, tmp_path / "a.pt2")
        program = load(tmp_path / "a.pt2")
    samples = load_samples(program, model=tmp_path / "a.pt2")
    assert torch.equal(samples.calibration[0].inputs[0], rows(1))
    assert len(samples.notes) == 2 and "one sample only" in samples.notes[1]


def test_random_inputs_are_the_last_resort_and_said_to_be(single, tmp_path):
    samples = load_samples(single)
    assert samples.made_up
    assert "32 random inputs stand for it" in samples.notes[0]
    few = load_samples(single, limit=8)
    assert len(few.calibration) + len(few.held_out) == 8 and "8 random inputs" in few.notes[0]
    assert (len(samples.calibration), len(samples.held_out)) == (24, 8)
