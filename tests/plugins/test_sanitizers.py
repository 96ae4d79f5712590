"""All kernels under AddressSanitizer and UBSan, and a thread that outlives the last session.

Sanitizers see what this processor runs alone. They once reported a crash at the end of a clean run: that library had
been linked by hand, without ``-z nodelete``, and was unmapped when its last session closed; the ends of threads then
called its code, which frees their scratch memory. ``cpu_library`` links with it, and the last test holds it to that.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from draftsmith.plugins.cpu_library import MACHINE, Compiler, build_library, find_compiler
from draftsmith.plugins.packing import pack_linear

from tests.plugins.conftest import LIBRARY_VARIABLE, one_node_model, random_floats

ROOT = Path(__file__).parents[2]
# Unoptimised with gcc: UBSan's checks in unrolled kernels take it minutes otherwise.
FLAGS = ("-Og", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
RUNTIMES = ("libasan.so", "libubsan.so")
THREAD_THAT_OUTLIVES_SESSIONS = """
import gc, sys, threading
import numpy, onnxruntime
closed, ended = threading.Event(), threading.Event()
def work():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(sys.argv[1])
    session = onnxruntime.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
    session.run(None, dict(numpy.load(sys.argv[3])))
    del session, options
    gc.collect()
    closed.set()
    ended.wait()
thread = threading.Thread(target=work)
thread.start()
assert closed.wait(60)
ended.set()
thread.join()
"""


def find_runtimes() -> list[str]:
    """gcc's sanitizer libraries; skips where there are none."""
    gcc = shutil.which("gcc")
    if gcc is None or find_compiler() is None:
        pytest.skip(f"needs gcc on {MACHINE} Linux")
    asked = [subprocess.check_output([gcc, f"-print-file-name={name}"], text=True).strip() for name in RUNTIMES]
    if not all(Path(path).is_absolute() for path in asked):
        pytest.skip("needs gcc with libasan and libubsan")
    return asked


@pytest.mark.slow
def test_kernels_run_clean_under_sanitizers(tmp_path: Path) -> None:
    runtimes = find_runtimes()
    library = build_library(tmp_path, Compiler(("gcc",), "gcc", FLAGS))
    environment = os.environ | {
        LIBRARY_VARIABLE: str(library),
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/plugins", "--deselect"]
    command.append("tests/plugins/test_sanitizers.py::test_kernels_run_clean_under_sanitizers")
    command += ["--ignore", "tests/plugins/test_plugin_build.py"]  # it runs nvcc, which is not ours to check

    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    said = done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0, said
    assert " passed" in done.stdout, said


def test_a_thread_may_end_after_the_last_session(library: Path, tmp_path: Path) -> None:
    packed = pack_linear(random_floats(0, 64, 64))
    feeds: dict[str, npt.NDArray[Any]] = {"x0": random_floats(1, 3, 64), "x1": packed.weights}
    feeds |= {"x2": packed.scales, "x3": packed.sums}
    model = one_node_model("QuantizedLinear", [*feeds.values()], feeds, (1,), {"num_outputs": 64})
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    np.savez(tmp_path / "feeds.npz", **feeds)
    paths = [str(library), str(tmp_path / "model.onnx"), str(tmp_path / "feeds.npz")]

    done = subprocess.run(
        [sys.executable, "-c", THREAD_THAT_OUTLIVES_SESSIONS, *paths], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-3000:]
