"""Convert a model, in memory or in a file, to a module for stock PyTorch or an Android archive.

Stock PyTorch lets NNAPI choose the accelerator and passes tensors by address;
:func:`with_addresses` plans with costs that were measured in this way.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from nnapi_prof.api.model import Model, load
from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.bundle.parts import Parts, largest_parts
from nnapi_prof.bundle.stock_module import flexible_stock_module, mixed_module
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.bundle.torchscript import stock_module, why_uncarried
from nnapi_prof.convert.dynamic_shapes import FlexibleModel, Template, flexible_region
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region, to_float16
from nnapi_prof.costs import VARIABLE, Mode, default_location, is_there
from nnapi_prof.device import description_parts, java
from nnapi_prof.errors import (
    InputSpecError,
    KeepsState,
    NnapiProfError,
    NotMeasured,
    UnsupportedOp,
    UsageError,
    option_name,
)
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.examples import SIZES, exported_module, find_examples, leaves_of, runner
from nnapi_prof.frontend.loader import eval_mode, read
from nnapi_prof.frontend.structure import Structure, flat_inputs, structure_of
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import AUTO, Engine, Preference
from nnapi_prof.graph.program import Program, constant_outputs
from nnapi_prof.nnapi.codes import FeatureLevel
from nnapi_prof.toolchain import ANDROID_ABIS

LOGGER = logging.getLogger(__name__)


def convert_model(
    model: str | Path | torch.nn.Module | ExportedProgram,
    inputs: Any,
    *,
    level: int = 30,
    preference: str = "sustained",
    relaxed: bool = False,
    float16: bool = False,
    whole: bool = False,
) -> torch.jit.ScriptModule:
    """Converts a model to a module that stock PyTorch runs on NNAPI, like ``nnapi-prof convert``.

    ``model`` is TorchScript, an ExportedProgram, the path of either's file, or another module,
    which is exported. ``inputs`` is an example of its arguments: a tensor, or a sequence of
    arguments, nested as in the call. A text may give the shape in place of a tensor, as for
    ``--input``: ``"1x3x?x?"``. Sizes of ``?`` and 0 are left open, and taken from the inputs
    whenever these change. Images with the attribute ``nnapi_nhwc`` are stored channels last by
    NNAPI; if any input has it, the images that the module returns are stored so, too.

    Numbers as arguments and state are treated as by :func:`nnapi_prof.load`.

    The module takes and returns the same as ``model``; ``torch.jit.save`` saves it. Operations that
    NNAPI lacks at ``level`` (27 to 31, 1000006 to 1000008) stay on the CPU; with ``whole``, or with
    open sizes, they are refused. ``preference`` is low_power, fast or sustained.

    Raises NnapiProfError.
    """
    chosen = next((p for p in Preference if p.short == preference), None)
    if chosen is None:
        names = ", ".join(p.short for p in Preference)
        raise InputSpecError(f"the preference is {preference!r}: one of {names} is required")
    if level not in list(FeatureLevel):
        levels = ", ".join(str(int(each)) for each in FeatureLevel)
        raise InputSpecError(f"the level is {level}: one of {levels} is required")
    options = _Options(level, chosen, relaxed, float16, whole)
    is_ready = isinstance(model, str | Path | torch.jit.ScriptModule)
    if not is_ready or all(isinstance(v, Tensor | str) for v in pytree.tree_leaves(inputs)):
        try:
            return _convert_tensors_only(model, inputs, options)
        except KeepsState as kept:
            LOGGER.debug("%s", kept)
    of_tensors = load(model, inputs)
    return _convert_tensors_only(of_tensors.path, of_tensors.inputs, options)


class _Options(NamedTuple):
    """Options of a conversion."""

    level: int
    preference: Preference
    relaxed: bool
    float16: bool
    whole: bool


def _convert_tensors_only(
    model: str | Path | torch.nn.Module | ExportedProgram, inputs: Any, options: _Options
) -> torch.jit.ScriptModule:
    """Converts a model whose inputs are all tensors. Raises KeepsState for one with state."""
    level, chosen, relaxed, float16, whole = options
    args = (inputs,) if isinstance(inputs, Tensor | str) else tuple(inputs)
    leaves = leaves_of((args, {}))
    name = Path(model).name if isinstance(model, str | Path) else "model"
    loaded = read(Path(model)) if isinstance(model, str | Path) else model
    mode = eval_mode(loaded) if isinstance(loaded, torch.nn.Module) else nullcontext()
    with quiet_torch(), mode:
        is_ready = isinstance(loaded, torch.jit.ScriptModule | ExportedProgram)
        sizes = SIZES if is_ready else SIZES[1:]  # an export takes a 1 for what must be 1
        specs, examples = find_examples(leaves, runner(loaded, (args, {}), name), sizes)
        is_open = any(spec.open_dims for spec in specs)
        if is_open and float16:
            raise InputSpecError("float16 is for fixed sizes", "state them instead of leaving them")
        if not isinstance(loaded, torch.jit.ScriptModule | ExportedProgram):
            loaded = exported_module(loaded, (args, {}), specs, examples, name)
        flat = flat_inputs(loaded, name) if isinstance(loaded, torch.jit.ScriptModule) else loaded
        keep = not whole and not is_open
        last = [i for i, leaf in enumerate(leaves) if getattr(leaf, "nnapi_nhwc", False)]
        program = prepare(flat, examples, name, keep, last)
        if not program.units.units:
            raise NnapiProfError(
                f"{name} computes nothing: its outputs are constants or its inputs as they are, "
                "and NNAPI has nothing to run"
            )
        rest = (chosen, relaxed, structure_of(loaded, examples, name))
        if is_open:
            template = flexible_region(FlexibleModel(flat, specs, name, last), level)
            return module_of(program, template, *rest)
        region: Region | None = None
        try:
            every = tuple(range(len(program.units.units)))
            region = convert_region(program, every, level, for_stock=True)
        except UnsupportedOp:
            if whole:
                raise
        if region is not None and (whole or not why_uncarried(region)):
            return module_of(program, to_float16(region) if float16 else region, *rest)
        parts = largest_parts(program, level, chosen)
        if not parts.regions:
            reasons = "; ".join(dict.fromkeys(map(str, parts.cpu_reasons.values())))
            raise NnapiProfError(f"NNAPI can run nothing of {name} in stock PyTorch: {reasons}")
        return module_of(program, parts.in_float16() if float16 else parts, *rest)


def module_of(
    program: Program,
    source: Region | Template | Parts,
    preference: Preference,
    relaxed: bool,
    structure: Structure,
) -> torch.jit.ScriptModule:
    """Makes a module for stock PyTorch of a converted program: whole, whole with open sizes, or in
    parts, which have their own preferences."""
    constants = constant_outputs(program)
    if isinstance(source, Parts):
        return mixed_module(program, source, constants, relaxed, structure)
    rest = (constants, preference, relaxed, structure)
    if isinstance(source, Template):
        return flexible_stock_module(program.units, source, *rest)
    return stock_module(program.units, source, *rest)


# From a bundle to an app: an Android archive.

LOWEST_API = 27
"""Android 8.1, NNAPI's first version, for whose libc the libraries are built."""
DATE = (1980, 1, 1, 0, 0, 0)
"""Date of every file in an archive, so that the same bundle and sources give the same bytes."""
VENDORS = tuple(
    f'    <uses-native-library android:name="{name}" android:required="false" />\n'
    for name in ("libneuron_adapter.so", "libneuronusdk_adapter.mtk.so")
)
"""Vendors' libraries that ``nnapiLibrary`` may name: from Android 12 on, an app can only open those
in its manifest. NNAPI's own library is part of the NDK and needs no entry."""
MANIFEST = f"""\
<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android" package="dev.nnapiprof">
  <uses-sdk android:minSdkVersion="{LOWEST_API}" />
  <uses-feature android:name="android.hardware.npu" android:required="false" />
  <application>
{"".join(VENDORS)}\
    <service
        android:name="dev.nnapiprof.NnapiTrialService"
        android:exported="false"
        android:process=":nnapi_trial" />
  </application>
</manifest>
"""
RULES = "-keep class dev.nnapiprof.** { *; }\n"
"""Rules for the app's shrinker: C code looks up the classes and methods by name."""


@dataclass(frozen=True)
class AndroidArchive:
    """An Android archive (``.aar``) and its content."""

    path: Path
    asset: str
    """The bundle's name among the app's assets."""
    abis: tuple[str, ...]
    n_bytes: int


def write_aar(
    bundle: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    abis: Sequence[str] = ANDROID_ABIS,
    progress: Callable[[str], None] | None = None,
) -> AndroidArchive:
    """Writes an Android archive with the runtime library for each ABI, the class
    ``dev.nnapiprof.NnapiModel``, and the bundle as an asset; an app needs nothing else.

    ``output`` defaults to a file beside the bundle. This requires a JDK, but neither Android's SDK
    nor its NDK; zig builds the libraries once. Raises UsageError for a bundle that an app cannot
    run, BuildError where a build fails.
    """
    path = Path(bundle)
    if unknown := [abi for abi in abis if abi not in ANDROID_ABIS]:
        raise UsageError(
            f"{option_name('abis', unknown[0])} is not an ABI that is built for:"
            f" {', '.join(ANDROID_ABIS)}"
        )
    content = runtime_bundle(read_bundle(path))
    target = path.with_suffix(".aar") if output is None else Path(output)
    asset = f"{re.sub(r'[^A-Za-z0-9_.-]', '_', path.stem)}.nnprt"
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    with _writing(target):
        draft.write_bytes(b"")  # fails before minutes of compiling, not after
    try:
        archive = _archive(_files(asset, content, abis, progress))
        with _writing(target):
            draft.write_bytes(archive)
            draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return AndroidArchive(target, asset, tuple(abis), len(archive))


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Raises UsageError where the archive cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {target}: {error.strerror or error}",
            f"name another {option_name('output')}",
        ) from error


def _files(
    asset: str, content: bytes, abis: Sequence[str], progress: Callable[[str], None] | None
) -> dict[str, bytes]:
    """Returns the archive's files by name."""
    files = {
        "AndroidManifest.xml": MANIFEST.encode(),
        "R.txt": b"",
        "proguard.txt": RULES.encode(),
        "classes.jar": _classes(),
        f"assets/{asset}": content,
    }
    for abi in abis:
        library = java.jni_library(abi, progress=progress)
        files[f"jni/{abi}/{java.LIBRARY}"] = library.read_bytes()
    return files


def _classes() -> bytes:
    """Returns the content of ``classes.jar``."""
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as folder:
        root = Path(folder)
        compiled = java.compile_classes(root)
        files = {str(path.relative_to(root)): path.read_bytes() for path in compiled}
    return _archive({"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n", **files})


def _archive(files: dict[str, bytes]) -> bytes:
    """Returns a zip file of the given files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return content.getvalue()


def with_addresses(bundle: Bundle, model: Model, costs: str | None = None) -> Bundle:
    """Returns a bundle planned with costs of tensors passed by address, without targets that name
    an accelerator. The costs are rows of the bundle's device in a cost table, otherwise under the
    bundle's conditions. The bundle itself is returned if it is planned so, or uses NNAPI nowhere.

    ``costs`` is that of :func:`.read_costs`. Raises NotMeasured where the table has no such rows
    (with ``costs`` None also where there is no table), CostError where it cannot be read,
    UsageError where ``costs`` names none, PartitionError where a unit then runs nowhere.
    """
    from nnapi_prof.api.cost_tables import open_table, read_costs
    from nnapi_prof.api.planning import partition
    from nnapi_prof.reports.bundle_data import naming_table

    on_nnapi = any(s.target.engine is Engine.NNAPI for plan in bundle.plans for s in plan.segments)
    asked = bundle.conditions
    if asked.mode is Mode.POINTERS or not on_nnapi or bundle.mixed is not None:
        return bundle
    device = description_parts(bundle.device)[0]
    with naming_table(bundle, costs):
        if costs is None and not os.environ.get(VARIABLE) and not is_there(default_location()):
            raise NotMeasured(f"there is no cost table {default_location()}")
        with open_table(costs, to_read=True) as store:
            if bundle.fingerprint not in store.fingerprints():
                raise NotMeasured(f"cost table {store.location} has nothing of {device}")
            measured = read_costs(
                model,
                store,
                bundle.fingerprint,
                conditions=replace(asked, mode=Mode.POINTERS),
            )
        model_costs = measured.measured
        assert model_costs is not None, "rows of one precision, without estimates"
        targets = tuple(t for t in model_costs.targets if t.accelerator in (None, AUTO))
        if not any(target.accelerator == AUTO for target in targets):
            raise NotMeasured(f"NNAPI's own choice ({AUTO}) was not measured with addresses")
    priced = replace(model_costs, targets=targets)
    planned = partition(model, replace(measured, priced=priced), verify=False)
    return replace(bundle, plans=planned.plans, conditions=measured.conditions)
