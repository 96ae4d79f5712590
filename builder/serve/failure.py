"""Reads a Triton log for the one line that says why a model or the server failed. Text in, text out."""

import re

# Triton writes line ends of a Python traceback as they are or escaped, depending on the line.
_LINE = r"(?:\n|\\n)"
_MODEL_FAILURE = re.compile(
    r"(?:failed to load '(?P<model>[^']+)' version \d+"
    r"|load failed for model '(?P<name>[^']+)': version \d+ is at \w+ state): "
    r"(?:Internal: )?(?:[\w.]*(?:Error|Exception): )?(?P<reason>.+?)"
    rf"(?:{_LINE}\s*{_LINE}\s*At:|\"?\n[EIW]\d{{4}} |\n;|\Z)",
    re.DOTALL,
)
_ERROR_LINE = re.compile(r"^E\d{4} [\d:.]+ \d+ [\w./]+:\d+\] \"?(?P<reason>.+?)\"?$", re.M)
_HARMLESS = ("CudaDriverHelper",)  # said at every start without a GPU
_MAX_CHARS = 600


def failure_reason(log: str) -> str:
    """``model: reason`` of the first model that failed to load, else the log's last error line, else an empty text."""
    found = _MODEL_FAILURE.search(log)
    if found:
        return _one_line(f"{found['model'] or found['name']}: {found['reason']}")
    errors = [line for line in _ERROR_LINE.findall(log) if not line.startswith(_HARMLESS)]
    return _one_line(errors[-1]) if errors else ""


def _one_line(text: str) -> str:
    line = " ".join(text.replace("\\n", " ").split()).rstrip('".')
    return line if len(line) <= _MAX_CHARS else line[: _MAX_CHARS - 3] + "..."
