"""Plants faults of one line each and checks that a quick test finds every one.

``python -m tests.mutations [PART ...]`` copies the working tree, runs the named tests of each
mutation, which must pass, and then runs them again with the mutation, where they must fail. With
parts of file names only the mutations of those files run. Exits with 1 if one is not found.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device.build import ARCHIVES, HOST_LIBRARIES, SOURCES, build_key
from nnapi_prof.toolchain import find_compiler, python_tool

REPO = Path(__file__).resolve().parent.parent
CACHE = Path("build/cache")
KERNELS = "device_agent/runtime/kernels"
SEARCH = "partition/search"
AOSP = "tests/emulator/vectors/test_aosp.py"
C_UNITS = ("tests/agent/test_c_units.py",)


@dataclass(frozen=True)
class Mutation:
    """A part of a line that occurs once in a file, what takes its place, and pytest's arguments for
    the tests that must find it."""

    file: str
    before: str
    after: str
    tests: tuple[str, ...]


def vectors(*specs: str) -> tuple[str, ...]:
    """AOSP's examples on the reference back end."""
    return tuple(f"{AOSP}::test_spec[nnapi-reference-{spec}]" for spec in specs)


def case(name: str) -> tuple[str, ...]:
    """An operator's case at every level."""
    return (f"tests/convert/test_ops.py::test_right_at_every_level[{name}]",)


MUTATIONS = (
    # ---- the solver ------------------------------------------------------------------------------
    Mutation(
        f"{SEARCH}/kernels/ideals.c",
        "double ahead = lv->ideals[ideal].rest + label->saved + label->formats;",
        "double ahead = 1.5 * lv->ideals[ideal].rest + label->saved + label->formats;",
        ("tests/partition/test_search.py", "-k", "upper_bound or proves"),
    ),
    Mutation(
        f"{SEARCH}/kernels/ideals.c",
        "cost += lv->tb->alone_ns[la->unit * t + k];",
        "cost += 0 * lv->tb->alone_ns[la->unit * t + k];",
        ("tests/partition/test_search.py", "-k", "watched or watching"),
    ),
    Mutation(
        f"{SEARCH}/kernels/ideals.c",
        "cost += lv->tb->out_ns[slot_value[slot] * t + k];",
        "cost += lv->tb->in_ns[slot_value[slot] * t + k];",
        ("tests/partition/test_judge.py::test_plans_of_random_graphs[2]",),
    ),
    Mutation(
        f"{SEARCH}/kernels/formats.c",
        "step->cost += tb->format[k] ? tb->to_int8_ns[value] : tb->to_float_ns[value];",
        "step->cost += tb->format[k] ? tb->to_float_ns[value] : tb->to_int8_ns[value];",
        ("tests/partition/test_search.py", "-k", "finds_the_optimum and True"),
    ),
    Mutation(
        f"{SEARCH}/kernels/anneal.c",
        "ns += np_region_ns(r, st->key[b] ^ own, kb);",
        "ns -= np_region_ns(r, st->key[b] ^ own, kb);",
        ("tests/partition/test_search.py", "-k", "adds_up and False"),
    ),
    Mutation(
        f"{SEARCH}/kernels/anneal.c",
        "ns += converting_ns(r, value, (int64_t)1 << format, n_int8[value]);",
        "ns += converting_ns(r, value, (int64_t)1 << (1 - format), n_int8[value]);",
        ("tests/partition/test_search.py", "-k", "adds_up and True"),
    ),
    Mutation(
        f"{SEARCH}/kernels/schedules.c",
        "last = fmax(last, end[u]);",
        "last = fmax(last, 2 * end[u]);",
        ("tests/partition/test_lanes.py", "-k", "schedules_are_the_best_of_all"),
    ),
    # ---- the converter ---------------------------------------------------------------------------
    Mutation(
        "nnapi_prof/convert/ops/convolution.py",
        "window = [left, right, top, bottom, filters.stride[1], filters.stride[0]]",
        "window = [top, bottom, left, right, filters.stride[1], filters.stride[0]]",
        case("conv padded asymmetrically"),
    ),
    Mutation(
        "nnapi_prof/convert/ops/convolution.py",
        "multiplier = weight.shape[0] // channels",
        "multiplier = channels // weight.shape[0] or 1",
        case("conv depthwise, two filters a channel"),
    ),
    Mutation(
        "nnapi_prof/convert/ops/pool_resize.py",
        'counts_padding = op.arg("count_include_pad") and padding != (0, 0)',
        "counts_padding = padding != (0, 0)",
        case("avg pool, padding left out"),
    ),
    Mutation(
        "nnapi_prof/convert/ops/activation.py",
        "spread = (x * x).mean([1, 3]) + eps",
        "spread = (x * x).mean([1, 3]) + 2 * eps + 0.01",
        ("tests/convert/test_ops.py", "-k", "group and norm"),
    ),
    Mutation(
        "nnapi_prof/convert/quantize_rules.py",
        "slope = 2 * math.sqrt(2 / math.pi)",
        "slope = 2 * math.sqrt(3 / math.pi)",
        ("tests/convert/test_quantised.py", "-k", "every_integer"),
    ),
    # ---- the agent -------------------------------------------------------------------------------
    Mutation(
        "device_agent/src/container.c",
        "NP_REQUIRE(crc == entry->crc,",
        "NP_REQUIRE(crc + 1 != entry->crc,",
        C_UNITS,
    ),
    Mutation(
        "device_agent/src/container.c",
        "NP_REQUIRE(end >= entry.offset && end <= size,",
        "NP_REQUIRE(end >= entry.offset && end <= size + 8,",
        ("tests/agent/test_malformed.py",),
    ),
    Mutation(
        "device_agent/src/container.c",
        "NP_REQUIRE(entry.offset % 8 == 0 &&",
        "NP_REQUIRE(entry.offset % 4 == 0 &&",
        C_UNITS,
    ),
    Mutation(
        "device_agent/src/container.c",
        "other.offset + other.length <= entry.offset ||",
        "other.offset + other.length <= entry.offset + 8 ||",
        C_UNITS,
    ),
    Mutation(
        "device_agent/src/timing.c",
        "return sorted[WINDOW / 2];",
        "return sorted[WINDOW - 1];",
        C_UNITS,
    ),
    Mutation(
        "device_agent/src/timing.c",
        "step_ns[i * stride] = after - before;",
        "step_ns[i * stride] = after - start;",
        C_UNITS,
    ),
    Mutation(
        "device_agent/src/timing.c",
        "(i + 1 >= plan->min_runs && spent >= plan->budget_ns)",
        "(i >= plan->min_runs && spent >= plan->budget_ns)",
        C_UNITS,
    ),
    Mutation(
        "device_agent/src/schedule.c",
        ".attempt = attempt,",
        ".attempt = attempt + 1,",
        ("tests/phones/test_limited_driver.py", "-k", "come"),
    ),
    Mutation(
        "device_agent/src/schedule.c",
        "*n_ok += alone.n_ok;",
        "*n_ok += 1 + alone.n_ok;",
        ("tests/agent/test_groups.py", "-k", "member"),
    ),
    Mutation(
        "device_agent/src/schedule.c",
        "first += wave.n;",
        "first += 1;",
        ("tests/agent/test_groups.py", "-k", "follow"),
    ),
    # ---- the runtime -----------------------------------------------------------------------------
    Mutation(
        f"{KERNELS}/window.c",
        "padded < reach ? 0 : (padded - reach) / stride + 1;",
        "padded < reach ? 0 : (padded - reach + 1) / stride + 1;",
        vectors("V1_2/conv2d_v1_2", "V1_2/avg_pool_v1_2", "V1_0/max_pool_float_2"),
    ),
    Mutation(
        f"{KERNELS}/kernel_conv_quant.c",
        "(size_t)x * w->stride_w + (size_t)first_x * w->dilation_w - w->pad_left;",
        "(size_t)x * w->stride_w + (size_t)first_x * w->dilation_h - w->pad_left;",
        ("tests/emulator/kernels/test_level_4.py", "-k", "differ"),
    ),
    Mutation(
        f"{KERNELS}/kernel_depthwise.c",
        "out[k * multiplier + q] += x * weights[t][k * multiplier + q];",
        "out[k * multiplier + q] += x * weights[t][k + q];",
        vectors("V1_2/depthwise_conv2d_v1_2"),
    ),
    Mutation(
        f"{KERNELS}/kernel_pool.c",
        "out[c] = cell[c] > out[c] ? cell[c] : out[c];",
        "out[c] = cell[c] < out[c] ? cell[c] : out[c];",
        vectors("V1_2/max_pool_v1_2"),
    ),
    Mutation(
        f"{KERNELS}/kernel_softmax.c",
        "const float scaled = (in[i * step] - top) * beta;",
        "const float scaled = in[i * step] - top * beta;",
        vectors("V1_2/softmax_v1_2"),
    ),
    Mutation(
        f"{KERNELS}/quant.c",
        "const float q = (float)zero_point + roundf(value / scale);",
        "const float q = (float)zero_point + floorf(value / scale);",
        vectors("V1_2/quantize"),
    ),
    Mutation(
        f"{KERNELS}/kernel_binary_quant.c",
        "const double twice_largest = 2.0 * (double)(a->scale > b->scale ? a->scale : b->scale);",
        "const double twice_largest = 2.0 * (double)a->scale;",
        vectors("V1_2/sub_quantized_different_scales", "V1_0/add_quant8"),
    ),
    Mutation(
        f"{KERNELS}/kernel_resize.c",
        "((float)at + 0.5f) * scale - 0.5f",
        "((float)at + 0.5f) * scale",
        ("tests/emulator/kernels/test_level_4.py", "-k", "centres"),
    ),
    Mutation(
        f"{KERNELS}/kernel_join.c",
        "const float bias = (float)-(from->zero_point + shift) * scale;",
        "const float bias = (float)-(to->zero_point + shift) * scale;",
        vectors("V1_2/concat_mixed_quant"),
    ),
    Mutation(
        f"{KERNELS}/kernel_lstm_sequence.c",
        "const size_t t = one->backward ? sequence->steps - 1 - i : i;",
        "const size_t t = one->backward ? i : i;",
        vectors("V1_2/bidirectional_sequence_lstm"),
    ),
    Mutation(
        f"{KERNELS}/kernel_topk.c",
        "(a.value == b.value && a.index > b.index)",
        "(a.value == b.value && a.index < b.index)",
        ("tests/emulator/kernels/test_level_4.py", "-k", "equal"),
    ),
    Mutation(
        f"{KERNELS}/kernel_transpose_conv.c",
        "axis->before = padding > 0 ? (uint32_t)(padding / 2) : 0;",
        "axis->before = padding > 0 ? (uint32_t)((padding + 1) / 2) : 0;",
        ("tests/emulator/kernels/test_level_4.py", "-k", "odd"),
    ),
    # ---- reports ---------------------------------------------------------------------------------
    Mutation(
        "nnapi_prof/reports/headline.py",
        "return self.rival_ms / self.plan_ms if self.plan_ms else 1.0",
        "return self.plan_ms / self.rival_ms if self.plan_ms else 1.0",
        ("tests/reports/test_headline.py",),
    ),
    Mutation(
        "nnapi_prof/reports/comparison.py",
        "return theirs / self.median_ns",
        "return self.median_ns / theirs",
        ("tests/reports/test_comparison.py",),
    ),
    Mutation(
        "nnapi_prof/reports/trace.py",
        "NS_PER_US = 1e3",
        "NS_PER_US = 1e6",
        ("tests/reports/test_trace.py",),
    ),
    Mutation(
        "nnapi_prof/costs/measurement.py",
        "if runs and not each.unsteady]",
        "if runs]",
        ("tests/costs/test_measurement.py", "-k", "rounds"),
    ),
)


class Copy:
    """A copy of the working tree to plant faults in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        names = subprocess.check_output(["git", "ls-files", "-z"], cwd=REPO, text=True)
        for name in names.rstrip("\0").split("\0"):
            if (REPO / name).exists():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(REPO / name, root / name, follow_symlinks=False)

    def build(self, *flags: str, xnnpack: Path | None = None) -> Path:
        """Compiles the agent and the emulator into the folder where tests look for them, which is
        returned; only what changed."""
        work = self.root / "build" / "mutants"
        cmake = python_tool("cmake", "CMAKE_BIN_DIR")
        if not work.exists():
            named = f"-DNP_XNNPACK={xnnpack or ''}"
            options = ("-DCMAKE_BUILD_TYPE=Release", named, "-DNP_WERROR=OFF", *flags)
            ninja = f"-DCMAKE_MAKE_PROGRAM={python_tool('ninja', 'BIN_DIR')}"
            source = self.root / "device_agent"
            command = [cmake, "-S", source, "-B", work, "-G", "Ninja", ninja, *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([cmake, "--build", work], check=True, stdout=subprocess.DEVNULL)
        script = f"from tests.mutations import key; print(key({str(xnnpack or '')!r}))"
        name = subprocess.check_output([sys.executable, "-c", script], cwd=self.root, text=True)
        folder = self.root / CACHE / "agents" / name.strip()
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("agent", *HOST_LIBRARIES, *ARCHIVES):
            shutil.copy(work / name, folder / name)
        return folder

    def passes(self, tests: tuple[str, ...]) -> bool:
        """Runs tests; True if they pass. Raises CalledProcessError if pytest cannot run them."""
        options = ("-x", "-q", "-p", "no:cacheprovider", "--timeout", "120")
        command = [sys.executable, "-m", "pytest", *options, *tests]
        environment = os.environ | {"NNAPI_PROF_XNNPACK": "", "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        if ran.returncode not in (0, 1):
            raise subprocess.CalledProcessError(ran.returncode, command, ran.stdout, ran.stderr)
        return ran.returncode == 0

    def is_found(self, mutation: Mutation) -> bool:
        """Plants a fault, runs its tests and takes the fault out again."""
        path = self.root / mutation.file
        text = path.read_text()
        assert text.count(mutation.before) == 1, f"{mutation.file}: {mutation.before}"
        path.write_text(text.replace(mutation.before, mutation.after))
        try:
            if mutation.file.startswith("device_agent/"):
                self.build()
            return not self.passes(mutation.tests)
        finally:
            path.write_text(text)


def key(xnnpack: str = "") -> str:
    """Returns the name of the build of this tree in the cache, with this prefix of XNNPACK."""
    return build_key(find_compiler(CACHE), Path(xnnpack) if xnnpack else None, SOURCES)


def main(parts: list[str]) -> int:
    chosen = [m for m in MUTATIONS if not parts or any(part in m.file for part in parts)]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Copy(Path(folder))
        copy.build()
        for tests in dict.fromkeys(mutation.tests for mutation in chosen):
            if not copy.passes(tests):
                print(f"fails without a mutation: {' '.join(tests)}")
                return 1
        for mutation in chosen:
            start = time.perf_counter()
            is_found = copy.is_found(mutation)
            missed += not is_found
            verdict = "found" if is_found else "MISSED"
            seconds = time.perf_counter() - start
            print(f"{verdict:6} {seconds:5.1f} s  {mutation.file}: {mutation.after}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutations found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
