"""Building the GPU kernels and the TensorRT plugin libraries with CMake and nvcc."""

from .build import BuiltLibrary, PluginBuild, build_plugins, check_architectures
from .toolchain import KERNELS_ONLY, TENSORRT_VERSIONS, Headers, Toolchain, find_headers, find_toolchain

__all__ = [
    "KERNELS_ONLY",
    "TENSORRT_VERSIONS",
    "BuiltLibrary",
    "Headers",
    "PluginBuild",
    "Toolchain",
    "build_plugins",
    "check_architectures",
    "find_headers",
    "find_toolchain",
]
