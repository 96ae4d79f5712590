"""A draftsmith model for Triton's Python backend: hands over to ``draftsmith.model_repo.runtime`` and nothing else.

Written by draftsmith into the model's version folder, beside engine.json.
"""

import json
import os
import sys
from pathlib import Path

import triton_python_backend_utils as pb_utils
from draftsmith.model_repo.runtime.loading import load_engine
from draftsmith.model_repo.runtime.numpy_layout import adapt_stub
from draftsmith.model_repo.runtime.triton_requests import TritonRequests

SWITCH_INTERVAL_S = 0.0005
"""The decode loop waits this long at most, not Python's 5 ms, for the thread that sends responses to yield to it."""


class TritonPythonModel:
    """The class that Triton looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the engine of this version folder and start its loop; raising keeps the model from being ready."""
        if os.environ.get("DRAFTSMITH_NUMPY1_STUB"):  # set by build-engine serve for the server of nvidia-pytriton
            adapt_stub(pb_utils)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._name = args["model_name"]
        parameters = json.loads(args["model_config"]).get("parameters", {})
        engine = load_engine(
            Path(args["model_repository"]) / args["model_version"],
            num_threads=_number(parameters, "num_threads"),
            num_slots=_number(parameters, "num_slots"),
        )
        engine.start()
        self._engine = engine
        self._requests = TritonRequests(engine, pb_utils, on_dead=self._leave)

    def execute(self, requests: list[object]) -> None:
        """Queue the requests; their answers come later through their response senders."""
        for request in requests:
            self._requests.accept(request)

    def is_ready(self) -> bool:
        """Asked by Triton 26.02 and later; False once the decode loop is dead."""
        return bool(self._engine.is_ready)

    def finalize(self) -> None:
        """End what still runs and free the engine."""
        self._requests.close()

    def _leave(self) -> None:
        """The loop is dead: unload, so that readiness says so (possible in Triton's explicit mode alone)."""
        try:
            pb_utils.unload_model(self._name)
        except Exception as error:
            pb_utils.Logger.log_error(f"{self._name}: its decode loop is dead, and it cannot unload itself: {error}")


def _number(parameters: dict[str, dict[str, str]], name: str) -> int | None:
    """A parameter of config.pbtxt, which the environment (DRAFTSMITH_NUM_THREADS, ...) overrides; None if unset."""
    text = os.environ.get(f"DRAFTSMITH_{name.upper()}") or parameters.get(name, {}).get("string_value")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{name}: expected a positive integer, found {text!r} (config.pbtxt or the environment).")
    return int(text)
