"""A file mapped read-only, whose pages are given back after each read so that they do not count as this process's."""

import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt
from draftsmith.builder.errors import CheckpointError


class MappedFile:
    """Bytes of a file by position; callers check bounds, this class checks them again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise CheckpointError(path.name, expected="a readable file", found=str(error), where=str(path)) from error
        self.size = len(self._map)

    def view(self, begin: int, num_bytes: int) -> npt.NDArray[np.uint8]:
        """A view of bytes; drop it before ``close``."""
        if begin < 0 or num_bytes < 0 or begin + num_bytes > self.size:
            raise CheckpointError(
                self.path.name,
                expected=f"at least {begin + num_bytes} bytes",
                found=str(self.size),
                where=str(self.path),
                action="The file is truncated: download it again.",
            )
        if num_bytes == 0:
            return np.empty(0, np.uint8)
        return np.frombuffer(self._map, np.uint8, num_bytes, begin)

    def read_bytes(self, begin: int, num_bytes: int) -> bytes:
        """A copy of bytes."""
        return self.view(begin, num_bytes).tobytes()

    def forget(self, begin: int, num_bytes: int) -> None:
        """Tell the kernel that these pages are not needed soon (they stay in its cache)."""
        first = begin - begin % mmap.PAGESIZE
        if num_bytes and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, begin + num_bytes - first)

    def close(self) -> None:
        """Unmap. A view that is still held keeps the mapping alive instead of crashing."""
        try:
            self._map.close()
        except BufferError:
            return
