"""One real Triton server for the whole folder: a tiny checkpoint in two precisions."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from draftsmith.builder.errors import BackendError
from draftsmith.builder.pipeline import build
from draftsmith.builder.plan import BuildPlan
from draftsmith.builder.progress import Silent
from draftsmith.builder.serve import ServeOptions, ServerProcess
from draftsmith.builder.serve.locate import find_triton
from draftsmith.client import Client
from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.runtime.loading import load_engine
from draftsmith.model_repo.runtime.request import Update

from tests.tiny_models import write_tiny_checkpoint

PRECISIONS = ("fp16", "int8")
MODELS = [f"tiny_{precision}" for precision in PRECISIONS]
MAX_LENGTH = 512


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages ``tiny_fp16`` and ``tiny_int8``."""
    root = tmp_path_factory.mktemp("served")
    checkpoint = write_tiny_checkpoint(root / "checkpoint", "llama")
    plan = BuildPlan(
        checkpoint=checkpoint,
        output=root / "repository",
        name="tiny",
        precisions=PRECISIONS,  # type: ignore[arg-type]
        max_batch=4,
        max_length=MAX_LENGTH,
        max_query_len=32,
        num_threads=1,
        # Random weights have no outliers to save and no meaning to lose; what is tested here is serving.
        max_kl=10.0,
        min_top1=0.0,
    )
    build(plan, Silent())
    return plan.output


@pytest.fixture(scope="session")
def serve(repository: Path) -> Callable[..., ServerProcess]:
    """``serve(models=("tiny_fp16",))`` makes a server that has not started yet."""
    try:
        find_triton()
    except BackendError as error:
        pytest.skip(f"needs Triton: {error}")

    def make(models: tuple[str, ...] = (), folder: Path = repository) -> ServerProcess:
        options = ServeOptions(
            repository=folder,
            models=models,
            http_port=0,
            grpc_port=0,
            metrics_port=0,
            stop_grace_s=5.0,
            ready_timeout_s=90.0,
        )
        return ServerProcess(options)

    return make


@pytest.fixture(scope="session")
def server(serve: Callable[..., ServerProcess]) -> Iterator[ServerProcess]:
    """Both models, served by one Triton for all tests of the session."""
    with serve() as running:
        yield running


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    """Each served model in turn."""
    name: str = request.param
    return name


@pytest.fixture
def client(server: ServerProcess, model: str) -> Iterator[Client]:
    """A client of one model; no answer may take longer than a minute."""
    with Client(server.grpc_url, model=model, timeout=60.0) as opened:
        yield opened


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine in this process said."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str


@pytest.fixture(scope="session")
def engines(repository: Path) -> Iterator[dict[str, Any]]:
    """The same packages, loaded in this process."""
    loaded = {name: load_engine(repository / name / "1", num_threads=1) for name in MODELS}
    for engine in loaded.values():
        engine.start()
    yield loaded
    for engine in loaded.values():
        engine.close()


@pytest.fixture
def ask_in_process(engines: dict[str, Any], model: str) -> Callable[..., Answer]:
    """``ask_in_process("text", max_tokens=5)`` answers without Triton."""

    def ask(text: str, **sampling: Any) -> Answer:
        updates: list[Update] = []
        ended = threading.Event()

        def take(update: Update) -> None:
            updates.append(update)
            if update.is_final:
                ended.set()

        engines[model].submit(GenerationRequest(text=text, sampling=SamplingParams(**sampling)), take)
        assert ended.wait(60.0)
        assert updates[-1].error is None
        ids = tuple(token for update in updates for token in update.token_ids)
        return Answer("".join(update.text for update in updates), ids, updates[-1].finish_reason)

    return ask
