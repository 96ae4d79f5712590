"""Writes ``config.pbtxt``: a complete Triton model configuration that explains itself. Text in, text out."""

import json
from collections.abc import Iterable, Mapping

from draftsmith.model_repo.contract.manifest import Manifest
from draftsmith.model_repo.contract.tensors import REQUEST_FIELDS, RESPONSE_FIELDS, TensorField

_HEAD = """\
# {name}: {model} in {precision}, for Triton's Python backend. Written by draftsmith {version}; what the engine is and
# needs stands in 1/engine.json. Every path is relative, so the folder can be moved or copied.
name: {quoted}
backend: "python"

# 0: requests are not batched by Triton. The decode loop inside the model batches them at every step instead, so that
# requests join and leave while others are being decoded. Hence the dims below are whole shapes (-1: any length).
max_batch_size: 0

# A request is answered by any number of responses: one per accepted block of tokens, the last with the final flag.
model_transaction_policy {{ decoupled: true }}

# One process holds the engine and its {slots} cache slots; more instances would only copy the weights.
instance_group [ {{ count: 1 kind: KIND_CPU }} ]

# Only the newest version is served.
version_policy {{ latest {{ num_versions: 1 }} }}
"""


def render_config(name: str, manifest: Manifest, parameters: Mapping[str, str]) -> str:
    """The text of ``config.pbtxt`` for the model folder ``name``.

    ``parameters`` reach ``model.py`` as ``model_config["parameters"][key]["string_value"]``.
    """
    head = _HEAD.format(
        name=name,
        quoted=json.dumps(name),
        model=manifest.model_name,
        precision=manifest.precision.upper(),
        version=manifest.draftsmith_version,
        slots=manifest.max_batch,
    )
    parts = [head, "# Give exactly one of text_input, input_ids and messages; everything else has a default."]
    parts.append(_fields("input", REQUEST_FIELDS, optional=True))
    parts.append("\n# A response holds what is new since the one before; counts are totals so far.")
    parts.append(_fields("output", RESPONSE_FIELDS, optional=False))
    parts.append("\n# Read by 1/model.py.")
    parts += [_parameter(key, value) for key, value in parameters.items()]
    return "\n".join(parts) + "\n"


def _fields(kind: str, fields: Iterable[TensorField], *, optional: bool) -> str:
    entries = []
    for field in fields:
        dims = ", ".join(map(str, field.dims))
        more = " optional: true" if optional else ""
        entry = f"{{ name: {json.dumps(field.name)} data_type: {field.config_type} dims: [ {dims} ]{more} }}"
        entries.append(f"  # {field.help}\n  {entry}")
    return f"{kind} [\n" + ",\n".join(entries) + "\n]"


def _parameter(key: str, value: str) -> str:
    return f"parameters {{ key: {json.dumps(key)} value: {{ string_value: {json.dumps(value)} }} }}"
