"""Look-ups, TOPK_V2, LSH_PROJECTION and RANDOM_MULTINOMIAL against their definitions."""

from dataclasses import replace

import numpy as np
import pytest

from tests.emulator.kernels.movement import (
    EMBEDDING_LOOKUP,
    F16,
    F32,
    HASHTABLE_LOOKUP,
    I32,
    LSH_PROJECTION,
    Q8,
    RANDOM_MULTINOMIAL,
    SEEDS,
    TOPK_V2,
    WITH_INT32,
    Data,
    Empty,
    Listed,
    Runner,
    check,
    fails,
    random_shape,
    run_both,
)


@WITH_INT32
@SEEDS
def test_topk(nn, kind, seed):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng, high=3)
    x = kind.random(rng, *shape, int(rng.integers(1, 40)))
    few = rng.integers(0, 5, x.shape).astype(kind.dtype)  # with many ties
    for values in (x, few):
        k = int(rng.integers(1, values.shape[-1], endpoint=True))
        places = np.arange(values.shape[-1])  # of equal values the later one comes first
        keys = (np.broadcast_to(places, values.shape), values)
        order = np.lexsort(keys, axis=-1)[..., ::-1][..., :k].astype(np.int32)
        expected = [np.take_along_axis(values, order, -1), np.ascontiguousarray(order)]
        for actual in run_both(nn, TOPK_V2, [Data(values, kind), k], expected, [kind, I32]):
            np.testing.assert_array_equal(actual[0], expected[0])
            np.testing.assert_array_equal(actual[1], expected[1])


@WITH_INT32
def test_embedding_lookup(nn, kind):
    values = kind.random(np.random.default_rng(2), 5, 3, 2)
    rows = [4, 0, 0, 2]
    check(nn, EMBEDDING_LOOKUP, [Listed(rows), Data(values, kind)], values[rows], kind)
    for bad in (-1, 5, 2**31 - 1):
        fails(nn, EMBEDDING_LOOKUP, [Listed([0, bad]), Data(values, kind)], (2, 3, 2), kind)


@pytest.mark.parametrize("kind", [F32, Q8, I32], ids=["f32", "q8", "i32"])
def test_hashtable_lookup(nn, kind):
    keys, rows = [-(2**31), -5, 0, 7, 2**31 - 1], [7, 6, -(2**31), 2**31 - 1, -5, 8]
    values = kind.random(np.random.default_rng(3), 5, 2, 3)
    expected = np.stack([values[keys.index(r)] if r in keys else 0 * values[0] for r in rows])
    hits = np.array([r in keys for r in rows], np.uint8)
    inputs = [Listed(rows), Listed(keys), Data(values, kind)]
    kinds = [kind, replace(Q8, scale=1.0, zero_point=0)]
    for actual in run_both(nn, HASHTABLE_LOOKUP, inputs, [expected, hits], kinds):
        np.testing.assert_array_equal(actual[0], expected)
        np.testing.assert_array_equal(actual[1], hits)


@WITH_INT32
def test_topk_of_nothing(nn, kind):
    expected = [np.zeros((0, 2), kind.dtype), np.zeros((0, 2), np.int32)]
    for actual in run_both(nn, TOPK_V2, [Empty((0, 5), kind), 2], expected, [kind, I32]):
        assert [f.shape for f in actual] == [(0, 2)] * 2


M64 = 2**64 - 1
K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def rotate(value, right):
    return (value >> right | value << (64 - right)) & M64


def fingerprint(key):
    """FarmHash's Fingerprint64 of 8 to 16 bytes."""
    mul = K2 + 2 * len(key)
    a = (int.from_bytes(key[:8], "little") + K2) & M64
    b = int.from_bytes(key[-8:], "little")
    c, d = (rotate(b, 37) * mul + a) & M64, (rotate(a, 25) + b) * mul & M64
    a = (c ^ d) * mul & M64
    a ^= a >> 47
    b = (d ^ a) * mul & M64
    return (b ^ b >> 47) * mul & M64


def projection_bits(seeds, rows, weights):
    bits = []
    for seed in seeds.astype(np.float32).flat:
        total = 0.0
        for row, weight in zip(rows, weights, strict=True):
            number = fingerprint(seed.tobytes() + row.tobytes())
            total += float(weight) * float(number - 2**64 if number >> 63 else number)
        bits.append(int(total > 0))
    return np.array(bits).reshape(seeds.shape)


@pytest.mark.parametrize("kind", [F32, F16], ids=["f32", "f16"])
@pytest.mark.parametrize("hashed", [F32, I32, Q8, F16], ids=["of_f32", "of_i32", "of_q8", "of_f16"])
def test_lsh_projection(nn, kind, hashed):
    rng = np.random.default_rng(6)
    seeds, weights = kind.random(rng, 3, 5), kind.random(rng, 7)
    data = hashed.random(rng, 7, 8 // np.dtype(hashed.dtype).itemsize)
    bits = projection_bits(seeds, data, weights)
    powers = 2 ** np.arange(5)[::-1]
    plain = (bits * powers).sum(1)
    inputs = [Data(seeds, kind), Data(data, hashed), Data(weights, kind)]
    for code, expected in ((1, plain), (2, bits.ravel()), (3, plain + 32 * np.arange(3))):
        check(nn, LSH_PROJECTION, [*inputs, code], expected.astype(np.int32), I32)
    assert 0 < bits.sum() < bits.size


def philox_block(counter, key):
    """Philox4x32-10, as its paper defines it."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_philox_of_the_paper():
    """The reference above gives the published answer, so that it can judge the kernel."""
    assert philox_block([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def drawn(logits, samples, seeds):
    words, block = [], 0
    low, high = (s & M64 for s in seeds)
    while len(words) < 2 * samples * len(logits):
        counter = [block, 0, high & 0xFFFFFFFF, high >> 32]
        words += philox_block(counter, [low & 0xFFFFFFFF, low >> 32])
        block += 1
    uniform = [((a & 0xFFFFF) << 32 | b) / 2**52 for a, b in zip(*[iter(words)] * 2, strict=False)]
    sums = np.exp(logits - logits.max(1, keepdims=True)).cumsum(1)
    rows = np.reshape(uniform[: samples * len(logits)], (len(logits), samples))
    return np.stack(
        [np.searchsorted(s, r * s[-1], "right") for s, r in zip(sums, rows, strict=True)]
    )


@pytest.mark.parametrize("kind", [F32, F16], ids=["f32", "f16"])
@pytest.mark.parametrize("seeds", [(37, 42), (-3, 7), (0, 1)])
def test_random_multinomial(nn, kind, seeds):
    logits = kind.random(np.random.default_rng(8), 3, 6)
    expected = drawn(logits.astype(np.float64), 1000, seeds).astype(np.int32)
    inputs = [Data(logits, kind), 1000, Listed(seeds)]
    check(nn, RANDOM_MULTINOMIAL, inputs, expected, I32)


def test_random_multinomial_frequencies(nn):
    logits = np.array([np.log([1, 2, 3, 4]), [-np.inf, 0, -np.inf, 0]], np.float32)
    shape = np.zeros((2, 20000), np.int32)
    for seeds in ((1, 2), (0, 0)):
        (result,) = Runner(nn, False).run(
            RANDOM_MULTINOMIAL, [Data(logits, F32), 20000, Listed(seeds)], [shape], [I32]
        )
        for row, shares in zip(result, ([0.1, 0.2, 0.3, 0.4], [0, 0.5, 0, 0.5]), strict=True):
            counts = np.bincount(row, minlength=4) / row.size
            np.testing.assert_allclose(counts, shares, atol=0.02)
            assert counts[np.array(shares) == 0].sum() == 0
