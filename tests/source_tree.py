"""Our source files as syntax trees, for the guard tests: modules, what they import, and whether at import time."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("builder", "client", "model_repo", "plugins")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, absolute. ``is_lazy``: inside a function or under TYPE_CHECKING."""

    module: str
    line: int
    is_lazy: bool


def source_files() -> list[Path]:
    """Every Python file of the four packages."""
    return sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


def module_name(path: Path) -> str:
    """``builder/spec/target.py`` -> ``draftsmith.builder.spec.target``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("draftsmith", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def imports_of(path: Path) -> list[Import]:
    """Every import of a file; ``from . import x`` counts as the module ``x`` where there is one."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return list(_walk(tree, path, lazy=False))


def _walk(node: ast.AST, path: Path, *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, lazy)
        elif isinstance(child, ast.ImportFrom):
            yield from (Import(name, child.lineno, lazy) for name in _from_names(child, path))
        else:
            is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            is_typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            yield from _walk(child, path, lazy=lazy or is_function or is_typing)


def _from_names(node: ast.ImportFrom, path: Path) -> list[str]:
    base = node.module or ""
    if node.level:
        package = module_name(path).split(".")
        if path.name != "__init__.py":
            package = package[:-1]
        package = package[: len(package) - (node.level - 1)]
        base = ".".join([*package, base] if base else package)
    known = _known_modules()
    children = [f"{base}.{alias.name}" for alias in node.names]
    return [child if child in known else base for child in children]


def _known_modules() -> set[str]:
    if not _MODULES:
        _MODULES.update(module_name(path) for path in source_files())
    return _MODULES


_MODULES: set[str] = set()
