"""From a bundle to an app: an Android archive."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.bundle.runtime import runtime_bundle
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.device import java
from nnapi_prof.errors import UsageError, option_name
from nnapi_prof.toolchain import ANDROID_ABIS

LOWEST_API = 27
"""Android 8.1, whose libc the libraries are built for, and NNAPI's first."""
DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file in an archive: the same bundle and sources give the same bytes."""
VENDORS = tuple(
    f'    <uses-native-library android:name="{name}" android:required="false" />\n'
    for name in ("libneuron_adapter.so", "libneuronusdk_adapter.mtk.so")
)
"""Vendors' libraries that ``nnapiLibrary`` may name: from Android 12 on an app opens only those in
its manifest. NNAPI's own library is the NDK's, which needs no entry."""
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
"""For the app's shrinker: C names the classes and their methods."""


@dataclass(frozen=True)
class AndroidArchive:
    """An ``.aar`` that was written."""

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

    ``output`` is beside the bundle by default. It takes a JDK, and neither Android's SDK nor its
    NDK; libraries are built once, by zig. Raises UsageError for a bundle that an app cannot run,
    BuildError where something cannot be built.
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
        draft.write_bytes(b"")  # what cannot be written is said before minutes of compiling
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
    """``classes.jar``."""
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as folder:
        root = Path(folder)
        compiled = java.compile_classes(root)
        files = {str(path.relative_to(root)): path.read_bytes() for path in compiled}
    return _archive({"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n", **files})


def _archive(files: dict[str, bytes]) -> bytes:
    """A zip file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return content.getvalue()
