"""The words of a report, explained: what each means here, in a sentence or two."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    key: str
    word: str
    meaning: str


GLOSSARY = tuple(
    Entry(*row)
    for row in sorted((
        ("accelerator", "accelerator",
         "A device that NNAPI offers under a name of its own: an NPU, DSP or GPU with the vendor's "
         "driver, or Android's reference CPU implementation (nnapi-reference)."),
        ("alone", "alone",
         "A unit run by itself: its time includes one invocation and moving its inputs and "
         "outputs."),
        ("chain", "chain", "Neighbouring units, one reading from the other, measured as one."),
        ("choice", "NNAPI's choice (auto)",
         "No accelerator is named: NNAPI itself gives each operation to a driver. Stock PyTorch "
         "always runs so."),
        ("baseline", "baseline",
         "A plan that one would make without searching: everything on the CPU, everything on one "
         "accelerator, and so on. It is predicted and run like the plan itself."),
        ("cold", "first run, cold and warm",
         "The first run after compilation is cold: caches are empty and drivers finish preparing. "
         "All other figures are of warm runs, after warming up."),
        ("compile", "compile",
         "What a driver does once to make a model ready for its accelerator; not part of latency."),
        ("cpu-engine", "CPU, CPU engine",
         "The device's processor, computing with XNNPACK's kernels, or our own where XNNPACK has "
         "none; not NNAPI."),
        ("closed-set", "downward-closed set",
         "A set of units together with all that they need: a point at which a plan can end one "
         "segment and begin the next. The search goes through all of them."),
        ("clock", "clock: monotonic, simulated",
         "What times were read from: the device's own clock, which never runs backwards, or a "
         "simulated phone's description."),
        ("cores", "cores: big, all, or a mask",
         "Which CPU cores were used: those of the highest clock rate, all of them, or those whose "
         "bits are set in a hexadecimal number."),
        ("driver", "driver",
         "The vendor's program behind an accelerator; it decides which operations it takes."),
        ("eager", "eager PyTorch",
         "The original model run by PyTorch on the host, operator by operator, in float32 unless "
         "the model is quantised: the truth that outputs are compared with."),
        ("estimated", "estimated",
         "Computed by a static model of the hardware from operation counts and bytes; nothing was "
         "run for it."),
        ("feature-level", "feature level",
         "The version of NNAPI that a driver implements: 27 is Android 8.1, 28 is 9, 29 is 10, 30 "
         "is 11. It bounds which operations exist."),
        ("fitted", "fitted",
         "Computed from measurements of units and of chains of units by a regression that "
         "separates invocation, transfer and marginal cost."),
        ("host", "host",
         "The computer that this report was made on. What no engine on the device can run is run "
         "there, in eager PyTorch."),
        ("invocation", "invocation",
         "What one call into an accelerator costs, whatever it computes: the way to the driver and "
         "back."),
        ("latency", "latency",
         "Time from the start of the first segment to the end of the last one, for one inference."),
        ("mac", "MAC", "One multiplication with one addition; k, M and G are thousands, millions "
         "and billions."),
        ("marginal", "marginal cost",
         "What a unit adds to a segment that it is part of; without invocation and transfer, which "
         "the segment pays once."),
        ("measured", "measured", "Timed on the device. A figure without a label is measured."),
        ("median", "median, 10th and 90th percentile",
         "Half of the runs were faster than the median; a tenth was faster than the 10th "
         "percentile, nine tenths were faster than the 90th."),
        ("permute", "permute",
         "A transposition between PyTorch's order of an image's dimensions (channels first) and "
         "NNAPI's (channels last)."),
        ("plan", "plan", "Which units run where, in which segments. \"This plan\" is the one that "
         "the partitioner chose; files and notes call it dp."),
        ("precision", "precision: float32, relaxed, float16",
         "Whether NNAPI computes 32-bit floats as such, may compute them as 16-bit ones, or gets a "
         "model in 16-bit floats."),
        ("predicted", "predicted",
         "Computed before the plan ran, from what its segments, or their parts, took when they "
         "were measured."),
        ("preference", "preference: low_power, fast, sustained",
         "A wish that NNAPI passes to the driver: little energy, the fastest single answer, or a "
         "speed that can be kept up. Drivers may choose another clock for each, or nothing."),
        ("refused", "refused",
         "The driver, or the conversion to NNAPI, does not support it; the reason says which and "
         "why. A crash or a timeout counts as refused, too, and is named."),
        ("rests-on", "rests on: measured, sum, estimated",
         "A segment's prediction is the measured latency of this very segment, the sum of fitted "
         "parts, or an estimate."),
        ("round", "round",
         "Measurements of alternatives take turns; one turn, several runs long, is a round."),
        ("segment", "segment, region",
         "Units that run as one on one target. A region is any such set of units; a segment is one "
         "that a plan uses."),
        ("simulated", "simulated",
         "The device is a description of a phone: outputs are computed for real, latencies by the "
         "description's rules."),
        ("spread", "spread",
         "1.4826 × the median distance from the median: the standard deviation, were the times "
         "normally distributed. Relative spread is a share of the median."),
        ("execution", "NNAPI execution: sync, burst, async",
         "How NNAPI is asked to compute: one call that waits, a series of calls that keeps buffers "
         "ready, or a call that reports back when it is done."),
        ("target", "target",
         "Where a segment can run: the CPU, an accelerator under one preference, NNAPI's choice, "
         "or the host. Causes and notes write cpu, nnapi:NAME/PREFERENCE, nnapi:auto/PREFERENCE "
         "and host."),
        ("throttled", "throttled",
         "Slowed down by the device because it was hot. Throttled rounds are measured again after "
         "a pause, and left out where there are others."),
        ("transfer", "transfer",
         "Moving a segment's inputs to the accelerator and its outputs back, by the byte."),
        ("unit", "unit",
         "The smallest group of operations that is converted, measured and placed as one: a "
         "convolution with its bias and activation."),
    ), key=lambda row: row[1].lower())
)  # fmt: skip
