"""One client, sixteen threads (case E8)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import pytest
from draftsmith.client import AsyncClient, Cancelled, Client
from draftsmith.client.testing import Hold, Say

NUM_THREADS = 16


def test_sixteen_threads_stream_and_encode_at_once(server):
    barrier = Barrier(NUM_THREADS)

    def work(number):
        barrier.wait()
        texts = []
        for turn in range(5):
            words = [f"stop{number}-{turn}", "é" * number or "x"]
            prompt = f"thread {number} turn {turn}"
            texts.append(client.stream(prompt, stop_words=words, bad_words=words[:1], seed=number).read_all().text)
        return texts

    with Client(server.url) as client, ThreadPoolExecutor(NUM_THREADS) as pool:
        answers = list(pool.map(work, range(NUM_THREADS)))
    assert answers == [[f"thread {number} turn {turn}" for turn in range(5)] for number in range(NUM_THREADS)]
    for request in server.requests:
        (prompt,) = request["text_input"]
        _, number, _, turn = prompt.decode().split()
        assert request["stop_words"] == [f"stop{number}-{turn}".encode(), ("é" * int(number) or "x").encode()]
        assert request["bad_words"] == request["stop_words"][:1]
        assert request["seed"] == [int(number)]


def test_streams_of_one_client_are_independent(server):
    for _ in range(NUM_THREADS):
        server.answer(Say("a", [1]), Hold(), Say("b", [2]))
    with Client(server.url, model="tiny") as client:
        streams = [client.stream("x") for _ in range(NUM_THREADS)]
        assert [next(stream).text for stream in streams] == ["a"] * NUM_THREADS
        for stream in streams[::2]:
            stream.close()
        for _ in streams[::2]:
            assert server.wait_until_left()
        server.release()
        assert [next(stream).text for stream in streams[1::2]] == ["b"] * (NUM_THREADS // 2)
        for stream in streams:
            stream.close()


def test_sixteen_tasks_stream_at_once(server):
    async def main():
        async with AsyncClient(server.url) as client:
            return await asyncio.gather(*(client.generate(f"task {number}") for number in range(NUM_THREADS)))

    assert [result.text for result in asyncio.run(main())] == [f"task {number}" for number in range(NUM_THREADS)]


def test_close_from_another_thread_ends_a_waiting_reader(server):
    server.answer(Say("a", [1]), Hold())
    with Client(server.url) as client:
        stream = client.stream("x")
        assert next(stream).text == "a"
        closer = Thread(target=stream.close)
        closer.start()
        assert list(stream) == []
        closer.join()
    assert stream.finish_reason == "cancelled"


def test_close_by_another_task_ends_a_waiting_reader(server):
    async def main():
        server.answer(Say("a", [1]), Hold())
        async with AsyncClient(server.url) as client:
            stream = client.stream("x")
            await anext(stream)
            reader = asyncio.create_task(stream.read_all())
            await asyncio.sleep(0)
            await stream.close()
            return await reader

    result = asyncio.run(main())
    assert (result.text, result.finish_reason) == ("a", "cancelled")


def test_closing_the_client_ends_a_waiting_task(server):
    async def main():
        server.answer(Say("a", [1]), Hold())
        client = AsyncClient(server.url)
        stream = client.stream("x")
        await anext(stream)
        reader = asyncio.create_task(stream.read_all())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(Cancelled):
            await reader

    asyncio.run(main())


def test_a_timeout_of_asyncio_cancels_the_request(server):
    async def main():
        server.answer(Say("a", [1]), Hold())
        async with AsyncClient(server.url) as client:
            stream = client.stream("x")
            await anext(stream)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(stream)
            assert await asyncio.to_thread(server.wait_until_left)
            assert stream.finish_reason == "cancelled"

    asyncio.run(main())
