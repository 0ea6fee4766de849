"""The Android archive: what is in it, and its class and bundle run by a host's JVM."""

import re
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from elftools.dwarf.callframe import FDE
from torch import nn

from nnapi_prof.api.convert import write_aar
from nnapi_prof.bundle.deployment import AppRuntime, deploy_steps
from nnapi_prof.bundle.storage import read_bundle, write_bundle
from nnapi_prof.device import java
from nnapi_prof.device.build import build_agent
from nnapi_prof.errors import BuildError, UsageError
from nnapi_prof.graph.plan import HOST, Target
from tests.device import android_elf
from tests.library.conftest import REFERENCE
from tests.library.embedding import in_two_segments
from tests.parts import missing


@pytest.fixture(autouse=True)
def needs_a_jdk():
    try:
        java.find_jdk()
    except BuildError as error:
        missing(str(error))


def small_bundle(folder: Path, first: Target = REFERENCE) -> tuple[Path, nn.Module, torch.Tensor]:
    """The folder of such a bundle."""
    bundle, model, image = in_two_segments(first)
    file = folder / "model.pt"
    file.write_bytes(b"is not read here")
    path = folder / "my net.nnprof"
    write_bundle(path, bundle, file)
    return path, model, image


@pytest.mark.android
@pytest.mark.slow("builds the library and both agents, and runs an app in a JVM")
def test_an_app_on_this_host(tmp_path, built_host, pytestconfig):
    """Of the archive all but the library, which is for a phone."""
    bundle, model, image = small_bundle(tmp_path)
    with android_elf.builds_for_phones(pytestconfig):
        archive = write_aar(bundle, tmp_path / "net.aar", abis=["arm64-v8a"])
        first = archive.path.read_bytes()
        assert write_aar(bundle, abis=["arm64-v8a"]).path.read_bytes() == first  # reproducible
    with zipfile.ZipFile(archive.path) as files:
        assert set(files.namelist()) == {
            *("AndroidManifest.xml", "R.txt", "proguard.txt", "classes.jar"),
            *("assets/my_net.nnprt", "jni/arm64-v8a/libnnapi_prof_jni.so"),
        }
        files.extractall(tmp_path / "aar")
    app = tmp_path / "app"
    jdk, classes = java.find_jdk(), tmp_path / "aar/classes.jar"
    compiler = [jdk.javac, "-cp", classes, "-d", app, "-implicit:none"]
    sources = ["-sourcepath", java.JAVA_DIR / "stubs", Path(__file__).with_name("App.java")]
    subprocess.run([*compiler, *sources], check=True, capture_output=True)
    package, cache = tmp_path / "base.apk", tmp_path / "cache"
    package.write_bytes(b"PK\3\4" + (tmp_path / f"aar/assets/{archive.asset}").read_bytes())
    cache.mkdir()
    (tmp_path / "image.raw").write_bytes(image.numpy().tobytes())
    command = [
        *(jdk.java, "-Xcheck:jni", f"-Djava.library.path={java.jni_library().parent}"),
        *("-cp", f"{classes}:{app}", "App", tmp_path / f"aar/assets/{archive.asset}"),
        *(built_host.library, tmp_path / "image.raw", tmp_path / "scores.raw"),
        *(cache, built_host.agent, package),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "WARNING" not in ran.stdout  # of -Xcheck:jni
    expected = [
        r"input \S+ \[1, 3, 8, 8\]",
        *("again true", "bytes 20 true", "asset true", "unit 0 nnapi-reference null"),
        *["unit 1 cpu null"] * (ran.stdout.count("\nunit ") - 1),
        r"shares 1\.000",
        r"plan mixed, predicted 2\.000 ms, 2 segments: 1 on nnapi-reference \(.*",
        r"log segment 0 of plan 0 runs on the CPU instead of nnapi-reference.*",
        "why true",
        *("segment nnapi nnapi-reference, compiled in .*", "segment cpu, compiled in .*"),
        r".*takes 192 values, of the shape \[1, 3, 8, 8\]: there are 1.*",
        *("refused this model is closed", "changed 2", "failed 2 .*"),
    ]
    assert re.fullmatch("\n".join(expected) + "(\n.*)*", ran.stdout), ran.stdout
    assert len(list(cache.glob("trial-*"))) == 1
    scores = np.frombuffer((tmp_path / "scores.raw").read_bytes(), np.float32)
    with torch.inference_mode():
        eager = model(image).numpy().ravel()
    np.testing.assert_allclose(scores, eager, rtol=1e-5, atol=1e-5)


@pytest.mark.android
def test_the_library_suits_a_phone(pytestconfig):
    """It exports what Java calls, and every phone has what it needs."""
    with android_elf.builds_for_phones(pytestconfig):
        elf = android_elf.read(java.jni_library("arm64-v8a"))
    exported = android_elf.exported(elf)
    natives = (java.JAVA_DIR / "dev/nnapiprof/NnapiModel.java").read_text().count(" native ")
    assert len(exported) == natives
    assert all(name.startswith("Java_dev_nnapiprof_NnapiModel_native") for name in exported)
    tags = list(elf.get_section_by_name(".dynamic").iter_tags())
    needed = {t.needed for t in tags if t.entry.d_tag == "DT_NEEDED"}
    assert needed == {"libc.so", "libm.so", "libdl.so"}
    assert {s["p_align"] for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"} == {16384}


@pytest.mark.android
@pytest.mark.parametrize("file", [java.jni_library, lambda abi: build_agent(abi, "android")])
def test_crash_reports_of_a_phone_name_the_callers(file, pytestconfig):
    """All functions of C have unwind tables and watch over their stack; XNNPACK's assembly, a tenth
    of the code, has none."""
    with android_elf.builds_for_phones(pytestconfig):
        elf = android_elf.read(file("arm64-v8a"))
    assert elf.get_section_by_name(".eh_frame_hdr") is not None
    assert "__stack_chk_fail" in {s.name for s in elf.get_section_by_name(".dynsym").iter_symbols()}
    entries = [e for e in elf.get_dwarf_info().EH_CFI_entries() if isinstance(e, FDE)]
    covered = sum(entry.header["address_range"] for entry in entries)
    assert covered > 0.85 * elf.get_section_by_name(".text")["sh_size"]


def test_where_a_bundle_can_go(tmp_path):
    bundle, _, _ = small_bundle(tmp_path)

    def refusals_of(path: Path) -> dict[AppRuntime, str | None]:
        return {step.runtime: step.refusal for step in deploy_steps(read_bundle(path), path)}

    refusals = refusals_of(bundle)
    assert "every plan of the bundle names an accelerator" in str(refusals.pop(AppRuntime.STOCK))
    assert refusals == {door: None for door in AppRuntime if door is not AppRuntime.STOCK}
    on_host, _, _ = small_bundle(tmp_path, HOST)
    by_runtime = refusals_of(on_host)
    assert "an app has no PyTorch" in str(by_runtime[AppRuntime.AAR])
    assert by_runtime[AppRuntime.CPP] == "its plan gives NNAPI nothing to run"
    with pytest.raises(UsageError, match="an app has no PyTorch"):
        write_aar(on_host)
    with pytest.raises(UsageError, match="is not an ABI that is built for: arm64-v8a"):
        write_aar(bundle, abis=["mips"])


def test_a_place_that_cannot_be_written_is_told_before_anything_is_compiled(tmp_path, monkeypatch):
    bundle, _, _ = small_bundle(tmp_path)
    monkeypatch.setattr(java, "jni_library", lambda *_, **__: pytest.fail("it compiles"))
    with pytest.raises(UsageError, match=r"cannot write .*none/net.aar: No such file"):
        write_aar(bundle, tmp_path / "none" / "net.aar")


def test_a_jdk_that_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BuildError, match=r"\(JAVA_HOME\) is not a whole JDK, it has no bin/javac"):
        java.find_jdk()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="there is no Java compiler: install a JDK"):
        java.find_jdk()
