"""Collects nodes, initializers and named inputs and outputs into an ONNX model. Knows operators by name only."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from .weights_file import ONNX_TYPES, WeightsFile

Dim = str | int
"""A dimension: a name where it varies (one of B, T, N, S), a number where the model fixes it."""
MICROSOFT = "com.microsoft"


class GraphBuilder:
    """One ONNX graph under construction; values are referred to by their names (strings).

    ``compute``: the float type of linears and attention. Names of nodes and values start with the current ``scope``.
    """

    def __init__(self, weights: WeightsFile, *, opset: int, compute: str = "float32") -> None:
        self.weights = weights
        self.opset = opset
        self.compute = compute
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._domains: set[str] = set()
        self._names: dict[str, int] = {}
        self._scopes: list[str] = []

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names made inside start with ``name/``."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def input(self, name: str, dtype: str, shape: Sequence[Dim]) -> str:
        """Declare a graph input."""
        self._inputs.append(helper.make_tensor_value_info(name, ONNX_TYPES[dtype], list(shape)))
        return name

    def output(self, value: str, name: str, dtype: str, shape: Sequence[Dim]) -> None:
        """Declare ``value`` as the graph output ``name``."""
        if value != name:
            self._nodes.append(helper.make_node("Identity", [value], [name], name=f"{name}/output"))
        self._outputs.append(helper.make_tensor_value_info(name, ONNX_TYPES[dtype], list(shape)))

    def weight(self, name: str, array: npt.NDArray[Any], dtype: npt.DTypeLike | None = None) -> str:
        """Store a large tensor in the weights file (as ``dtype``, default its own); returns its name.

        Raises ``ValueError`` for a name that is taken.
        """
        if name in self._initializers:
            raise ValueError(f"initializer {name} exists")
        self._initializers[name] = self.weights.append(name, array, dtype or array.dtype)
        return name

    def borrow(self, tensor: onnx.TensorProto) -> str:
        """Read an initializer of another graph (see ``borrowed``) where that graph stored it; returns its name.

        Raises ``ValueError`` for a name that is taken by another tensor.
        """
        if self._initializers.setdefault(tensor.name, tensor) is not tensor:
            raise ValueError(f"initializer {tensor.name} exists")
        return str(tensor.name)

    def has_weight(self, name: str) -> bool:
        """True where ``weight`` stored ``name`` before."""
        return name in self._initializers

    def constant(self, value: object, dtype: str) -> str:
        """A small tensor inside the graph file; equal ones are stored once."""
        array = np.asarray(value, dtype=dtype)
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:12]
        shape = "x".join(map(str, array.shape)) or "scalar"
        plain = str(array.item()) if array.size == 1 else digest
        name = f"const.{dtype}.{shape}.{plain}"
        if name not in self._initializers:
            self._initializers[name] = numpy_helper.from_array(array, name)
        return name

    def op(self, kind: str, *inputs: str, domain: str = "", output: str = "", **attributes: Any) -> str:
        """Add a node with one output; returns the output's name (``output`` or a fresh one)."""
        return self.ops(kind, *inputs, domain=domain, outputs=(output or None,), **attributes)[0] or ""

    def ops(
        self, kind: str, *inputs: str, outputs: Sequence[str | None], domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node; ``outputs``: a name each, None for a fresh one, "" for one that is not wanted.

        An empty input name is an optional input left out. Returns the output names.
        """
        node_name = self._fresh(kind)
        names = [node_name if o is None and i == 0 else o for i, o in enumerate(outputs)]
        names = [f"{node_name}.{i}" if n is None else n for i, n in enumerate(names)]
        kept = list(inputs)
        while kept and not kept[-1]:
            kept.pop()
        self._nodes.append(helper.make_node(kind, kept, names, name=node_name, domain=domain, **attributes))
        self._domains.add(domain)
        return [str(n) for n in names]

    def cast(self, value: str, dtype: str) -> str:
        """``value`` as ``dtype``."""
        return self.op("Cast", value, to=ONNX_TYPES[dtype])

    def build(self, name: str) -> onnx.ModelProto:
        """The finished model; initializers refer to the weights file."""
        graph = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, initializer=list(self._initializers.values())
        )
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid(domain, 1) for domain in sorted(self._domains - {""})]
        model = helper.make_model(graph, opset_imports=imports, producer_name="draftsmith")
        model.ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", self.opset)])
        return model

    def _fresh(self, kind: str) -> str:
        base = "/".join([*self._scopes, kind])
        count = self._names.get(base, 0)
        self._names[base] = count + 1
        return base if count == 0 else f"{base}_{count}"
