"""Both clients behind one blocking surface, so that every test of behaviour runs with either."""

import asyncio

from draftsmith.client import AsyncClient, Client

KINDS = ("blocking", "asyncio")


def open_client(kind, url, **options):
    """A ``Client``, or an ``AsyncClient`` with a loop of its own; a context manager."""
    return Client(url, **options) if kind == "blocking" else _AsyncioClient(url, **options)


class _AsyncioClient:
    def __init__(self, url, **options):
        self._runner = asyncio.Runner()
        self._client = AsyncClient(url, **options)

    def generate(self, *arguments, **options):
        return self._runner.run(self._client.generate(*arguments, **options))

    def stream(self, *arguments, **options):
        return _AsyncioStream(self._runner, self._client.stream(*arguments, **options))

    def models(self):
        return self._runner.run(self._client.models())

    def ready(self, model=None):
        return self._runner.run(self._client.ready(model))

    def metadata(self, model=None):
        return self._runner.run(self._client.metadata(model))

    def close(self):
        self._runner.run(self._client.close())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self._runner.close()


class _AsyncioStream:
    def __init__(self, runner, stream):
        self._runner = runner
        self._stream = stream

    finish_reason = property(lambda self: self._stream.finish_reason)
    result = property(lambda self: self._stream.result)

    def read_all(self):
        return self._runner.run(self._stream.read_all())

    def close(self):
        self._runner.run(self._stream.close())

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self._runner.run(self._next())
        except StopAsyncIteration:
            raise StopIteration from None

    async def _next(self):
        return await anext(self._stream)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
