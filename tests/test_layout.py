"""Guards of the architecture: packages, layers, imports, public surface, the wheel's content, the documentation."""

import ast
import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.source_tree import PACKAGES, ROOT, imports_of, module_name, source_files

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# What a module may import of ours, by the longest prefix that fits it (design 2).
LAYERS: dict[str, tuple[str, ...]] = {
    "model_repo.contract": ("model_repo.contract",),
    "model_repo.runtime": ("model_repo.runtime", "model_repo.contract", "plugins"),
    "model_repo.template": ("model_repo.template", "model_repo.runtime", "model_repo.contract"),
    "client": ("client", "model_repo.contract"),
    "plugins": ("plugins",),
    # The runtime only to evaluate; the client only to talk to a server that is running.
    "builder": ("builder", "plugins", "model_repo.contract"),
    "builder.quantize": ("builder", "plugins", "model_repo.contract", "model_repo.runtime"),
    "builder.evaluate": ("builder", "plugins", "model_repo.contract", "model_repo.runtime"),
    "builder.drafting": ("builder", "plugins", "model_repo.contract", "model_repo.runtime"),
    "builder.train": ("builder", "plugins", "model_repo.contract", "model_repo.runtime"),
    "builder.cli": ("builder", "client", "model_repo.contract"),
}
# Who in the builder may import whom: a sub-package imports those before it, never those behind it.
BUILDER_ORDER = (
    ("errors", "progress", "ranges", "spec", "draft_options", "plan", "shipped_drafts"),
    ("model",),
    ("checkpoint",),
    ("graph",),
    ("quantize",),
    ("draft",),
    ("vocabulary",),
    ("engines",),
    ("package",),
    ("drafting", "train"),
    ("pipeline", "serve", "console", "evaluate", "plugin_build"),
    ("installed",),
    ("cli",),
)
# Third-party packages that only these modules may import (and only inside functions).
ONLY_IN = {
    "torch": ("builder.checkpoint.torch_bin", "builder.train"),
    "transformers": (),
    "tensorrt_rtx": ("builder.engines.tensorrt_rtx", "model_repo.runtime.sessions.tensorrt_rtx"),
    "pytriton": (),
    "triton_python_backend_utils": ("model_repo.template",),
}
# Modules that are imported by a training run alone: torch's classes are their base classes.
TORCH_MODULES = tuple(
    f"builder.train.{name}"
    for name in (
        *("batches", "draft_model", "export", "generation", "held_out", "loop", "objective", "ranking"),
        *("chain_attention", "plan", "ranking_fit", "run", "target_model", "text", "writing"),
    )
)
CLIENT_PACKAGES = {"draftsmith", "grpc", "numpy", "tritonclient", "google"}
FILES = [pytest.param(path, id=module_name(path).removeprefix("draftsmith.")) for path in source_files()]


def inner_name(module: str) -> str:
    return module.removeprefix("draftsmith.")


def is_within(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def test_the_package_list_is_what_is_on_the_disk() -> None:
    on_disk = {".".join(("draftsmith", *path.parent.relative_to(ROOT).parts)) for path in source_files()}
    assert set(SETTINGS["tool"]["setuptools"]["packages"]) == on_disk


@pytest.mark.parametrize("path", FILES)
def test_imports_point_one_way(path: Path) -> None:
    module = inner_name(module_name(path))
    layer = max((name for name in LAYERS if is_within(module, (name,))), key=len, default=None)
    for found in imports_of(path):
        if found.module.startswith("draftsmith.") and layer is not None:
            assert is_within(inner_name(found.module), LAYERS[layer]), f"{path}:{found.line} imports {found.module}"


@pytest.mark.parametrize("path", [p for p in FILES if str(p.id).startswith("builder.")])
def test_the_builders_parts_are_ordered(path: Path) -> None:
    rank = {name: index for index, names in enumerate(BUILDER_ORDER) for name in names}
    part = inner_name(module_name(path)).split(".")[1]
    for found in imports_of(path):
        target = inner_name(found.module).split(".")
        if target[0] == "builder" and len(target) > 1 and target[1] != part and part in rank:
            assert rank[target[1]] < rank[part] or rank[target[1]] == rank[part] == 0, (
                f"{path}:{found.line} ({part}) imports {found.module}"
            )


def test_no_modules_import_each_other_in_a_circle() -> None:
    edges = {
        module_name(path): {i.module for i in imports_of(path) if not i.is_lazy and i.module != module_name(path)}
        for path in source_files()
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module in done or module not in edges:
            return
        for target in sorted(edges[module]):
            visit(target, (*trail, module))
        done.add(module)

    for module in sorted(edges):
        visit(module, ())


@pytest.mark.parametrize("path", FILES)
def test_special_packages_stay_where_they_belong(path: Path) -> None:
    module = inner_name(module_name(path))
    for found in imports_of(path):
        top = found.module.split(".")[0]
        if top in ONLY_IN:
            assert is_within(module, ONLY_IN[top]), f"{path}:{found.line} imports {found.module}"
            may_be_eager = top == "triton_python_backend_utils" or is_within(module, TORCH_MODULES)
            assert found.is_lazy or may_be_eager, f"{path}:{found.line} must be lazy"


@pytest.mark.parametrize("path", [p for p in FILES if str(p.id).startswith(("client", "model_repo.contract"))])
def test_the_client_needs_tritonclient_alone_and_the_contract_nothing(path: Path) -> None:
    allowed = CLIENT_PACKAGES if module_name(path).startswith("draftsmith.client") else {"draftsmith"}
    for found in imports_of(path):
        top = found.module.split(".")[0]
        assert top in sys.stdlib_module_names or top in allowed, f"{path}:{found.line} imports {found.module}"


def test_nobody_imports_our_folders_without_the_distributions_name() -> None:
    folders = [ROOT / name for name in (*PACKAGES, "tests", "scripts", "benchmarks")]
    for path in sorted(p for folder in folders for p in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in PACKAGES, f"{path}:{node.lineno} imports {name}"


@pytest.mark.parametrize("path", [p for p in FILES if p.values[0].name == "__init__.py"])  # type: ignore[union-attr]
def test_a_package_that_exports_says_what(path: Path) -> None:
    """``__all__`` exists wherever ``__init__`` imports something of ours, and every name in it is there."""
    exports = [i for i in imports_of(path) if i.module.startswith("draftsmith.") and not i.is_lazy]
    module = importlib.import_module(module_name(path))
    if not exports:
        return
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name), name


def test_model_repo_itself_is_empty() -> None:
    assert (ROOT / "model_repo" / "__init__.py").read_text() == ""


IMPORT_EVERYTHING = """
import importlib, json, sys
blocked, modules = json.loads(sys.argv[1])

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked by the test)", name=name)

sys.meta_path.insert(0, Blocker())
for module in modules:
    importlib.import_module(module)
    print(module)
"""
NEVER_AT_IMPORT = [
    "torch",
    "transformers",
    "tensorrt_rtx",
    "pytriton",
    "sentencepiece",
    "scipy",
    "pytest",
    "hypothesis",
]
NEVER_IN_THE_CLIENT = [
    *NEVER_AT_IMPORT,
    *["onnx", "onnxruntime", "tokenizers", "gguf", "safetensors", "jinja2", "typer", "rich"],
]


@pytest.mark.parametrize(
    ("prefixes", "blocked"),
    [(("builder", "model_repo", "plugins"), NEVER_AT_IMPORT), (("client", "model_repo.contract"), NEVER_IN_THE_CLIENT)],
    ids=["everything", "client"],
)
def test_every_module_imports_with_the_base_and_builder_packages_alone(
    prefixes: tuple[str, ...], blocked: list[str]
) -> None:
    modules = [name for name in map(module_name, source_files()) if is_within(inner_name(name), prefixes)]
    modules = [name for name in modules if not is_within(inner_name(name), TORCH_MODULES)]
    modules.remove("draftsmith.model_repo.template.model") if "model_repo" in prefixes else None  # needs Triton
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING, json.dumps([blocked, modules])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == modules


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    source = tmp_path / "source"
    clean = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=clean)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("draftsmith/")}
    files = [path for name in PACKAGES for path in (source / name).rglob("*") if path.is_file()]
    wanted = {f"draftsmith/{path.relative_to(source)}" for path in files}
    assert packed == wanted
    assert {f"draftsmith/{name}/py.typed" for name in PACKAGES} <= packed


def test_what_the_readme_links_to_exists() -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


def test_the_commands_in_the_documents_exist() -> None:
    """``build-engine NAME`` and its ``--options``, in README, docs, scripts and our own messages."""
    from draftsmith.builder.cli.app import command_options

    known = command_options()
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for document in documents:
        for line in document.read_text(encoding="utf-8").splitlines():
            for name, rest in re.findall(r"build-engine ([a-z][a-z-]*)([^`|]*)", line):
                assert name in known, f"{document.name}: build-engine {name}"
                for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", rest):
                    assert option in known[name], f"{document.name}: build-engine {name} {option}"
