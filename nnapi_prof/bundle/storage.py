"""Write bundles to disk and read them; the layout is in :mod:`nnapi_prof.bundle`.

A bundle's folder also stores findings for reports: advice and a bisection's faults.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from nnapi_prof.advice import Advice, advice_from_json, advice_to_json
from nnapi_prof.bundle import Bundle, MixedPrecision, RegionKey
from nnapi_prof.bundle.plan_set import VERSION as PLAN_SET_VERSION
from nnapi_prof.bundle.plan_set import FramePlan, PlanSet
from nnapi_prof.convert import Blob
from nnapi_prof.convert.deserialize import deserialize
from nnapi_prof.convert.region import Region
from nnapi_prof.costs import Conditions
from nnapi_prof.costs.model.forms import ProductForm, UnitForms, forms_from_json, forms_to_json
from nnapi_prof.costs.model.regression import fits_from_json, fits_to_json
from nnapi_prof.errors import SerializationError, UsageError, escape_untrusted, option_name
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.unit import graph_from_json, graph_to_json, type_from_json, type_to_json
from nnapi_prof.nnapi.container import ContainerKind, read_container, write_container

FORMAT = "nnapi-prof-bundle"
VERSION = 3
CHIP_FORMAT = "nnapi-prof-chip-plan"
"""Format of a manifest whose plan is estimated for a chip; nothing in its folder can run."""
MOST_MANIFEST, MOST_REGION, MOST_BLOB, MOST_MODEL = 1 << 26, 1 << 26, 1 << 31, 1 << 33
"""Largest sizes of a bundle's files in bytes, far above real ones; a constant's file must have the
size that its region states."""
MOST_LOCATION = 1000
COPIES = "copies"
"""File name of the region for outputs that no unit computes."""

_BUFFER = struct.Struct("<Q32s")


def region_id(key: RegionKey, halved: bool = False) -> str:
    """Return the file name of a region: first unit, count, level, a hash of the units and the forms
    of products, and whether it is in float16."""
    units, level, forms = key
    what = [units, _unit_forms_to_json(forms)] if forms else units
    digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:8]
    return f"u{units[0]:03d}n{len(units):03d}-l{level}-{digest}{'-f16' if halved else ''}"


def _unit_forms_to_json(forms: UnitForms) -> list[list[int | str]]:
    return [[unit, form.value] for unit, form in forms]


def region_to_bytes(region: Region) -> bytes:
    """Serialise a region without its weights, which ``BUFS`` lists by length and SHA-256."""
    info = {
        "inputs": list(region.inputs),
        "outputs": list(region.outputs),
        "input_types": [type_to_json(t) for t in region.input_types],
        "output_types": [type_to_json(t) for t in region.output_types],
        "operations": list(region.operations),
        "level": region.level,
    }
    buffers = b"".join(_BUFFER.pack(len(b.data), bytes.fromhex(b.sha256)) for b in region.blobs)
    return write_container(
        ContainerKind.MODEL,
        {"INFO": json.dumps(info).encode(), "MODL": region.serialized, "BUFS": buffers},
    )


def region_from_bytes(data: bytes, blobs: Path) -> Region:
    """Read a region. Raises SerializationError if the container, a field or a blob is invalid."""
    sections = read_container(data, ContainerKind.MODEL)
    try:
        info = json.loads(sections["INFO"])
        constants = []
        for length, digest in _BUFFER.iter_unpack(sections["BUFS"]):
            blob = Blob(read_file(blobs / digest.hex(), min(length, MOST_BLOB)))
            if len(blob.data) != length or blob.sha256 != digest.hex():
                raise SerializationError(f"{blobs / digest.hex()}: its bytes have another hash")
            constants.append(blob)
        return Region(
            model=deserialize(sections["MODL"]),
            blobs=tuple(constants),
            inputs=tuple(info["inputs"]),
            outputs=tuple(info["outputs"]),
            input_types=tuple(type_from_json(t) for t in info["input_types"]),
            output_types=tuple(type_from_json(t) for t in info["output_types"]),
            level=info["level"],
        )
    except (KeyError, ValueError, TypeError, struct.error) as error:
        raise SerializationError(f"this is not a region of a bundle: {error!r}") from error


def _plain_name(name: object) -> str:
    """Return a manifest's file name. Raises SerializationError if it leads out of the folder."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w .+@-]*", name) or ".." in name:
        raise SerializationError(
            f"{escape_untrusted(repr(name), 100)} does not name a file in the bundle"
        )
    return name


def write_bundle(path: Path, bundle: Bundle, model: Path) -> None:
    """Write a bundle to the folder ``path``, replacing an existing bundle.

    ``model`` is the original model file. Raises UsageError if ``path`` is something else, and
    OSError if it cannot be written.
    """
    replace_folder(path, lambda folder: _write(folder, bundle, model))


def replace_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Fill a temporary folder next to ``path``, then move it to ``path``, replacing a bundle there.

    Raises UsageError if ``path`` is something else, and OSError if nothing can be written.
    """
    if path.exists() and not (path / "manifest.json").is_file():
        raise UsageError(
            f"{path} exists and is not a bundle",
            f"name another {option_name('output')} or remove it",
        )
    path = path.resolve()
    temporary = path.with_name(path.name + ".part")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        write(temporary)
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
    finally:  # removes a partial bundle after a failure
        shutil.rmtree(temporary, ignore_errors=True)


def _write(folder: Path, bundle: Bundle, model: Path) -> None:
    (folder / "regions").mkdir(parents=True)
    (folder / "blobs").mkdir()
    regions = {region_id(key, halved): region for key, halved, region in _regions(bundle)}
    if bundle.copies is not None:
        regions[COPIES] = bundle.copies
    for name, region in regions.items():
        (folder / "regions" / f"{name}.nnpf").write_bytes(region_to_bytes(region))
        for blob in region.blobs:
            file = folder / "blobs" / blob.sha256
            if not file.exists():
                file.write_bytes(blob.data)
    shutil.copyfile(model, folder / bundle.model_file)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "model": bundle.model,
        "model_file": bundle.model_file,
        "model_sha256": file_checksum(folder / bundle.model_file),
        "inputs": list(bundle.inputs),
        "device": bundle.device,
        "fingerprint": bundle.fingerprint,
        "simulated": bundle.simulated,
        "conditions": bundle.conditions.to_json(),
        "graph": graph_to_json(bundle.graph),
        "plans": [json.loads(plan.to_json()) for plan in bundle.plans],
        "levels": dict(bundle.levels),
        "forms": forms_to_json(bundle.forms),
        "regions": [
            {
                "id": region_id(key, halved),
                "units": list(key[0]),
                "level": key[1],
                "forms": _unit_forms_to_json(key[2]),
                "float16": halved,
            }
            for key, halved, _ in _regions(bundle)
        ],
        "notes": list(bundle.notes),
        "costs": bundle.costs,
    }
    if bundle.fits is not None:
        manifest["fits"] = fits_to_json(bundle.fits)
    if bundle.plan_set is not None:
        manifest["plan_set"] = bundle.plan_set.to_json()
    if bundle.copies is not None:
        manifest["copies"] = COPIES
    if bundle.mixed is not None:
        manifest["mixed_precision"] = bundle.mixed.to_json()
    if bundle.frames is not None:
        manifest["frames"] = bundle.frames.to_json()
    write_manifest(folder, manifest)


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with its checksum."""
    text = json.dumps(manifest | {"sha256": _checksum(manifest)}, indent=1)
    (folder / "manifest.json").write_text(text)


def _read_region(path: Path, name: object) -> Region:
    file = path / "regions" / f"{_plain_name(name)}.nnpf"
    return region_from_bytes(read_file(file, MOST_REGION), path / "blobs")


def _regions(bundle: Bundle) -> Iterator[tuple[RegionKey, bool, Region]]:
    """Yield every region, and whether it is in float16."""
    for halved, regions in ((False, bundle.regions), (True, bundle.halved)):
        for key, region in regions.items():
            yield key, halved, region


def file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(manifest: Mapping[str, Any]) -> str:
    """Return the checksum of all members except ``sha256``, independent of the file's layout.

    Together with the regions' own checksums it covers the whole bundle, so that readers need not
    check each field.
    """
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def check_bundle(path: Path) -> Path:
    """Return the path of a bundle's manifest. Raises UsageError if there is none,
    SerializationError if another version of nnapi-prof wrote it."""
    manifest_file = path / "manifest.json"
    if not path.exists():
        raise UsageError(f"bundle {path} does not exist", "`nnapi-prof partition` makes one")
    if not manifest_file.is_file():
        raise UsageError(f"{path} is not a bundle", "`nnapi-prof partition` makes one")
    manifest = _unchecked(manifest_file)
    if manifest.get("format") == CHIP_FORMAT:
        raise UsageError(
            f"{path} is estimated for a chip that is not there, and only what ran on a device is"
            " run, compared or shipped",
            "`nnapi-prof report` shows it, `nnapi-prof convert --to qnn` writes files for the chip",
        )
    if manifest.get("format") != FORMAT:
        manifest = {}
    if manifest.get("statistic", "median") != "median":
        raise SerializationError(
            f"{path}: the bundle was planned by the 95th percentile of runs, which an older "
            "nnapi-prof did",
            "make it again with `nnapi-prof partition`",
        )
    plan_set = manifest.get("plan_set")
    set_version = plan_set.get("version") if isinstance(plan_set, dict) else None
    for whose, version, ours in (
        ("its", manifest.get("version"), VERSION),
        ("its set of plans'", set_version, PLAN_SET_VERSION),
    ):
        if not isinstance(version, int) or version == ours:
            continue
        who, remedy = "an older", "make it again with `nnapi-prof partition`"
        if version > ours:
            who, remedy = "a newer", f"update nnapi-prof, or {remedy}"
        raise SerializationError(
            f"{path}: the bundle was made by {who} nnapi-prof ({whose} version is {version}, {ours}"
            " is read)",
            remedy,
        )
    return manifest_file


def _unchecked(manifest_file: Path) -> dict[str, Any]:
    """Read a manifest without checks; empty if it is invalid, which a later read reports."""
    try:
        data = json.loads(read_file(manifest_file, MOST_MANIFEST))
    except (ValueError, OSError, RecursionError, SerializationError):
        return {}
    return data if isinstance(data, dict) else {}


def is_chip_plan(path: Path) -> bool:
    """Return whether a folder holds a plan that is estimated for a chip."""
    return _unchecked(path / "manifest.json").get("format") == CHIP_FORMAT


def read_bundle(path: Path) -> Bundle:
    """Read a bundle. Raises UsageError if there is none, SerializationError if it is damaged or
    another version of nnapi-prof wrote it."""
    manifest_file = check_bundle(path)
    try:
        data = read_manifest(manifest_file, FORMAT, VERSION)
        check_model(path, data)
        regions: dict[RegionKey, Region] = {}
        halved: dict[RegionKey, Region] = {}
        for row in data["regions"]:
            target = halved if row["float16"] else regions
            forms = tuple((unit, ProductForm(form)) for unit, form in row.get("forms", ()))
            target[tuple(row["units"]), row["level"], forms] = _read_region(path, row["id"])
        return Bundle(
            model=data["model"],
            model_file=data["model_file"],
            inputs=tuple(data["inputs"]),
            device=data["device"],
            fingerprint=data["fingerprint"],
            simulated=data["simulated"],
            conditions=Conditions.from_json(data["conditions"]),
            graph=graph_from_json(data["graph"]),
            plans=tuple(Plan.from_json(json.dumps(plan)) for plan in data["plans"]),
            levels=data["levels"],
            forms=forms_from_json(data.get("forms", {})),
            regions=regions,
            halved=halved,
            copies=_read_region(path, data["copies"]) if "copies" in data else None,
            notes=tuple(data["notes"]),
            costs=escape_untrusted(str(data.get("costs", "")), MOST_LOCATION),
            fits=fits_from_json(data.get("fits")),
            plan_set=(
                PlanSet.from_json(data["plan_set"], len(data["plans"]))
                if "plan_set" in data
                else None
            ),
            frames=(
                FramePlan.from_json(data["frames"], len(data["plans"]))
                if "frames" in data
                else None
            ),
            mixed=(
                MixedPrecision.from_json(data["mixed_precision"])
                if "mixed_precision" in data
                else None
            ),
        )
    except (
        SerializationError, KeyError, TypeError, ValueError, IndexError, AttributeError,
        OSError, RecursionError,
    ) as error:  # fmt: skip
        raise SerializationError(
            f"{path}: the bundle is damaged ({escape_untrusted(str(error), 300)})",
            "make it again with `nnapi-prof partition`",
        ) from error


def check_model(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise SerializationError if the model in a bundle was changed: outputs are compared with it,
    and those of another model would differ for no visible reason."""
    model = path / _plain_name(manifest["model_file"])
    if model.is_symlink() or model.exists():
        check_file(model, MOST_MODEL)
    if model.is_file() and file_checksum(model) != manifest["model_sha256"]:
        raise SerializationError(f"{model.name} was changed after it was written")


def read_manifest(file: Path, form: str, version: int) -> dict[str, Any]:
    """Read a manifest. Raises SerializationError if it has another format or version, or was
    changed."""
    data = json.loads(read_file(file, MOST_MANIFEST))
    if not isinstance(data, dict) or data.get("format") != form:
        raise SerializationError(f"{file.name} is not a {form}")
    if data.get("version") != version:
        raise SerializationError(
            f"{file.name} has version {data.get('version')!r}, {version} is read"
        )
    if data.get("sha256") != _checksum(data):
        raise SerializationError(f"{file.name} was changed after it was written")
    return data


# Untrusted files: only regular files up to a size limit are read.


def read_file(path: Path, most_bytes: int) -> bytes:
    """Return the content of a file.

    Raises SerializationError if it is a link, which may lead anywhere, a pipe or a device, which
    may never end, or larger than ``most_bytes``; OSError if it cannot be read.
    """
    check_file(path, most_bytes)
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # it grew
        raise SerializationError(_too_large(path, len(content), most_bytes))
    return content


def check_file(path: Path, most_bytes: int) -> None:
    """Check a file like :func:`read_file`, for readers that read it piece by piece."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise SerializationError(f"{path.name} is not a file of its own") from error
    if not stat.S_ISREG(status.st_mode):
        raise SerializationError(f"{path.name} is not a file of its own")
    if status.st_size > most_bytes:
        raise SerializationError(_too_large(path, status.st_size, most_bytes))


def _too_large(path: Path, n_bytes: int, most_bytes: int) -> str:
    return f"{path.name} has {n_bytes:,} bytes, {most_bytes:,} at most are read"


ADVICE_FILE = "advice.json"
MOST_ADVICE_BYTES = 16 << 20


def keep_advice(bundle: Path, advice: Sequence[Advice]) -> Path:
    """Write advice into a bundle's folder for reports, and return the file. Raises UsageError if it
    cannot be written."""
    file = bundle / ADVICE_FILE
    try:
        file.write_text(advice_to_json(advice), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
    return file


def kept_advice(bundle: Path) -> tuple[Advice, ...]:
    """Read the advice that :func:`keep_advice` wrote; empty if there is none. Raises
    SerializationError."""
    file = bundle / ADVICE_FILE
    if not file.exists():
        return ()
    try:
        return advice_from_json(read_file(file, MOST_ADVICE_BYTES).decode())
    except (SerializationError, UnicodeDecodeError) as error:
        raise SerializationError(f"{file}: {error}") from error


FAULTS_FILE = "faults.json"
MOST_FAULTS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Fault:
    """Units whose results on a target differ from PyTorch's."""

    label: str
    target: str
    """Key of the target."""
    kind: str
    line: str
    """``FILE:LINE`` in the user's Python; empty if unknown."""
    error: str
    """Error relative to the largest value, as text because it may be infinite."""
    cure: str


def keep_faults(bundle: Path, faults: Sequence[Fault]) -> Path:
    """Write faults into a bundle's folder and return the file.

    Raises UsageError if it cannot be written.
    """
    file = bundle / FAULTS_FILE
    try:
        file.write_text(json.dumps([asdict(fault) for fault in faults], indent=1), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
    return file


def kept_faults(bundle: Path) -> tuple[Fault, ...]:
    """Read the faults of :func:`keep_faults`; empty without any. Raises SerializationError."""
    file = bundle / FAULTS_FILE
    if not file.exists():
        return ()
    try:
        listed = json.loads(read_file(file, MOST_FAULTS_BYTES))
        names = {field.name for field in fields(Fault)}
        if not isinstance(listed, list) or not all(
            isinstance(row, dict)
            and row.keys() == names
            and all(isinstance(text, str) for text in row.values())
            for row in listed
        ):
            raise ValueError("it is not a list of faults")
    except ValueError as error:
        raise SerializationError(f"{file} is damaged: {error}") from error
    return tuple(Fault(**row) for row in listed)
