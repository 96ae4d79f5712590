"""A Triton repository with one model, ``toy``: the real template, codec and config around ``ToyEngine``."""

import hashlib
import json
import shutil
from pathlib import Path

from draftsmith.builder.package.config_pbtxt import render_config
from draftsmith.model_repo.contract.manifest import EngineFile, KvCacheSpec

from tests.tiny_manifest import tiny_manifest

HERE = Path(__file__).parent
_MODEL = """\
import sys, types
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from toy_engine import ToyEngine
loading = types.ModuleType("draftsmith.model_repo.runtime.loading")
loading.load_engine = lambda folder, *, num_threads, num_slots: ToyEngine()
sys.modules["draftsmith.model_repo.runtime.loading"] = loading
from draftsmith.model_repo.template.model import TritonPythonModel
"""


def write_toy_repository(folder: Path, name: str = "toy") -> Path:
    """Write it and return its path; nothing in it can compute, so only requests for the toy engine work."""
    version = folder / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(_MODEL)
    shutil.copy(HERE / "toy_engine.py", version)
    files = []
    for file in ("target.onnx", "tokenizer.json"):
        (version / file).write_bytes(b"{}")
        files.append(EngineFile(name=file, num_bytes=2, sha256=hashlib.sha256(b"{}").hexdigest()))
    cache = KvCacheSpec(num_layers=1, num_kv_heads=1, head_dim=2, capacity=16, dtype="float32")
    manifest = tiny_manifest(
        model_name=name, precision="fp32", vocab_size=8, max_batch=4, end_ids=[0], kv_cache=cache, files=files
    )
    (version / "engine.json").write_text(json.dumps(manifest.to_dict()))
    (folder / name / "config.pbtxt").write_text(render_config(name, manifest, {"num_threads": "1"}))
    return folder
