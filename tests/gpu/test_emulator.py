"""The emulator finds what it is there for; what it runs does not depend on the threads' order and has no races."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.accept_device import DeviceAccept, bits
from tests.gpu.emulated_cases import EMULATED_VARIABLE, small_cases
from tests.gpu.kernel_build import TSAN, build_emulated, build_emulated_program
from tests.gpu.machines import Emulated

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "tests" / "gpu" / "drivers" / "emulator_faults.cu"
ORDER_VARIABLE = "DRAFTSMITH_EMULATOR_ORDER"
SUM = sum(range(64))


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("g++")
    if found is None:
        pytest.skip("needs g++")
    return found


@pytest.fixture(scope="module")
def sanitizer(compiler: str) -> str:
    path = subprocess.check_output([compiler, "-print-file-name=libtsan.so"], text=True).strip()
    if not Path(path).is_absolute():
        pytest.skip("needs g++ with libtsan")
    return path


@pytest.fixture(scope="module")
def faults(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_emulated_program(tmp_path_factory.mktemp("faults"), compiler, FAULTS)


def run(program: Path, fault: str, order: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {ORDER_VARIABLE: order}
    return subprocess.run([program, fault], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("order", ["", "backward"])
def test_a_sound_kernel_gives_its_result_in_any_order(faults: Path, order: str) -> None:
    assert run(faults, "none", order).stdout == f"{SUM} {SUM}\n"


def test_a_missing_barrier_shows_in_one_of_the_orders(faults: Path) -> None:
    assert run(faults, "no_barrier").stdout != run(faults, "no_barrier", "backward").stdout


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("barrier_of_few", "waits for threads that never come"),
        ("exchange_of_few", "waits for threads that never come"),
        ("two_exchanges", "exchanges otherwise than its warp's other lanes"),
    ],
)
def test_threads_that_do_not_meet_are_told(faults: Path, fault: str, message: str) -> None:
    done = run(faults, fault)

    assert done.returncode != 0
    assert message in done.stderr


def test_shared_memory_begins_with_no_useful_value(faults: Path) -> None:
    done = run(faults, "unwritten")

    assert done.returncode == 0
    assert done.stdout != f"{SUM} {SUM}\n"


def test_the_sanitizer_names_a_missing_barriers_line(compiler: str, sanitizer: str, tmp_path: Path) -> None:
    program = build_emulated_program(tmp_path, compiler, FAULTS, TSAN)

    assert run(program, "none").returncode == 0
    found = run(program, "no_barrier")

    assert "data race" in found.stderr
    assert FAULTS.name in found.stderr


def test_lossy_accept_is_the_same_bits_in_any_order(emulated, monkeypatch) -> None:
    for name, case in small_cases().items():
        found = []
        for order in ("", "backward"):
            monkeypatch.setenv(ORDER_VARIABLE, order)
            device = DeviceAccept(Emulated(emulated), case)
            device.launch()
            found.append(bits(device.read()))
        assert found[0] == found[1], name


@pytest.mark.slow
def test_lossy_accept_has_no_races(compiler: str, sanitizer: str, tmp_path: Path) -> None:
    library = build_emulated(tmp_path, compiler, TSAN)
    environment = os.environ | {
        EMULATED_VARIABLE: str(library),
        "LD_PRELOAD": sanitizer,
        "TSAN_OPTIONS": "exitcode=66 history_size=7",
        "OPENBLAS_NUM_THREADS": "1",  # its own threads' meetings are not known to the sanitizer
    }
    command = [sys.executable, "-m", "tests.gpu.emulated_cases"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
