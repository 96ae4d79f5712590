"""The gRPC client of draftsmith: needs tritonclient[grpc] and NumPy alone.

``Client`` blocks, ``AsyncClient`` is its asyncio twin; ``draftsmith.client.testing`` has a fake server for tests.
"""

from .async_client import AsyncClient
from .async_stream import AsyncStream
from .client import Client
from .connection import NO_RETRY, RetryPolicy, TlsOptions
from .errors import (
    Cancelled,
    ClientError,
    DeadlineExceeded,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    ProtocolError,
    ServerError,
    ServerUnavailable,
    TooLong,
)
from .stream import Stream
from .types import (
    Chunk,
    DraftStatistics,
    EndReason,
    ModelMetadata,
    ModelStatus,
    Result,
    TensorDescription,
    TokenLogProb,
    Usage,
)

__all__ = [
    "NO_RETRY",
    "AsyncClient",
    "AsyncStream",
    "Cancelled",
    "Chunk",
    "Client",
    "ClientError",
    "DeadlineExceeded",
    "DraftStatistics",
    "EndReason",
    "InvalidRequest",
    "ModelMetadata",
    "ModelNotFound",
    "ModelStatus",
    "Overloaded",
    "ProtocolError",
    "Result",
    "RetryPolicy",
    "ServerError",
    "ServerUnavailable",
    "Stream",
    "TensorDescription",
    "TlsOptions",
    "TokenLogProb",
    "TooLong",
    "Usage",
]
