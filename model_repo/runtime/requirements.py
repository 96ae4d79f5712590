"""Compares what an engine needs (``requires`` of its manifest) with what a machine has, before the engine is read.

A requirement is text: ``>=1.32`` (this version or newer), ``==1.7.1`` (this release; further parts are free), or a list
``8.6, 12.0`` (one of these). Looks nothing up: callers bring the facts.
"""

import re
from collections.abc import Mapping

from draftsmith.model_repo.contract.manifest import Manifest

from .errors import EngineError

MISSING = "none"


def check_requirements(manifest: Manifest, found: Mapping[str, str]) -> None:
    """Raise ``EngineError`` for the first requirement that ``found`` (name -> value) does not meet.

    The error holds both values and the command that builds an engine for this machine.
    """
    for name, wanted in manifest.requires.items():
        value = found.get(name, MISSING)
        if not is_met(wanted, value):
            raise EngineError(
                f"{manifest.model_name} ({manifest.backend}, {manifest.precision}) {name}",
                expected=wanted,
                found=value,
                where="requires in engine.json",
                action=f"Use such a machine, or rebuild for this one: `{rebuild_command(manifest, found)}`",
            )


def is_met(wanted: str, value: str) -> bool:
    """Whether ``value`` meets the requirement ``wanted``; "none" or text that is no version meets nothing."""
    if wanted.startswith((">=", "==")):
        try:
            want, have = _parts(wanted[2:]), _parts(value)
        except ValueError:
            return False
        return have >= want if wanted.startswith(">=") else have[: len(want)] == want
    return value in {choice.strip() for choice in wanted.split(",")}


def rebuild_command(manifest: Manifest, found: Mapping[str, str]) -> str:
    """The ``build-engine`` command for a machine with the facts ``found``."""
    words = ["build-engine", "build", "CHECKPOINT", "--precision", manifest.precision]
    if "compute_capability" not in manifest.requires:
        return " ".join([*words, "--backend", manifest.backend])
    capability = found.get("compute_capability", MISSING)
    if capability == MISSING:  # no GPU: what runs anywhere
        return " ".join([*words, "--backend", "onnxruntime"])
    return " ".join([*words, "--backend", manifest.backend, "--gpu", "sm" + capability.replace(".", "")])


def _parts(version: str) -> tuple[int, ...]:
    """The leading numbers: (1, 33, 0) of "1.33.0+cpu"; raises ``ValueError`` where there is none."""
    found = re.match(r"\d+(?:\.\d+)*", version.strip())
    if found is None:
        raise ValueError(version)
    return tuple(int(part) for part in found[0].split("."))
