"""examples/embed with the runtime library, built for Android without an NDK, on a phone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.device.transport.adb import connect_tcp
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, Plan, Preference, Segment, Target
from tests.device import android_elf
from tests.library.embedding import make_bundle

ABI = "arm64-v8a"
HERE_ON_THE_PHONE = "/data/local/tmp"
REFERENCE = Target.nnapi("nnapi-reference", Preference.FAST_SINGLE_ANSWER)


def classify(
    device: str, brought: Sequence[Path], bundle: bytes, image: torch.Tensor, *options: str
) -> tuple[str, NDArray[np.float32]]:
    """Runs the example on a phone; what it says, and the scores."""
    host, _, port = device.partition(":")
    transport = connect_tcp(host, int(port))
    try:
        for path in brought:
            transport.push(path, f"{HERE_ON_THE_PHONE}/{path.name}", 0o755)
        transport.push(bundle, f"{HERE_ON_THE_PHONE}/small.nnprt")
        transport.push(image.numpy().tobytes(), f"{HERE_ON_THE_PHONE}/image.raw")
        ran = transport.shell(
            [
                *("sh", "-c", 'cd "$0" && LD_LIBRARY_PATH="$0" exec ./classify "$@"'),
                *(HERE_ON_THE_PHONE, "small.nnprt", "image.raw", "scores.raw", "--runs", "2"),
                *options,
            ]
        )
        assert ran.exit_code == 0, ran.output
        scores = np.frombuffer(transport.pull(f"{HERE_ON_THE_PHONE}/scores.raw"), np.float32)
    finally:
        transport.close()
    return ran.output, scores


@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
def test_the_example_on_a_phone(static, embedded, start_phone):
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Flatten(), nn.Linear(8 * 36, 5))
    image = torch.randn(1, 3, 8, 8)
    program = prepare(model.eval(), (image,), "small")
    units = tuple(range(len(program.units.units)))
    segments = ((units[:1], REFERENCE), (units[1:], CPU))
    plan = Plan("mixed", tuple(Segment(u, t, 1e6, "a test") for u, t in segments), False)

    bundle = runtime_bundle(make_bundle(program, (plan,)))
    text, scores = classify(start_phone(ABI), embedded(static), bundle, image)
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
    assert {t.needed for t in tags if t.entry.d_tag == "DT_NEEDED"} == {
        *("libc.so", "libm.so", "libdl.so")
    }
    assert [t.soname for t in tags if t.entry.d_tag == "DT_SONAME"] == ["libnnapi_prof_runtime.so"]
    assert [t.entry.d_val for t in tags if t.entry.d_tag == "DT_FLAGS_1"] == [1]
    symbols = android_elf.listed(ABI)
    for name in android_elf.imported(elf):
        assert any(line.how in ("same", "data", "bionic") for line in symbols[name]), name
    assert not [s for s in elf.iter_segments() if s["p_type"] == "PT_TLS"]
    assert {s["p_align"] for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"} == {16384}
