"""The runtime library with XNNPACK: in which precision and with how many threads a segment runs."""

import dataclasses
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from elftools.elf.elffile import ELFFile
from torch import nn

from nnapi_prof.costs import Conditions, Precision
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, CPU_ALONE
from tests.library.embedding import CPU_FALLBACK, Runtime, make_bundle, plan_of
from tests.parts import missing

SHAPE = (1, 8, 24, 24)


@pytest.fixture(autouse=True)
def needs_xnnpack():
    if not os.environ["NNAPI_PROF_XNNPACK"]:
        missing("the library has no XNNPACK: make xnnpack builds it")


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(8, 24, 3), nn.ReLU(), nn.Conv2d(24, 16, 3)).eval()


@pytest.fixture(scope="module")
def opened(built, emulator_library, network):
    """Plans of one segment, under conditions: the CPU with the threads of all, and with one."""
    program = prepare(network, (torch.randn(SHAPE),), "small")
    units = range(len(program.units.units))
    plans = tuple(plan_of(target.key, (units, target)) for target in (CPU, CPU_ALONE))
    bundle = make_bundle(program, plans)

    def of(**conditions):
        changed = dataclasses.replace(bundle, conditions=Conditions(**conditions))
        return Runtime(built.shared, changed, emulator_library)

    return of


def test_a_float16_segment_is_computed_in_float16(opened, network):
    image = torch.randn(SHAPE)
    with torch.no_grad():
        exact = network(image).numpy().ravel()
        eager = network.half()(image.half()).float().numpy().ravel()
        network.float()
    rounding = float(np.abs(eager - exact).max())

    def error(precision: Precision) -> float:
        model = opened(precision=precision).model()
        (result,) = model.run([image.numpy()], [exact.size * 4])
        return float(np.abs(np.frombuffer(result, np.float32) - exact).max())

    assert error(Precision.FLOAT32) < 0.01 * rounding
    if has_float16():
        assert 0.2 * rounding < error(Precision.FLOAT16) <= 3 * rounding


def has_float16() -> bool:
    """Whether XNNPACK has float16 kernels for this processor."""
    words = Path("/proc/cpuinfo").read_text().split()
    return bool({"f16c", "asimdhp"} & set(words))


def own_threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


@pytest.fixture
def threads_before():
    yield own_threads()


@pytest.mark.parametrize(("plan", "n_started"), [(0, 2), (1, 0)])
def test_a_segment_has_the_threads_of_its_target(opened, threads_before, plan, n_started):
    model = opened(threads=3).model(plan, CPU_FALLBACK)
    model.run([torch.randn(SHAPE).numpy()], [16 * 20 * 20 * 4])
    assert len(own_threads() - threads_before) == n_started
    model.free()
    assert own_threads() == threads_before


def test_a_program_may_have_another_xnnpack(built, tmp_path):
    """Of the static library the API alone is global, and it asks nobody else for XNNPACK."""
    archive = ["ar", "x", str(built.shared.with_name("libnnapi_prof_runtime.a"))]
    subprocess.run(archive, check=True, cwd=tmp_path)
    (file,) = tmp_path.iterdir()
    with file.open("rb") as stream:
        symbols = list(ELFFile(stream).get_section_by_name(".symtab").iter_symbols())
    names = {
        is_given: {
            each.name
            for each in symbols
            if each["st_info"]["bind"] != "STB_LOCAL"
            and (each["st_shndx"] != "SHN_UNDEF") == is_given
        }
        for is_given in (True, False)
    }
    assert "nnp_model_run" in names[True]
    assert {name for name in names[True] if not name.startswith("nnp_")} == set()
    ours = ("np_", "xnn_", "pthreadpool_", "cpuinfo_")
    assert {name for name in names[False] if name.startswith(ours)} == set()
