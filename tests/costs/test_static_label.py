from __future__ import annotations

import pytest

from nnapi_prof.costs.store.migrate import unit_work


def test_a_convolution() -> None:
    work = unit_work("conv2d+relu6 3x3/2 3->32 112x112", 602112, 1605632)
    assert (work.kind, work.macs) == ("CONV_2D", 112 * 112 * 32 * 3 * 9)
    assert (work.kernel, work.stride, work.width) == (9, 2, 112)
    assert work.weight_bytes == 32 * 27 * 4
    assert (work.in_bytes, work.out_bytes) == (602112, 1605632)


def test_a_depthwise_one() -> None:
    work = unit_work("depthwise_conv2d+relu6 3x3 960->960 7x7", 1, 1)
    assert (work.kind, work.macs, work.in_channels) == ("DEPTHWISE_CONV_2D", 49 * 960 * 9, 1)


def test_a_transposed_one_reads_each_input_once() -> None:
    work = unit_work("conv_transpose2d 2x2/2 32->16 64x64", 1, 1)
    assert (work.kind, work.macs) == ("TRANSPOSE_CONV_2D", 32 * 32 * 32 * 16 * 4)


@pytest.mark.parametrize(
    "label, kind, macs",
    [
        ("linear 1280->1000", "FULLY_CONNECTED", 1280 * 1000),
        ("linear 64->8 10x4", "FULLY_CONNECTED", 64 * 8 * 40),
        ("add 1x24x56x56", "ADD", 24 * 56 * 56),
        ("max_pool2d 3x3/2 1x64x56x56", "MAX_POOL_2D", 64 * 56 * 56),
        ("sigmoid 5", "LOGISTIC", 5),
        ("something_new 2x3", "SOMETHING_NEW", 6),
        ("lstm", "LSTM", 1),
        ("", "UNKNOWN", 1),
        ("mean scalar", "MEAN", 1),
        ("conv2d 3x3 garbled", "CONV2D", 9),
    ],
)
def test_other_units(label: str, kind: str, macs: float) -> None:
    work = unit_work(label, 8, 8)
    assert (work.kind, work.macs) == (kind, macs)


def test_a_quantised_unit_is_of_bytes() -> None:
    work = unit_work("quantised linear 10->3", 10, 3)
    assert (work.rate, work.weight_bytes) == ("FULLY_CONNECTED/quant8", 30)


@pytest.mark.parametrize("inner", [16, 256, 4096])
def test_a_matrix_product_multiplies_along_what_its_label_leaves_out(inner: int) -> None:
    work = unit_work("matmul 2x256x256", 2 * 2 * 256 * inner * 4, 2 * 256 * 256 * 4)
    assert (work.macs, work.in_channels) == (2 * 256 * 256 * inner, inner)
