"""Finds the model processes ("stubs") of a Triton server in /proc."""

from pathlib import Path

_STUB = "triton_python_backend_stub"


def find_stubs(server_pid: int, proc: Path = Path("/proc")) -> dict[str, int]:
    """Model name -> process id of each living stub that ``server_pid`` started (zombies do not count)."""
    stubs = {}
    for folder in proc.glob("[0-9]*"):
        try:
            # The name in parentheses may hold spaces; state and parent follow it.
            state, parent = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
            if int(parent) != server_pid or state in ("Z", "X"):
                continue
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (OSError, ValueError):
            continue
        if _STUB in arguments[0] or any(_STUB in a for a in arguments[:3]):
            model = next((Path(a).parent.parent.name for a in arguments if a.endswith("/model.py")), None)
            if model is not None:
                stubs[model] = int(folder.name)
    return stubs
