"""SentencePiece vocabularies give the ids of the sentencepiece library, from GGUF tables and ``tokenizer.model``."""

import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draftsmith.builder.checkpoint.gguf_tokenizer import read_tokenizer
from draftsmith.builder.checkpoint.sentencepiece_model import read_pieces
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.errors import CheckpointError
from tokenizers import Tokenizer

from tests.nasty_texts import NASTY_TEXTS
from tests.tiny_models import write_tiny_checkpoint
from tests.tiny_sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, model_proto

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # swig's, when sentencepiece is imported

WORDS = "the of and to in a is that it was for on are as with his they at be this from I have"
SPECIAL_TEXT = ("<s>", "</s>", "<unk>", "<bos>")


@dataclass
class Trained:
    """A model trained by the library, and the file it makes."""

    processor: Any
    proto: bytes

    def tables(self) -> dict[str, Any]:
        """The same vocabulary as llama.cpp's converter writes it."""
        library = self.processor
        ids = range(library.get_piece_size())
        kinds = [
            UNKNOWN
            if library.is_unknown(i)
            else CONTROL
            if library.is_control(i)
            else BYTE
            if library.is_byte(i)
            else NORMAL
            for i in ids
        ]
        tokens = [library.id_to_piece(i) for i in ids]
        for i, token in enumerate(tokens):
            if token in ("▁▁", "\n", "<tag>"):
                kinds[i] = USER_DEFINED
                tokens[i] = token.replace("▁", " ")
        scores = np.array([library.get_score(i) for i in ids], np.float32)
        p = "tokenizer.ggml."
        return {
            p + "model": "llama",
            p + "tokens": tokens,
            p + "scores": scores,
            p + "token_type": np.array(kinds, np.int32),
            p + "bos_token_id": 1,
            p + "eos_token_id": 2,
            p + "unknown_token_id": 0,
        }


def train(*, prefix_space: bool) -> Trained:
    library = pytest.importorskip("sentencepiece")
    words = WORDS.split()
    source = random.Random(0)
    lines = [" ".join(source.choices(words, k=8)) for _ in range(400)] + [
        "naïve café 日本語 テキスト",
        "aaaa aaa aa  a",
    ]
    model = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=385,
        model_type="bpe",
        byte_fallback=True,
        add_dummy_prefix=prefix_space,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        character_coverage=1.0,
        user_defined_symbols=[] if prefix_space else ["▁▁", "\n", "<tag>"],
        minloglevel=2,
    )
    return Trained(library.SentencePieceProcessor(model_proto=model.getvalue()), model.getvalue())


@pytest.fixture(scope="module")
def gemma_like() -> Trained:
    return train(prefix_space=False)


@pytest.fixture(scope="module")
def llama_like() -> Trained:
    return train(prefix_space=True)


def texts() -> list[str]:
    source = random.Random(1)
    letters = "theofandiswr  aa\n<tag>▁日é"
    made = ["".join(source.choices(letters, k=source.randint(1, 40))) for _ in range(300)]
    return [text for text in [*NASTY_TEXTS, *made] if not any(special in text for special in SPECIAL_TEXT)]


def test_gemma_like_tables_give_the_librarys_ids(gemma_like: Trained) -> None:
    files = read_tokenizer({**gemma_like.tables(), "tokenizer.ggml.add_space_prefix": False}, 500, "x.gguf")
    tokenizer = Tokenizer.from_str(files.tokenizer_json)
    for text in texts():
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids == gemma_like.processor.encode(text), text
        if "▁" not in text:
            assert tokenizer.decode(ids) == text


def test_llama_like_tables_give_the_librarys_ids(llama_like: Trained) -> None:
    files = read_tokenizer(llama_like.tables(), 500, "x.gguf")
    tokenizer = Tokenizer.from_str(files.tokenizer_json)
    for text in texts():
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids == llama_like.processor.encode(text), text
        if "▁" not in text:
            assert tokenizer.decode(ids) == text


def test_bos_comes_first_by_default(llama_like: Trained) -> None:
    files = read_tokenizer(llama_like.tables(), 500, "x.gguf")
    assert files.adds_bos
    assert Tokenizer.from_str(files.tokenizer_json).encode("the").ids[0] == 1


@pytest.mark.parametrize("which", ["gemma_like", "llama_like"])
def test_folder_with_a_model_file_alone_gives_the_librarys_ids(
    tmp_path: Path, which: str, request: pytest.FixtureRequest
) -> None:
    trained: Trained = request.getfixturevalue(which)
    folder = write_tiny_checkpoint(tmp_path, "llama", vocab_size=trained.processor.get_piece_size())
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": {"content": "</s>"}}')
    (folder / "tokenizer.model").write_bytes(trained.proto)
    with open_checkpoint(folder) as checkpoint:
        files = checkpoint.tokenizer
    assert (files.bos_id, files.eos_id, files.adds_bos) == (1, 2, True)
    tokenizer = Tokenizer.from_str(files.tokenizer_json)
    for text in texts():
        assert tokenizer.encode(text, add_special_tokens=False).ids == trained.processor.encode(text), text


PIECES = [
    ("<unk>", 0.0, UNKNOWN),
    ("<s>", 0.0, CONTROL),
    ("a", -1.0, NORMAL),
    ("b", -2.0, NORMAL),
    ("ab", -0.5, NORMAL),
]


def proto(**changes: Any) -> bytes:
    options: dict[str, Any] = {"prefix_space": True, "special_ids": (0, 1, -1, -1)}
    return model_proto(PIECES, **{**options, **changes})


def test_pieces_read_as_written(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(proto(prefix_space=False))
    pieces = read_pieces(tmp_path / "m")
    assert list(zip(pieces.table.tokens, pieces.scores, pieces.table.kinds, strict=True)) == PIECES
    assert (pieces.unknown, pieces.prefix_space) == (0, False)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lambda: proto(model_type=1), "expected a BPE model, found model type 1"),
        (lambda: proto(charsmap=b"x"), "expected text taken as it is, found a normalization"),
        (lambda: proto(remove_spaces=True), "found a normalization"),
        (lambda: proto(special_ids=(99, 1, -1, -1)), "expected an unknown token"),
        (lambda: b"", "no pieces"),
        (lambda: b"\xff" * 40, "expected a SentencePiece model"),
        (lambda: proto()[:-1], "expected a SentencePiece model"),
        (lambda: b"\x0a\x03\x0a\x01\xff", "expected a SentencePiece model"),
        (lambda: b"\x0b", "expected a SentencePiece model"),
        (lambda: b"\x0a\xff\xff\xff\xff\x0f", "expected a SentencePiece model"),
    ],
)
def test_other_and_corrupt_models_are_refused(tmp_path: Path, data: Callable[[], bytes], text: str) -> None:
    (tmp_path / "tokenizer.model").write_bytes(data())
    with pytest.raises(CheckpointError, match=r"save_pretrained") as caught:
        read_pieces(tmp_path / "tokenizer.model")
    assert text in str(caught.value)


def test_random_corruption_of_a_model_file_reads_or_is_refused(tmp_path: Path) -> None:
    good, source, path = proto(), random.Random(0), tmp_path / "m"
    for _ in range(500):
        data = bytearray(good)
        for _ in range(source.randint(1, 3)):
            data[source.randrange(len(data))] = source.randrange(256)
        path.write_bytes(bytes(data))
        try:
            assert read_pieces(path).table.tokens
        except CheckpointError as error:
            assert str(path) in str(error)
