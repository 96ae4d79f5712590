"""Whether this CPU's fast uint8 x int8 products are exact: without VNNI, ONNX Runtime adds pairs in saturating 16 bits.

Where they are not, the session must ask for exact ones (``session.x64quantprecision``), which are slower; where they
are, asking would only cost speed (it gives up the AMX and VNNI kernels). So the product is tried, once a process.
"""

import base64
import functools

import numpy as np
import onnxruntime as ort

EXACT_PRODUCTS = "session.x64quantprecision"
# y = MatMulInteger(a: uint8 [m, k], b: int8 [k, n]) as an ONNX model; tests/builder/quantize rebuilds it.
PRODUCT_MODEL = base64.b64decode(
    "CAUSADpiChgKAWEKAWISAXkiDU1hdE11bEludGVnZXISAWdaFQoBYRIQCg4IAhIKCgMSAW0KAxIBa1oVCgFiEhAKDggDEgoKAxIBawoDEgFu"
    "YhUKAXkSEAoOCAYSCgoDEgFtCgMSAW5CBAoAEAo="
)


@functools.cache
def are_products_exact() -> bool:
    """True where the largest products of a default session equal integer arithmetic."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(PRODUCT_MODEL, options, providers=["CPUExecutionProvider"])
    depth = 64
    largest = {"a": np.full((2, depth), 255, np.uint8), "b": np.full((depth, 16), 127, np.int8)}
    found = session.run(None, largest)[0]
    return bool(np.all(found == 255 * 127 * depth))


def ask_for_exact_products(options: ort.SessionOptions) -> None:
    """Add what this CPU needs so that integer products are exact."""
    if not are_products_exact():
        options.add_session_config_entry(EXACT_PRODUCTS, "1")
