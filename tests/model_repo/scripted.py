"""A machine whose time is counted, not measured: a target that writes given texts, a draft model that is right by a
given chance, and the milliseconds that their steps would take. For how fast a policy decodes, without a clock."""

from dataclasses import dataclass, field

import numpy as np
from draftsmith.model_repo.contract.params import GenerationRequest, SamplingParams
from draftsmith.model_repo.runtime.adaptive import AdaptiveDraftSize
from draftsmith.model_repo.runtime.admission import Admission
from draftsmith.model_repo.runtime.calibration import measure_step_times
from draftsmith.model_repo.runtime.combined_drafter import CombinedDrafter
from draftsmith.model_repo.runtime.cost_model import CostModel
from draftsmith.model_repo.runtime.engine import DecodeEngine, EngineConfig
from draftsmith.model_repo.runtime.model_drafter import ModelDrafter
from draftsmith.model_repo.runtime.sessions.base import DraftOutputs, StepOutputs

from tests.model_repo.decoding import Answer, run, tiny_tokenizer

_LOST = -1
"""In the place of a text's number: what a draft continues is not the text any more."""


@dataclass
class Text:
    """A prompt and what the target writes after it. ``chance``: that the draft model's first choice is right."""

    prompt: list
    answer: list
    chance: float = 0.5


@dataclass
class Machine:
    """Milliseconds of steps, and their sum so far. ``target``: of T tokens in all rows together, through points."""

    target: dict = field(default_factory=lambda: {1: 5.3, 4: 6.2, 8: 7.0, 12: 7.7, 256: 100.0})
    draft_first: float = 0.5
    draft_next: float = 0.35
    draft_token: float = 0.12
    spent: float = 0.0

    def clock(self):
        return self.spent * 1e-3

    def step_target(self, num_tokens):
        self.spent += float(np.interp(num_tokens, list(self.target), list(self.target.values())))

    def step_draft(self, num_tokens, *, is_first):
        base = self.draft_first if is_first else self.draft_next + self.draft_token
        self.spent += base + self.draft_token * (min(num_tokens, 16) - 1 + 0.5 * max(0, num_tokens - 16))


class ScriptedTarget:
    """``TargetSession`` that writes ``texts``; which one, a prompt's first token says."""

    capacity, max_query_len, min_query_len, exact_trees = 1200, 256, 1, True

    def __init__(self, machine, texts, *, num_slots=1, vocab_size=300):
        self.num_slots, self.vocab_size = num_slots, vocab_size
        self._machine = machine
        self._scripts = [np.array([*text.prompt, *text.answer]) for text in texts]
        self._numbers = {text.prompt[0]: number for number, text in enumerate(texts)}
        self._of_slot = [0] * num_slots

    def step(self, inputs):
        rows, queries = inputs.token_ids.shape
        self._machine.step_target(rows * queries)
        logits = np.zeros((rows, inputs.logits_index.shape[1], self.vocab_size), np.float32)
        features = np.zeros((rows, queries, 2), np.float32)
        for b, slot in enumerate(inputs.slots.tolist()):
            if inputs.past_lengths[b] == 0:
                self._of_slot[slot] = self._numbers.get(int(inputs.token_ids[b, 0]), 0)
            script = self._scripts[self._of_slot[slot]]
            features[b] = np.stack([np.full(queries, self._of_slot[slot]), inputs.positions[b]], axis=-1)
            places = np.minimum(inputs.positions[b, inputs.logits_index[b]] + 1, len(script) - 1)
            logits[b, np.arange(len(places)), script[places]] = 9.0
        return StepOutputs(logits=logits, features=features)

    def keep_path(self, slot, start, sources):
        """Nothing is kept."""

    def copy_slot(self, source, destination, num_tokens):
        self._of_slot[destination] = self._of_slot[source]

    def close(self):
        """Nothing to free."""


class ScriptedDraft:
    """``DraftSession`` whose confidence varies from place to place and is what it says: a first choice that it gives
    0.8 is right in 8 of 10 places. Features and hidden states are (number of the text, position)."""

    max_query_len, feature_size, hidden_size, window, num_outputs = 256, 2, 2, 0, 8

    def __init__(self, machine, texts, *, num_slots=1, vocab_size=300, seed=0):
        self.num_slots = num_slots
        self._machine = machine
        self._vocab_size = vocab_size
        self._scripts = [[*text.prompt, *text.answer] for text in texts]
        rng = np.random.default_rng(seed)
        sure = [rng.beta(1.5 * text.chance, 1.5 * (1 - text.chance), len(text.prompt) + 999) for text in texts]
        self._sure = [np.clip(values, 0.02, 0.98) for values in sure]
        self._luck = [rng.random(len(values)) for values in sure]
        self.num_first = 0

    def step(self, inputs):
        rows, queries = inputs.token_ids.shape
        is_first = inputs.features is not None
        self.num_first += is_first
        self._machine.step_draft(rows * queries, is_first=is_first)
        given = inputs.features if is_first else inputs.hidden
        shape = (rows, inputs.logits_index.shape[1])
        ids = np.zeros((*shape, self.num_outputs), np.int32)
        logits = np.zeros((*shape, self.num_outputs), np.float32)
        hidden = np.zeros((*shape, 2), np.float32)
        for b in range(rows):
            for n, t in enumerate(inputs.logits_index[b].tolist()):
                number, position = map(int, given[b, t])
                at = position + 1  # of the token that is read
                if number != _LOST and self._token(number, at) != inputs.token_ids[b, t]:
                    number = _LOST
                hidden[b, n] = number, at
                ids[b, n], logits[b, n] = self._guess(number, at + 1)
        return DraftOutputs(token_ids=ids, logits=logits, log_sum_exp=np.zeros(shape, np.float32), hidden=hidden)

    def _guess(self, number, at):
        """Candidates of place ``at`` and their log-probabilities: ``sure`` and shares of what it leaves."""
        sure = float(self._sure[number][at])
        chances = [sure, *((1 - sure) * share for share in (0.4, 0.2, 0.1, 0.05, 0.04, 0.03, 0.02))]
        ids = [(self._token(number, at) + 1 + place) % self._vocab_size for place in range(len(chances))]
        place = int(np.searchsorted(np.cumsum(chances), self._luck[number][at]))
        if number != _LOST and place < len(ids):
            ids[place] = self._token(number, at)
        order = np.argsort([-chance for chance in chances], kind="stable")
        return np.array(ids)[order], np.log(chances)[order]

    def _token(self, number, at):
        script = self._scripts[number]
        return script[at] if at < len(script) else 0

    def copy_slot(self, source, destination, num_tokens):
        """Nothing is kept."""

    def close(self):
        """Nothing to free."""


def open_scripted(texts, *, machine=None, num_slots=1, policy=None, vocab_size=300, **config):
    """A calibrated engine that writes ``texts``; (engine, machine, draft)."""
    machine = machine or Machine()
    target = ScriptedTarget(machine, texts, num_slots=num_slots, vocab_size=vocab_size)
    draft = ScriptedDraft(machine, texts, num_slots=num_slots, vocab_size=vocab_size)
    if policy is None:
        cost = CostModel()
        cost.calibrate(measure_step_times(target, machine.clock))
        policy = AdaptiveDraftSize(cost)
    drafter = CombinedDrafter(ModelDrafter(draft, policy, clock=machine.clock), policy)
    admission = Admission(
        tiny_tokenizer(), chat_template=None, vocab_size=vocab_size, max_length=target.capacity, end_ids=()
    )
    config = EngineConfig(**config)
    engine = DecodeEngine(target, admission, config, drafter=drafter, policy=policy, clock=machine.clock)
    return engine, machine, draft


def measure_speed(texts, *, together=False, engine=None, **options):
    """Tokens a millisecond of the decode steps while the texts are written, one by one or ``together``.

    ``options``: of ``open_scripted``, and of requests where they begin with ``draft_`` (or are ``speculate``).
    """
    asked = {name: options.pop(name) for name in list(options) if name.startswith(("draft_", "spec"))}
    if engine is None:
        engine, _, _ = open_scripted(texts, num_slots=len(texts) if together else 1, **options)
    answers, before = [], engine.stats()
    for text in texts:
        answer = Answer()
        sampling = SamplingParams(max_tokens=len(text.answer), **asked)
        answer.handle = engine.submit(GenerationRequest(input_ids=tuple(text.prompt), sampling=sampling), answer)
        answers.append(answer)
        if not together:
            run(engine, answer)
    if together:
        run(engine, *answers)
    for text, answer in zip(texts, answers, strict=True):
        assert answer.ids == list(text.answer)
    stats = engine.stats()
    tokens = stats.num_output_tokens - before.num_output_tokens - len(texts)
    return tokens / sum(stats.phase_ms[name] - before.phase_ms[name] for name in ("draft", "verify", "accept"))
