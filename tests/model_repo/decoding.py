"""Runs requests through a decode engine over the toy session, turn by turn, and gathers their answers."""

import json
from dataclasses import dataclass, field

import numpy as np
from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.runtime.admission import Admission
from draftsmith.model_repo.runtime.chat_template import ChatTemplate
from draftsmith.model_repo.runtime.draft_policy import FixedDraftSize
from draftsmith.model_repo.runtime.draft_tree import DraftTree
from draftsmith.model_repo.runtime.engine import DecodeEngine, EngineConfig
from tokenizers import Tokenizer

from tests.model_repo.toy_session import ToySession
from tests.tiny_tokenizer import CHAT_TEMPLATE, SPECIAL_TOKENS, tokenizer_values

END_ID = 2


def tiny_tokenizer():
    return Tokenizer.from_str(json.dumps(tokenizer_values()))


@dataclass
class Answer:
    """What a request's callback saw, joined."""

    updates: list = field(default_factory=list)
    handle: object = None

    def __call__(self, update):
        assert not self.is_over, "an update after the final one"
        self.updates.append(update)

    @property
    def is_over(self):
        return bool(self.updates) and self.updates[-1].is_final

    @property
    def last(self):
        return self.updates[-1]

    @property
    def text(self):
        return "".join(u.text for u in self.updates)

    @property
    def ids(self):
        return [t for u in self.updates for t in u.token_ids]

    @property
    def logprobs(self):
        return [p for u in self.updates if u.token_logprobs for p in u.token_logprobs.chosen]

    @property
    def top(self):
        parts = [u.token_logprobs for u in self.updates if u.token_logprobs]
        return [(ids, values) for p in parts for ids, values in zip(p.top_ids, p.top_logprobs, strict=True)]

    def facts(self):
        """Everything that must not depend on drafts or neighbours."""
        last = self.last
        return (self.text, self.ids, self.logprobs, self.top, last.finish_reason, last.num_output_tokens)


def make_engine(session=None, *, policy=None, drafter=None, max_length=None, end_ids=(END_ID,), **config):
    session = session or ToySession()
    admission = Admission(
        tiny_tokenizer(),
        chat_template=ChatTemplate(CHAT_TEMPLATE, SPECIAL_TOKENS),
        vocab_size=session.vocab_size,
        max_length=max_length or session.capacity,
        end_ids=end_ids,
    )
    ticks = iter(range(10**9))
    return DecodeEngine(
        session,
        admission,
        EngineConfig(**config),
        drafter=drafter,
        policy=policy or FixedDraftSize(7),
        clock=lambda: next(ticks) * 1e-3,
    )


def make_request(prompt=(250, 251, 252), *, stream=True, **sampling):
    sampling.setdefault("max_tokens", 40)
    given = {"text": prompt} if isinstance(prompt, str) else {"input_ids": tuple(prompt)}
    return GenerationRequest(**given, stream=stream, sampling=SamplingParams(**sampling))


def submit(engine, request):
    answer = Answer()
    answer.handle = engine.submit(request, answer)
    return answer


def run(engine, *answers, most_turns=5000):
    """Turn until the answers are over (all requests where none are named)."""
    for _ in range(most_turns):
        if not engine.step() or (answers and all(a.is_over for a in answers)):
            break
    return answers[0] if len(answers) == 1 else answers


def decode(request, session=None, **options):
    """One request alone in a new engine."""
    engine = make_engine(session, **options)
    return run(engine, submit(engine, request))


class OracleDrafter:
    """Drafts that are right for a random number of tokens and then wrong: forced acceptance counts.

    Knows each sequence by its prompt: ``texts`` maps a prompt to all tokens that plain decoding gives.
    """

    def __init__(self, texts, seed=0, vocab_size=300):
        self._texts = {tuple(prompt): np.asarray(tokens) for prompt, tokens in texts.items()}
        self._rng = np.random.default_rng(seed)
        self._vocab_size = vocab_size
        self.counts = []

    def propose(self, queries):
        return [self._propose(query) for query in queries]

    def _propose(self, query):
        if min(query.limit, query.depth) <= 0:
            return DraftTree.chain([])
        whole = next(t for p, t in self._texts.items() if tuple(query.tokens[: len(p)].tolist()) == p)
        rest = whole[len(query.tokens) :][: min(query.limit, query.depth)].tolist()
        right = int(self._rng.integers(0, len(rest) + 1))
        self.counts.append(right)
        wrong = [(t + 1) % self._vocab_size for t in rest[right:]]
        return DraftTree.chain(rest[:right] + wrong)
