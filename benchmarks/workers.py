"""Talks to ``worker.py``: a model in a process of its own, so that nothing but the one measured computes."""

import json
import subprocess
from pathlib import Path
from typing import Any


class Worker:
    """A running ``worker.py``."""

    def __init__(self, python: Path, kind: str, model: Path, threads: int) -> None:
        script = Path(__file__).with_name("worker.py")
        command = [str(python), str(script), kind, str(model), str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version: str = self._read()["version"]

    def decode(self, prompt: list[int], num_tokens: int) -> tuple[float, list[int]]:
        """Seconds from the first new token to the last, and the tokens."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompt": prompt, "num_tokens": num_tokens}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        return answer["seconds"], answer["token_ids"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"the process ended with code {self._process.wait()}")
