"""``engine.json``: what an engine is, what it needs and what its files must be. Parsing only; opens no file."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import PurePosixPath
from typing import Any, Literal, Self, TypeVar

from .errors import ManifestError

T = TypeVar("T")
FORMAT_VERSION = 3
MANIFEST_NAME = "engine.json"
Precision = Literal["fp32", "fp16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFile:
    """A file of the engine: path relative to engine.json, size in bytes, SHA-256 in hex."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheSpec:
    """The cache of one slot: ``num_layers`` x (K, V) of dtype ``dtype`` [num_kv_heads, capacity, head_dim]."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    capacity: int
    dtype: Literal["float32", "float16"]

    @property
    def slot_bytes(self) -> int:
        """Bytes that one slot needs when it is full."""
        item = 4 if self.dtype == "float32" else 2
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.capacity * item


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftEngine:
    """The draft model of an engine.

    ``kind``: "eagle3" (fed with the target's features) or "model" (a small language model of its own). ``head``: how it
    ranks the vocabulary ("full", "subset", "speculative", "grouped"). ``first_graph``: takes ``features``, None for
    "model"; ``next_graph``: takes ``hidden`` ("eagle3") or tokens alone. ``is_native``: the graphs select candidates
    themselves, with our own operators; else they give logits of candidates (or of all tokens). ``num_outputs``:
    candidates that the runtime gets a row; ``num_candidates``: tokens with exact logits. ``window``: draft keys at
    distance < window, 0 for all. ``spec``: ``DraftSpec`` or ``ModelSpec`` as a dict. ``quality``: what was measured at
    build time.
    """

    kind: str
    name: str
    format: str
    head: str
    is_native: bool
    first_graph: str | None
    next_graph: str
    feature_size: int
    hidden_size: int
    num_outputs: int
    num_candidates: int
    window: int
    kv_cache: KvCacheSpec
    spec: dict[str, Any]
    quality: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """engine.json as a value.

    ``spec``: ``ModelSpec`` as a dict. ``max_batch``: slots. ``max_length``: prompt + output tokens.
    ``max_query_len``: most tokens a row takes in one step (prefill chunk). ``min_query_len``: fewest that keep a row's
    bits the same in every step (see docs/decisions.md). ``requires``: what the serving machine must have, by name.
    ``draft``: the draft model that came with it, None without. ``special_tokens``: the strings that a chat template may
    name (``bos_token``, ``eos_token``, ...). ``build``: options and versions of the build. ``quality``: the gate's
    figures, empty where none ran.
    """

    format_version: int
    draftsmith_version: str
    model_name: str
    backend: str
    backend_version: str
    precision: Precision
    spec: dict[str, Any]
    vocab_size: int
    max_batch: int
    max_length: int
    max_query_len: int
    min_query_len: int
    feature_layers: list[int]
    kv_cache: KvCacheSpec
    draft: DraftEngine | None
    bos_id: int | None
    end_ids: list[int]
    special_tokens: dict[str, str]
    graph_file: str
    tokenizer_file: str
    chat_template_file: str | None
    files: list[EngineFile]
    requires: dict[str, str]
    build: dict[str, Any]
    quality: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a manifest strictly: unknown or missing keys, wrong types and escaping paths raise ``ManifestError``."""
        version = values.get("format_version")
        if version != FORMAT_VERSION:
            raise ManifestError(
                "format_version",
                expected=str(FORMAT_VERSION),
                found=repr(version),
                where=MANIFEST_NAME,
                action="Rebuild the package with this version of draftsmith",
            )
        _check_keys(cls, values, MANIFEST_NAME)
        plain = dict(values)
        plain["kv_cache"] = _read(KvCacheSpec, values["kv_cache"], "kv_cache")
        plain["draft"] = None if values["draft"] is None else _read_draft(values["draft"])
        files = values["files"]
        if not isinstance(files, list):
            raise ManifestError("files", expected="a list", found=type(files).__name__, where=MANIFEST_NAME)
        plain["files"] = [_read(EngineFile, entry, "files") for entry in files]
        manifest = cls(**plain)
        manifest._check()
        return manifest

    def _check(self) -> None:
        self._check_plain()
        for name in ("vocab_size", "max_batch", "max_length", "max_query_len", "min_query_len"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ManifestError(name, expected="a positive integer", found=repr(value), where=MANIFEST_NAME)
        self._check_tokens()
        if self.precision not in PRECISIONS:
            raise ManifestError(
                "precision", expected=" or ".join(PRECISIONS), found=repr(self.precision), where=MANIFEST_NAME
            )
        listed = set()
        for entry in self.files:
            check_relative(entry.name, "files")
            if not re.fullmatch(r"[0-9a-f]{64}", entry.sha256):
                raise ManifestError("sha256", expected="64 hex digits", found=repr(entry.sha256), where=entry.name)
            listed.add(entry.name)
        named = {name: getattr(self, name) for name in ("graph_file", "tokenizer_file", "chat_template_file")}
        if self.draft is not None:
            named |= {"draft.first_graph": self.draft.first_graph, "draft.next_graph": self.draft.next_graph}
        for name, value in named.items():
            if value is not None and value not in listed:
                raise ManifestError(name, expected="a name from files", found=repr(value), where=MANIFEST_NAME)

    def _check_tokens(self) -> None:
        """Ids of the vocabulary, and strings by name."""
        ids = self.end_ids if isinstance(self.end_ids, list) else [None]
        for name, given in (("end_ids", ids), ("bos_id", [] if self.bos_id is None else [self.bos_id])):
            for token in given:
                if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < self.vocab_size:
                    value = repr(getattr(self, name))
                    raise ManifestError(name, expected="ids of the vocabulary", found=value, where=MANIFEST_NAME)
        tokens = self.special_tokens
        if not isinstance(tokens, dict) or not all(isinstance(text, str) for text in tokens.values()):
            raise ManifestError("special_tokens", expected="strings by name", found=repr(tokens), where=MANIFEST_NAME)

    def _check_plain(self) -> None:
        """The fields that only need their type."""
        for name in ("draftsmith_version", "model_name", "backend", "backend_version", "graph_file", "tokenizer_file"):
            _check_type(name, getattr(self, name), str, "a string")
        for name in ("spec", "requires", "build", "quality"):
            _check_type(name, getattr(self, name), dict, "an object")
        _check_type("feature_layers", self.feature_layers, list, "a list")
        for name, value in self.requires.items():
            _check_type(f"requires.{name}", value, str, "a string")


def _check_type(name: str, value: object, kind: type, expected: str) -> None:
    if not isinstance(value, kind):
        raise ManifestError(name, expected=expected, found=repr(value), where=MANIFEST_NAME)


def check_relative(name: object, where: str) -> None:
    """Raise ``ManifestError`` unless ``name`` stays inside its folder (no ``..``, no absolute path, no backslash)."""
    if not isinstance(name, str) or not name:
        raise ManifestError("file name", expected="a relative path", found=repr(name), where=where)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in name:
        raise ManifestError("file name", expected="a path inside the package", found=repr(name), where=where)


def _check_keys(kind: type, values: Mapping[str, Any], where: str) -> None:
    known = {f.name for f in fields(kind)}
    missing = sorted(known - set(values))
    unknown = sorted(set(values) - known)
    if missing:
        raise ManifestError("keys", expected=", ".join(missing), found="none of them", where=where)
    if unknown:
        raise ManifestError("keys", expected="known names only", found=", ".join(unknown), where=where)


def _read_draft(values: object) -> DraftEngine:
    if not isinstance(values, Mapping):
        raise ManifestError("draft", expected="an object or null", found=type(values).__name__, where=MANIFEST_NAME)
    _check_keys(DraftEngine, values, "draft")
    for name, kind, expected in _DRAFT_TYPES:
        _check_type(f"draft.{name}", values[name], kind, expected)
    for name in ("feature_size", "hidden_size", "num_outputs", "num_candidates", "window"):
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ManifestError(f"draft.{name}", expected="a count", found=repr(value), where=MANIFEST_NAME)
    if values["first_graph"] is not None:
        _check_type("draft.first_graph", values["first_graph"], str, "a string or null")
    return DraftEngine(**{**values, "kv_cache": _read(KvCacheSpec, values["kv_cache"], "draft.kv_cache")})


_DRAFT_TYPES: tuple[tuple[str, type, str], ...] = (
    *((name, str, "a string") for name in ("kind", "name", "format", "head", "next_graph")),
    ("is_native", bool, "true or false"),
    ("spec", dict, "an object"),
    ("quality", dict, "an object"),
)


def _read(kind: type[T], values: object, where: str) -> T:
    if not isinstance(values, Mapping):
        raise ManifestError(where, expected="an object", found=type(values).__name__, where=MANIFEST_NAME)
    _check_keys(kind, values, where)
    for f in fields(kind):  # type: ignore[arg-type]
        value = values[f.name]
        good = isinstance(value, str)
        if f.type is int:
            good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not good:
            raise ManifestError(
                f.name, expected="a count" if f.type is int else "a string", found=repr(value), where=where
            )
    return kind(**values)
