"""Model files that would run, write, or fill the machine when they are loaded."""

import io
import json
import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nnapi_prof as np_
from nnapi_prof import frontend
from nnapi_prof.costs.store import CostStore
from nnapi_prof.errors import ModelFileError, NnapiProfError
from nnapi_prof.frontend import archives
from nnapi_prof.frontend.inputs import InputSpec
from nnapi_prof.frontend.loader import ModelKind, model_kind, model_structure
from nnapi_prof.frontend.script_check import refusal, runs_at_load

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def sprung(tmp_path: Path) -> Iterator[Path]:
    """The folder that a trap makes; at the end of a test it must not be there."""
    yield tmp_path / "sprung"
    assert not (tmp_path / "sprung").exists()


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


def refuse(path: Path) -> str:
    """The sentence with which every way into a file refuses it."""
    sentences = set()
    for way in (
        lambda: frontend.load(path, [InputSpec((1, 4), "float32")]),
        lambda: frontend.reference(path),
        lambda: model_structure(path, [torch.rand(1, 4)]),
    ):
        with pytest.raises(ModelFileError) as caught:
            way()
        assert caught.value.exit_code == 2
        sentences.add(str(caught.value))
    (sentence,) = sentences
    assert sentence.startswith(str(path)) and sentence.isprintable()
    return sentence


def rewrite(
    path: Path, changes: Mapping[str, bytes | Callable[[bytes], bytes] | None], **options: Any
) -> Path:
    """The archive with records replaced, changed, added or (None) left out; names are without the
    folder that all of them lie in."""
    with zipfile.ZipFile(path) as source:
        records = {name.partition("/")[2]: source.read(name) for name in source.namelist()}
    for name, change in changes.items():
        if change is None:
            del records[name]
        else:
            records[name] = change(records[name]) if callable(change) else change
    with zipfile.ZipFile(path, "w", **options) as target:
        for name, data in records.items():
            target.writestr(f"model/{name}", data)
    return path


# ---- TorchScript -----------------------------------------------------------------------------


def scripted(tmp_path: Path, forward: str, more: str = "", args: str = "x: Tensor") -> Path:
    """A file of TorchScript whose code is written by hand."""
    path = tmp_path / "model.pt"
    text = (
        "class Named(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"
        f"{more}  def forward(self: __torch__.Named,\n    {args}) -> Tensor:\n    {forward}\n"
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (
            ("data.pkl", b"\x80\x02c__torch__\nNamed\n)\x81}(X\x08\0\0\0training\x89ub."),
            ("code/__torch__.py", text.encode()),
            ("constants.pkl", b"\x80\x02)."),
            ("version", b"3\n"),
        ):
            archive.writestr(f"model/{name}", data)
    return path


WRITERS = {
    "from_file": 'y = torch.fill_(torch.from_file("{0}", True, 16, dtype=0), 65)\n'
    "    return torch.add(x, torch.sum(y))",
    "save": 'torch.save(x, "{0}")\n    return x',
    "save by another name": 'f = torch.save\n    f(x, "{0}", )\n    return x',
    "save in a branch that would not be taken": "if torch.gt(torch.len(torch.size(x)), 9):\n"
    '      torch.save(x, "{0}")\n    else:\n      pass\n    return x',
    "the name of aten": 'ops.aten.save(x, "{0}")\n    return x',
}


@pytest.mark.parametrize("kind", WRITERS)
def test_operators_that_write(tmp_path, kind, sprung):
    path = scripted(tmp_path, WRITERS[kind].format(sprung))
    torch.jit.load(path)  # it is a module to PyTorch
    assert re.search(r"aten::(save|from_file).* which is refused", refuse(path))


def test_a_default_that_runs_when_it_is_compiled(tmp_path, sprung):
    default = f'torch.fill_(torch.from_file("{sprung}", True, 16, dtype=0), 65)'
    path = scripted(tmp_path, "return x", args=f"x: Tensor,\n    y: Tensor={default}")
    assert "runs when it is loaded and names from_file, which is refused" in refuse(path)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ('torch.save(state, "{0}")', "save"),
        ('f = getattr(torch, "sa\\166e")\n    f(state, "{0}", )', "getattr"),
        ('ops.c10d.barrier(state, "{0}")', "ops.c10d"),
        ('o = ops\n    o.c10d.barrier(state, "{0}")', "ops"),
    ],
)
def test_what_restores_an_object_runs_when_it_is_loaded(tmp_path, body, word, sprung):
    more = (
        "  def __setstate__(self: __torch__.Named,\n    state: int) -> NoneType:\n"
        f"    {body.format(sprung)}\n    return None\n"
    )
    path = scripted(tmp_path, "return x", more)
    assert f"names {word}, which is refused" in refuse(path)


def test_objects_of_other_classes(tmp_path):
    more = "  store : __torch__.torch.classes.dist_c10d.Store\n"
    path = scripted(tmp_path, "return x", more)
    assert "uses torch.classes.dist_c10d, which is refused" in refuse(path)


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("  def f(self, a: int=1, b: str='x', c: float=-1e-05) -> int:\n", False),
        ("  def f(self,\n    a: List[int]=[1, 2], b: bool=True) -> int:", False),
        ("  def f(self,\n    a: int=1,\n    b: Optional[int]=None) -> int:\n", False),
        ("  k : Final[int] = 3\n  t : Final[Tensor] = CONSTANTS.c0\n", False),
        ("  def f(self, a: int=g()) -> int:\n", True),
        ("  def f(self, a: str='\\'', b: int=g()) -> int:\n", True),
        ("  def f(self, a: Tuple[int, int]=(1, g())) -> int:\n", True),
        ("  x : Tensor = g()\n", True),
        ("def f(a: int=1", True),
    ],
)  # fmt: skip
def test_which_code_runs_when_it_is_loaded(text, runs):
    assert runs_at_load(text) is runs


def test_quantised_modules_restore_themselves(tmp_path):
    path = tmp_path / "model.pt"
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    quantised = torch.ao.quantization.quantize_dynamic(model)
    torch.jit.save(torch.jit.script(quantised), path)
    assert torch.equal(frontend.reference(path)(torch.ones(1, 4))[0], quantised(torch.ones(1, 4)))


def stored(*of: object) -> bytes:
    """A pickle that refers to a storage."""
    return pickle.dumps(("storage", *of), 2)[:-1] + b"Q."


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "it names posix.mkdir"),
        (b"\x80\x02Nr\xff\xff\xff\xff.", "remembers thing 4294967295"),
        (b"\x80\x02h\x07.", "it is damaged"),
        (b"\x80\x02", "it is damaged"),
        (b"\x80\x04\x8c\x03a\nb\x8c\x01c\x93.", "it names a\\nb.c"),
        (b"\x80\x02ctorch\ndevice\n}b.", "it changes torch.device"),
        (b"\x80\x02\x82\x01.", "it has the extension code 1"),
        (b"\x80\x02c__torch__.torch.classes.evil\nThing\n.", "evil.Thing, which is not packed"),
        (b"\x80\x02K\x01Q.", "it refers to what is not a storage"),
        (stored("Float", "0", "cpu", 4), "it has a storage of an unknown type"),
        (stored(torch.FloatStorage, 0, "cpu", 4), "it has a storage without name or length"),
        (stored(torch.FloatStorage, "9", "cpu", 4), "has 4 elements, and the archive no bytes"),
    ],
)
def test_pickles_of_torchscript(tmp_path, data, words, sprung):
    data = pickle.dumps(Trap(sprung), 2) if data is None else data
    assert words in refuse(rewrite(scripted(tmp_path, "return x"), {"data.pkl": data}))


@pytest.mark.parametrize(
    ("elements", "offset", "size", "words"),
    [
        (1 << 40, 0, 4, "has 1099511627776 elements, and the archive 16 bytes for them"),
        (4, 0, 1 << 40, "reaches to element 1099511627775 of 4"),
        (4, 3, 4, "reaches to element 6 of 4"),
        (4, -1, 4, "impossible sizes"),
    ],
)
def test_tensors_beyond_their_bytes(tmp_path, elements, offset, size, words):
    path = scripted(tmp_path, "return x")

    def number(value: int) -> bytes:
        return pickle.dumps(value, 2)[2:-1]

    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu"
    storage += number(elements) + b"tQ"
    data = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset)
    data += b"(" + number(size) + b"t(" + number(1) + b"t\x89}tR."
    assert words in refuse(rewrite(path, {"data.pkl": data, "data/0": bytes(16)}))


# ---- exported programs -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def program_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    program = torch.export.export(
        nn.Linear(4, 2).eval(),
        (torch.rand(2, 4),),
        dynamic_shapes=({0: torch.export.Dim("n", min=1, max=8)},),
    )
    torch.export.save(program, path)
    assert len(frontend.reference(path)(torch.rand(3, 4))) == 1
    return path


@pytest.fixture
def exported(program_file, tmp_path):
    return Path(shutil.copyfile(program_file, tmp_path / "model.pt2"))


def saved(thing: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return buffer.getvalue()


def config_of(folder: str, name: str, is_param: bool) -> dict[str, bytes]:
    """The list of one pickled record in a folder."""
    config = {"path_name": name, "is_param": is_param, "use_pickle": True, "tensor_meta": None}
    text = json.dumps({"config": {"thing": config}})
    return {f"data/{folder}/model_{folder}_config.json": text.encode()}


CONSTANTS = "data/constants/"
NOT_LOADED = "a pickle that is not loaded"
PICKLES = {
    "data/sample_inputs/model.pt": ({}, "its data/sample_inputs/model.pt is " + NOT_LOADED),
    "data/weights/tensor_9": (config_of("weights", "tensor_9", True), "it names posix.mkdir"),
    CONSTANTS + "tensor_9": (config_of("constants", "tensor_9", True), "it names posix.mkdir"),
    CONSTANTS + "opaque_obj_0": (config_of("constants", "opaque_obj_0", False), "pickled object"),
    CONSTANTS + "custom_obj_0": (config_of("constants", "custom_obj_0", False), "pickled object"),
    # as older files have them
    "data/weights/model.pt": ({}, NOT_LOADED),
    CONSTANTS + "model.pt": ({}, NOT_LOADED),
}


@pytest.mark.parametrize("name", PICKLES)
def test_pickles_of_exported_programs(exported, name, sprung):
    config, words = PICKLES[name]
    trap = pickle.dumps(Trap(sprung)) if "obj_0" in name else saved(Trap(sprung))
    assert words in refuse(rewrite(exported, {name: trap, **config}))


def test_the_older_layout(tmp_path, sprung):
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "8.20")
        archive.writestr("serialized_exported_program.json", "{}")
        archive.writestr("serialized_state_dict.json", saved(Trap(sprung)))
    assert "serialized_state_dict.json is a pickle that is not loaded" in refuse(path)


WEIGHTS = "data/weights/model_weights_config.json"


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("data/aotinductor/model/model.so", b"\x7fELF", "is compiled code, which would run"),
        ("models/model.json", b"[" * 200_000 + b"]" * 200_000, "nested too deeply"),
        ("models/model.json", b"{", "its models/model.json is not JSON (Expecting"),
        ("models/model.json", b"[]", "its models/model.json is not a program"),
        (WEIGHTS, b"[]", "its data/weights/model_weights_config.json is not a list of tensors"),
        (WEIGHTS, b'{"config": {"w": {}}}', "names a file that is not there (None)"),
        ("data/weights/weight_0", b"", "gives weight no bytes for its elements"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_records_that_are_refused(exported, name, data, words):
    assert words in refuse(rewrite(exported, {name: data}))


EVIL = "__import__('os').mkdir('{}')"


def edit(path: Path, change: Callable[[Any], None]) -> None:
    def record(data: bytes) -> bytes:
        program = json.loads(data)
        change(program)
        return json.dumps(program).encode()

    rewrite(path, {"models/model.json": record})


def graph(program: Any) -> Any:
    return program["graph_module"]["graph"]


def deep(value: Any, key: str, text: str) -> bool:
    """Sets the first string of this key anywhere within."""
    if isinstance(value, dict):
        if isinstance(value.get(key), str):
            value[key] = text
            return True
        return any(deep(inner, key, text) for inner in value.values())
    return isinstance(value, list) and any(deep(inner, key, text) for inner in value)


GUARDS = (
    EVIL,
    "L['x'].size()[0] == (lambda: {!r})()",
    "L['\"+str(1)+\"'].size()[0] == 1 and '{}'",
    "9 ** 9 ** 9 ** 9 == '{}'",
    "L['{}'",
    "L['x'].__class__ == '{}'",
)


@pytest.mark.parametrize("code", [None, *GUARDS])
def test_expressions_of_sizes_and_guards(exported, code, sprung):
    def change(program: Any) -> None:
        if code is None:
            deep(graph(program)["tensor_values"], "expr_str", EVIL.format(sprung))
        else:
            program.update(guards_code=[code.format(sprung)])

    edit(exported, change)
    assert "which is not an expression of sizes" in refuse(exported)


NOT_NEEDED = "not an operator that models need"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("torch.os.mkdir", NOT_NEEDED),
        ("torch.hub.load", NOT_NEEDED),
        ("_operator.methodcaller", NOT_NEEDED),
        ("#anything:x", NOT_NEEDED),
        ("torch.ops.debugprims.load_tensor.default", NOT_NEEDED),
        ("torch.ops.aten.from_file.default", "reaches files"),
        ("torch.ops.higher_order.print", "runs other code"),
    ],
)
def test_a_target(exported, target, words):
    edit(exported, lambda p: graph(p)["nodes"][0].update(target=target))
    assert words in refuse(exported)


def test_names_that_are_code(exported, sprung):
    name = f"x=__import__('os').mkdir('{sprung}')"
    edit(exported, lambda p: deep(graph(p)["inputs"], "name", name))
    assert "which is not an identifier" in refuse(exported)


@pytest.mark.parametrize(
    "context",
    [
        {"default_factory_module": "antigravity", "default_factory_name": "x", "dict_context": []},
        json.dumps([{"__enum__": True, "fqn": "antigravity:X", "name": "A"}]),
        json.dumps(["a'b"]),
        json.dumps(["[a'b"]),
    ],
)
def test_how_inputs_are_nested(exported, context):
    spec = [1, {"type": "collections.defaultdict", "context": context, "children_spec": []}]
    edit(exported, lambda p: deep(p["graph_module"]["module_call_graph"], "in_spec",
                                  json.dumps(spec)))  # fmt: skip
    assert "nests its inputs" in refuse(exported) or "with a quote" in refuse(exported)


# ---- archives --------------------------------------------------------------------------------


@pytest.fixture
def one_mb_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)


@pytest.mark.parametrize("kind", ["pt", "pt2"])
def test_bombs(tmp_path, exported, kind, one_mb_is_free):
    path = exported if kind == "pt2" else scripted(tmp_path, "return x")
    rewrite(path, {"data/weights/more": bytes(20 << 20)}, compression=zipfile.ZIP_DEFLATED)
    assert "and would unpack to 21 MB, as no model does" in refuse(path)


def test_a_bomb_within(exported, one_mb_is_free):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(20 << 20))
    rewrite(exported, {"data/sample_inputs/model.pt": inner.getvalue()})
    assert "(data/sample_inputs/model.pt) has" in refuse(exported)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "model/../../evil", "model/a\x1b[2Jb"])
def test_names_that_leave_the_archive(exported, name):
    with zipfile.ZipFile(exported, "a") as archive:
        archive.writestr(name, b"x")
    assert "which leads out of the archive" in refuse(exported)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["models/model.json", "models/MODEL.json"])
def test_names_that_occur_twice(exported, name):
    with zipfile.ZipFile(exported) as archive:
        root = archive.namelist()[0].partition("/")[0]
    with zipfile.ZipFile(exported, "a") as archive:
        archive.writestr(f"{root}/{name}", b"{}")
    assert "twice" in refuse(exported)


def test_a_directory_that_readers_take_for_another(tmp_path, exported):
    """Bytes before the archive: Python counts from the end, PyTorch from the beginning."""
    data = exported.read_bytes()
    exported.write_bytes(data[:4] + bytes(60) + data)
    refuse(exported)


@pytest.mark.slow
def test_every_command_refuses(exported, refused, sprung):
    rewrite(exported, {"data/sample_inputs/model.pt": saved(Trap(sprung))})
    for words in (["convert"], ["profile", "--device", "sim:npu-phone"]):
        assert NOT_LOADED in refused(*words, exported)


def test_operators_by_name():
    allowed = "aten::conv2d aten::gelu prim::If quantized::conv2d aten::einsum torchvision::nms"
    for name in (*allowed.split(), "fbgemm::anything"):
        assert refusal(name) is None
    refused = "aten::save aten::from_file image::read_file c10d::send prim::rpc_sync nobody::knows"
    for name in (*refused.split(), "debugprims::load_tensor"):
        assert refusal(name) is not None


@pytest.mark.parametrize(
    "read",
    [
        model_kind,
        lambda path: np_.load(path),
        lambda path: CostStore(path),
        lambda path: np_.Phone.load(path.with_suffix(".json")),
        lambda path: np_.read_plan(path),
    ],
    ids=["model", "its units", "cost table", "phone", "bundle"],
)
def test_a_pipe_is_no_file(tmp_path, read):
    """Opening one would wait for a writer for ever."""
    for ending in ("pt", "json"):
        os.mkfifo(tmp_path / f"x.{ending}")
    with pytest.raises(NnapiProfError):
        read(tmp_path / "x.pt")


def test_a_link_to_a_model_is_one(tmp_path):
    file = tmp_path / "model.pt"
    torch.jit.script(nn.ReLU()).save(str(file))
    (tmp_path / "link.pt").symlink_to(file)
    assert model_kind(tmp_path / "link.pt") is ModelKind.TORCHSCRIPT
