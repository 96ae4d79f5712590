"""The reason in a Triton log. The texts are from Triton 2.51 (release 24.10)."""

import pytest
from draftsmith.builder.serve.failure import failure_reason

NO_GPU = 'E1130 20:51:11.784404 10429 server.cc:241] "CudaDriverHelper has not been initialized."\n'
LOADED = NO_GPU + "I1130 20:51:13.479086 10429 model_lifecycle.cc:839] \"successfully loaded 'dummy'\"\n"
FAILED_MODEL = (
    "E1130 20:51:21.186994 10559 model_lifecycle.cc:642] \"failed to load 'bad' version 1: Internal: ManifestError: "
    'target.onnx: expected a, found b. Do c.\\n\\nAt:\\n  /repo/bad/1/model.py(6): initialize\\n"\n'
)
FAILED_SERVER = (
    "error: creating server: Invalid argument - load failed for model 'bad': version 1 is at UNAVAILABLE state: "
    "Internal: ValueError: engine.json: expected a, found b. Do c\n\nAt:\n  /repo/bad/1/model.py(6): initialize\n;\n"
)
PORT = 'E1130 20:51:21.1 1 main.cc:295] "failed to start GRPC service: Unavailable - Socket in use"\n'


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (LOADED + FAILED_MODEL, "bad: target.onnx: expected a, found b. Do c"),
        (LOADED + FAILED_SERVER, "bad: engine.json: expected a, found b. Do c"),
        (LOADED + PORT, "failed to start GRPC service: Unavailable - Socket in use"),
        (LOADED, ""),
        ("", ""),
    ],
)
def test_the_models_own_words_come_first(log: str, reason: str) -> None:
    assert failure_reason(log) == reason


def test_a_long_reason_is_cut_to_one_line() -> None:
    log = FAILED_SERVER.replace("Do c", "x\n" * 2000)
    assert len(failure_reason(log)) == 600
    assert "\n" not in failure_reason(log)
