"""Command lines that mean nothing: exit code 2, one message, and nothing is done.

The words of errors in what is read and reached are in tests/cli/messages.
"""

import pytest

from tests.cli.common import INPUT

TABLE = f"--input {INPUT} --costs {{costs}}"
NAMED = f"{TABLE} --device sim:npu-phone"
MISUSED = [
    # ---- any command
    ("frobnicate", "no such command 'frobnicate': see `nnapi-prof --help`"),
    ("profil", "no such command 'profil': did you mean 'profile'? See `nnapi-prof --help`"),
    ("run --runz 3", "no such option '--runz': did you mean '--runs'? See `nnapi-prof"),
    ("--frobnicate", "no such option '--frobnicate': see `nnapi-prof --help`"),
    ("run --frob x", "no such option '--frob': see `nnapi-prof run --help`"),
    ("profile", "missing argument 'MODEL': see `nnapi-prof profile --help`"),
    ("profile a.pt b.pt", "got unexpected extra argument (b.pt): see `nnapi-prof"),
    ("profile --costs", "option '--costs' requires an argument"),
    ("profile --runs 0 a.pt", "invalid value for '--runs': 0 is not in the range"),
    ("profile --runs many a.pt", "'many' is not a valid integer"),
    ("profile --preference slow a.pt", "'low_power', 'fast', 'sustained'"),
    ("run --tolerance -1 a", "invalid value for '--tolerance'"),
    ("devices -q -v", "exclude each other"),
    ("schema devics", "no document 'devics' (did you mean devices?)"),
    ("completion tcsh", "'bash', 'zsh', 'fish'"),
    # ---- conditions, and doors to NNAPI
    ("profile {named} --relaxed --float16 {model}", "--float16 has no float32"),
    ("profile {named} --cpus little {model}", "'little' is neither big nor all nor a mask like"),
    ("profile {named} --memory-mb 0 {model}", "invalid value for '--memory-mb'"),
    ("profile {named} --cooldown-s -1 {model}", "invalid value for '--cooldown-s'"),
    ("partition {named} --relaxed --float16 {model}", "--float16 has no float32"),
    ("partition {named} --cpus little {model}", "'little' is neither big nor all nor a mask like"),
    ("partition {named} --memory-mb 0 {model}", "invalid value for '--memory-mb'"),
    ("partition {named} --cooldown-s -1 {model}", "invalid value for '--cooldown-s'"),
    ("profile {named},library=/a.so --nnapi-library /b.so {model}", "leave one out"),
    ("profile {named},library= {model}", "names no library"),
    # ---- plans
    ("partition {named} -o {out} --max-error 0.001 {model}", "add one of them"),
    ("partition {named} -o {out} --forbid conv2d*=tpu {model}", "no target 'tpu'; there are cpu,"),
    ("partition {named} -o {out} --pin conv2d* {model}", "say where, as in --pin 'conv2d*=cpu'"),
    ("partition {named} -o {out} --pin conv2d*=nnapi:* {model}", "one target wanted"),
    ("partition {named} -o {out} --pin conv2d*=cpu --pin *=nnapi:sim-npu/fast {model}",
     "is pinned to cpu, too"),
    ("partition {named} -o {out} --preference low_power {model}", "nothing was measured under it"),
    ("partition {named} --frames-in-flight 2 {model}",
     "--frames-in-flight is for --objective throughput"),
    ("partition {named} --objective throughput --pin conv2d*=cpu {model}",
     "--pin and --objective throughput exclude each other"),
    ("partition {named} --parallel --max-regions 1 {model}",
     "--max-regions and --parallel exclude each other"),
    ("pareto {named} --budget much {model}", "'much' is not an error: write 2%, 0.02 or 34dB"),
    ("pareto {named} --precisions int3 {model}", "some of float32,relaxed,float16,int8 are"),
    ("pareto {named} --precisions float32 {model}", "name them with --precisions"),
    ("fleet {table} --phones pixel* {model}", "no device of the cost table is called 'pixel*'"),
    ("fleet {table} --weight gpu {model}", "a pattern of phones and a number"),
    ("fleet {table} --weight *=0 {model}", "the weight of some phone is above 0"),
    ("fleet {table} --weight pixel*=1 {model}", "no device of the cost table is called"),
    # ---- estimates and cost tables
    ("estimate --phone pixel4 --threads 4 {model}", "pixel4 was measured with 1 CPU thread"),
    ("estimate --phone pixel4 --burst {model}", "not measured with --burst"),
    ("calibrate --costs {costs} --device nobody", "no device of the cost table is called 'nobody'"),
    ("costs frobnicate", "no such command 'frobnicate'"),
    ("costs show --costs {costs} --kind block", "invalid value for '--kind'"),
    ("costs show --costs {costs} --input 1x3", "--input is of a --model, and none was given"),
    ("costs show --costs {costs} --model absent.pt", "absent.pt does not exist"),
    ("costs show --costs {costs} -o rows.csv", "--output is for --format csv or parquet"),
    ("costs show --costs {costs} --format csv --limit 3", "leave --limit and --json out"),
    ("costs show --costs {costs} --format xlsx", "'xlsx' is not one of"),
    ("costs merge --costs {costs}", "missing argument 'TABLE...'"),
    ("costs prune --costs {costs} --yes", "nothing says what to delete: "),
    # ---- conversions
    ("convert --level 26 a.pt", "26 is not one of 27, 28, 29, 30, 31, 1000006, 1000007, 1000008"),
    ("convert --level 6 a.pt", "6 is not one of 27, 28, 29, 30, 31, 1000006, 1000007, 1000008"),
    ("convert --level 1000005 a.pt", "1000005 is not one of 27, 28, 29, 30, 31, 1000006"),
    ("convert --level thirty a.pt", "thirty is not one of 27, 28, 29, 30, 31, 1000006"),
    ("convert --input 1x3 {bundle}", "--input is for models: a bundle has its own"),
    ("convert --min-region 2 {bundle}", "--min-region is for models: a bundle has its own"),
    ("convert --whole {bundle}", "--whole is for models: a bundle has its own"),
    ("convert --preference fast {bundle}", "--preference is for models: a bundle has its own"),
    ("convert --costs {costs} {model}", "--costs is for bundles and stock PyTorch"),
    ("convert --costs {costs} --to runtime {bundle}", "--costs is for bundles and stock PyTorch"),
    # ---- reports and comparisons
    ("report --costs {costs} {bundle} {bundle}", "`nnapi-prof compare BASE NEW`"),
    ("report --costs {costs} --run npu --run gpu {bundle}", "`nnapi-prof compare BASE NEW`"),
    ("report --costs {costs} --at 2026-01-31 --at 2026-02-28 {bundle}",
     "`nnapi-prof compare BASE NEW`"),
    ("report --costs {costs} --run npu --at 2026-01-31 {bundle}", "exclude each other"),
    ("report --costs {costs} --run npu {bundle}", "never run: `nnapi-prof run` does it"),
    ("compare --fail-if-slower much {bundle} {bundle}", "is not a share: write 5% or 0.05"),
    ("compare --fail-if-slower 5 {bundle} {bundle}", "'5' is not a share: write 5% or 0.05"),
    ("compare {costs}#Pixel {costs}", "no device of the cost table is called"),
    ("compare {tmp} {tmp}", "is not a bundle: `nnapi-prof partition` makes one"),
    # ---- agents
    ("agent clean --device sim:npu-phone --all --older-than 3", "choose one"),
    ("agent clean --older-than -1", "see `nnapi-prof agent clean --help`"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "words"), MISUSED)
def test_it_is_refused(cli, profiled, line, words):
    folder = profiled.costs.parent
    before = sorted(folder.rglob("*"))
    line = line.replace("{named}", NAMED).replace("{table}", TABLE)
    places = {"costs": profiled.costs, "bundle": profiled.bundle, "model": profiled.model}
    places |= {"out": folder / "out.nnprof", "tmp": folder}
    result = cli(*(word.format(**places) for word in line.split()))
    assert result.code == 2 and result.out == ""
    assert words in result.error and "Usage:" not in result.err
    assert sorted(folder.rglob("*")) == before
