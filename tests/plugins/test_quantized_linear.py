"""QuantizedLinear, VocabularyLinear, PackedRows: exactly the reference, in every instruction set, in any batch."""

import numpy as np
import numpy.typing as npt
import pytest
from draftsmith.plugins.cpu_reference import packed_rows, quantized_linear, vocabulary_linear
from draftsmith.plugins.packing import PackedLinear, pack_linear, pack_panels, pack_vocabulary, unpack_panels

from tests.plugins.conftest import KERNELS, Run, random_floats

SIZES = [(1, 64, 16), (2, 100, 33), (3, 576, 48), (4, 1, 1), (5, 1090, 20), (6, 2112, 35), (8, 1536, 17)]
SIZES += [(9, 130, 50), (17, 200, 70), (40, 70, 31)]


def multiply(
    run: Run, kernels: str, x: npt.NDArray[np.float32], packed: PackedLinear, bias: npt.NDArray[np.float32] | None
) -> npt.NDArray[np.float32]:
    inputs = [x, packed.weights, packed.scales, packed.sums, bias]
    y: npt.NDArray[np.float32] = run(kernels, "QuantizedLinear", inputs, num_outputs=packed.num_outputs)[0]
    return y


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize(("rows", "depth", "outputs"), SIZES)
def test_every_instruction_set_gives_the_reference_bits(
    kernels: str, rows: int, depth: int, outputs: int, run_operator: Run
) -> None:
    x, packed = random_floats(1, rows, depth), pack_linear(random_floats(2, outputs, depth))
    bias = random_floats(3, outputs) if rows % 2 else None

    y = multiply(run_operator, kernels, x, packed, bias)

    np.testing.assert_array_equal(y, quantized_linear(x, packed, bias))


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize(("rows", "depth", "outputs"), SIZES)
def test_row_major_weights_give_the_bits_of_panels(
    kernels: str, rows: int, depth: int, outputs: int, run_operator: Run
) -> None:
    x, weight = random_floats(1, rows, depth), random_floats(2, outputs, depth)
    bias = random_floats(3, outputs) if rows % 2 else None
    packed = pack_vocabulary(weight)

    inputs = [x, packed.weights, packed.scales, bias]
    y = run_operator(kernels, "VocabularyLinear", inputs, num_outputs=outputs)[0]

    np.testing.assert_array_equal(y, vocabulary_linear(x, packed, bias))
    np.testing.assert_array_equal(y, multiply(run_operator, kernels, x, pack_linear(weight), bias))


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_broken_row_of_x_breaks_no_other_with_row_major_weights(kernels: str, run_operator: Run) -> None:
    x, packed = random_floats(4, 19, 70), pack_vocabulary(random_floats(5, 40, 70))
    x[1, 3], x[17, 69] = np.nan, np.inf
    others = [i for i in range(19) if i not in (1, 17)]

    y = run_operator(kernels, "VocabularyLinear", [x, packed.weights, packed.scales], num_outputs=40)[0]

    assert np.isnan(y[[1, 17]]).all()
    np.testing.assert_array_equal(y[others], vocabulary_linear(x[others], packed))


@pytest.mark.parametrize("kernels", KERNELS)
def test_the_largest_sums_do_not_overflow(kernels: str, run_operator: Run) -> None:
    x = np.ones((2, 8192), np.float32)
    x[1, ::2] = -1
    packed = pack_linear(np.ones((20, 8192), np.float32))

    y = multiply(run_operator, kernels, x, packed, None)

    np.testing.assert_allclose(y[0], 8192, rtol=1e-6)
    np.testing.assert_array_equal(y[1], 0)


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_broken_row_breaks_no_other(kernels: str, run_operator: Run) -> None:
    x, packed = random_floats(4, 8, 70), pack_linear(random_floats(5, 40, 70))
    x[1, 3], x[2, 69], x[4], x[5], x[6, 0] = np.nan, -np.inf, 0, 1e-38, 3e38
    inverse = [0, 3, 4, 5, 7]

    y = multiply(run_operator, kernels, x, packed, None)

    assert np.isnan(y[[1, 2]]).all()
    np.testing.assert_array_equal(y[inverse], quantized_linear(x[inverse], packed))
    np.testing.assert_array_equal(y[[4, 5]], 0)


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_row_alone_has_the_bits_of_a_row_among_others(kernels: str, run_operator: Run) -> None:
    x, packed = random_floats(6, 33, 96), pack_linear(random_floats(7, 300, 96))
    together = multiply(run_operator, kernels, x, packed, None)

    for first, last in [(0, 1), (5, 7), (8, 12), (16, 24), (10, 27)]:
        alone = multiply(run_operator, kernels, x[first:last], packed, None)
        np.testing.assert_array_equal(alone, together[first:last])


def test_leading_dimensions_are_rows(run_operator: Run) -> None:
    x, packed = random_floats(8, 6, 64), pack_linear(random_floats(9, 16, 64))

    y = multiply(run_operator, "generic", x.reshape(2, 3, 64), packed, None)

    np.testing.assert_array_equal(y.reshape(6, 16), quantized_linear(x, packed))


def test_eight_bits_a_weight_and_sixteen_an_input_are_close_to_floats() -> None:
    x, weight = random_floats(10, 4, 576), random_floats(11, 64, 576)

    error = quantized_linear(x, pack_linear(weight)) - x @ weight.T

    assert np.abs(error).max() < 0.02 * np.abs(x @ weight.T).max()


def test_rows_are_looked_up_in_the_weights_of_a_vocabulary(run_operator: Run) -> None:
    packed = pack_vocabulary(random_floats(12, 50, 70))
    ids = np.array([[0, 49, 17], [16, 15, 0]], np.int32)

    y = run_operator("generic", "PackedRows", [ids, packed.weights, packed.scales], num_outputs=50, depth=70)[0]

    np.testing.assert_array_equal(y, packed_rows(ids, packed, 70))


def test_an_id_without_a_row_is_refused(run_operator: Run) -> None:
    packed = pack_vocabulary(random_floats(13, 16, 64))

    with pytest.raises(Exception, match="expected ids of rows that exist"):
        run_operator(
            "generic", "PackedRows", [np.array([16], np.int32), packed.weights, packed.scales], num_outputs=16, depth=64
        )


def test_panels_hold_four_inputs_of_sixteen_outputs() -> None:
    integers = np.arange(32 * 64, dtype=np.int64).astype(np.int8).reshape(32, 64)

    panels = pack_panels(integers)

    assert panels.shape == (2, 16, 16, 4)
    np.testing.assert_array_equal(panels[1, 2, 3], integers[19, 8:12])
    np.testing.assert_array_equal(unpack_panels(panels), integers)


def test_rows_of_zeros_pack_to_zeros() -> None:
    packed = pack_linear(np.zeros((3, 5), np.float32))

    assert not packed.weights.any()
    assert not packed.scales.any()
