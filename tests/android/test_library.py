"""examples/embed with the runtime library, built for Android without an NDK, on a phone."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.device.transport.adb import connect_tcp
from nnapi_prof.device_agent import SOURCE_DIR
from tests.device import android_elf
from tests.library.conftest import REFERENCE
from tests.library.embedding import in_two_segments

ABI = "arm64-v8a"
HERE_ON_THE_PHONE = "/data/local/tmp"


def classify(
    device: str, brought: Sequence[Path], bundle: bytes, image: torch.Tensor, *options: str
) -> tuple[str, NDArray[np.float32]]:
    """Runs the example on a phone; what it says, and the scores."""
    host, _, port = device.partition(":")
    with contextlib.closing(connect_tcp(host, int(port))) as transport:
        for path in brought:
            transport.push(path, f"{HERE_ON_THE_PHONE}/{path.name}", 0o755)
        transport.push(bundle, f"{HERE_ON_THE_PHONE}/small.nnprt")
        transport.push(image.numpy().tobytes(), f"{HERE_ON_THE_PHONE}/image.raw")
        command = ["sh", "-c", 'cd "$0" && LD_LIBRARY_PATH="$0" exec ./classify "$@"']
        command += [HERE_ON_THE_PHONE, "small.nnprt", "image.raw", "scores.raw", "--runs", "2"]
        ran = transport.shell([*command, *options])
        assert ran.exit_code == 0, ran.output
        scores = np.frombuffer(transport.pull(f"{HERE_ON_THE_PHONE}/scores.raw"), np.float32)
    return ran.output, scores


@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
def test_the_example_on_a_phone(static, embedded, start_phone):
    bundle, model, image = in_two_segments(REFERENCE)
    text, scores = classify(start_phone(ABI), embedded(static), runtime_bundle(bundle), image)
    assert "segment 0: nnapi nnapi-reference, compiled in " in text
    assert "segment 1: cpu, compiled in " in text
    with torch.inference_mode():
        expected = model(image).numpy().ravel()
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_the_shared_library_suits_a_phone(embedded):
    """Its functions are of the API alone, and what it needs every phone has."""
    elf = android_elf.read(embedded(False)[1])
    header = (SOURCE_DIR / "library/nnapi_prof_runtime.h").read_text()
    exported = android_elf.exported(elf)
    assert len(exported) == header.count("\nNNP_API")
    assert all(name.startswith("nnp_") and f"{name}(" in header for name in exported)
    tags = list(elf.get_section_by_name(".dynamic").iter_tags())
    needed = {t.needed for t in tags if t.entry.d_tag == "DT_NEEDED"}
    assert needed == {"libc.so", "libm.so", "libdl.so"}
    assert [t.soname for t in tags if t.entry.d_tag == "DT_SONAME"] == ["libnnapi_prof_runtime.so"]
    assert [t.entry.d_val for t in tags if t.entry.d_tag == "DT_FLAGS_1"] == [1]
    symbols = android_elf.listed(ABI)
    for name in android_elf.imported(elf):
        assert any(line.how in ("same", "data", "bionic") for line in symbols[name]), name
    assert not [s for s in elf.iter_segments() if s["p_type"] == "PT_TLS"]
    assert {s["p_align"] for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"} == {16384}
