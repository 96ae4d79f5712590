"""The order of an evaluation: engines, questions, a round a question, the files. Every step is another module's job."""

from collections.abc import Callable, Sequence

from draftsmith.model_repo.runtime.loading import read_manifest
from tokenizers import Tokenizer

from ..errors import BuilderError
from ..progress import Progress
from .draft_steps import DraftStep, measure_draft_steps
from .engine_facts import EngineFacts
from .lineup import Engines, Entry, make_entries
from .machine import count_threads, describe_machine
from .own_sets import read_languages, write_long_questions
from .plan import EvaluationPlan
from .questions import Question, choose_evenly, choose_questions, read_prompts, read_questions
from .results import Results, Skip
from .results_folder import REPORT, ROWS, open_rows, write_results
from .rounds import Pacer, Round, run_round
from .rows import Row
from .runs import Sampling, TooLongError


class MismatchError(BuilderError):
    """Speculative decoding gave other tokens than plain decoding."""


def evaluate(plan: EvaluationPlan, progress: Progress) -> Results:
    """Ask every question under every configuration, and write rows.csv, table.md, figures.csv and report.html.

    Whatever ends it early (Ctrl-C, a failing engine), the files say what was measured until then.

    Raises:
        UsageError: questions or engines are not what the plan says.
        ManifestError, EngineError: an engine cannot be loaded.
        RequestError: an engine failed.
    """
    entries = make_entries(plan.configurations)
    questions = gather_questions(plan, entries[0].facts)
    machine = describe_machine(plan.num_threads)
    row_file, kept = open_rows(plan, entries)
    rows, skips, draft_steps = list(kept), list[Skip](), dict[str, DraftStep]()
    results = Results(
        plan=plan,
        entries=entries,
        rows=rows,
        skips=skips,
        machine=machine,
        num_wanted=len(questions) * len(plan.temperatures),
        draft_steps=draft_steps,
    )

    def keep(done: Sequence[Row]) -> None:
        row_file.add(done)
        rows.extend(done)

    try:
        draft_steps.update(measure_draft_steps(entries, count_threads(plan.num_threads), progress))
        with Engines(num_threads=plan.num_threads, num_slots=plan.num_slots) as engines:
            engines.load(entries, progress)
            _ask_all(_open_rounds(plan, questions, kept), engines, entries, (keep, skips.append), progress)
    finally:
        row_file.close()
        write_results(results)
    return results


def _ask_all(
    rounds: Sequence[Round],
    engines: Engines,
    entries: Sequence[Entry],
    sinks: tuple[Callable[[Sequence[Row]], None], Callable[[Skip], None]],
    progress: Progress,
) -> None:
    """``sinks``: where the rows of a round go, and what was skipped."""
    keep, skip = sinks
    pacer = Pacer(lambda entry, prompt, sampling: engines.of(entry).answer(prompt, sampling, entry.configuration))
    with progress.stage("evaluate", total=len(rounds), unit="rounds") as stage:
        for round_ in rounds:
            try:
                keep(run_round(round_, entries, pacer))
            except TooLongError as error:
                skip(_describe_skip(round_, error))
            stage.advance()


def check_results(results: Results) -> None:
    """Raise ``MismatchError`` unless every configuration gave plain decoding's tokens."""
    wrong = results.mismatches
    if wrong:
        first = wrong[0]
        where = f"first: question {first.question_id}, {first.configuration}, token {first.first_difference}"
        raise MismatchError(
            "speculative answers",
            expected="plain decoding's tokens",
            found=f"{len(wrong)} of {results.num_compared} that differ",
            where=where,
            action=f"See first_difference in {results.plan.output / ROWS}, and {REPORT}",
        )


def gather_questions(plan: EvaluationPlan, facts: EngineFacts) -> list[Question]:
    """Everything that is asked, tasks in order; long prompts are measured with the first engine's tokenizer.

    Raises:
        UsageError: a file is not what it says, or an id comes twice.
    """
    questions = [question for path in plan.questions for question in read_questions(path)]
    questions += [question for path in plan.prompts for question in read_prompts(path)]
    if plan.has_languages:
        questions += read_languages()
    if plan.long_context:
        questions += choose_evenly(write_long_questions(_token_counter(facts), plan.long_context), plan.long_questions)
    return choose_questions(questions, plan.questions_per_task)


def _open_rounds(plan: EvaluationPlan, questions: Sequence[Question], kept: Sequence[Row]) -> list[Round]:
    """Question by question, each at every temperature, without those that are done; a seed a question."""
    done = {(row.question_id, row.temperature) for row in kept}
    wanted = [(index, temperature) for index in range(len(questions)) for temperature in plan.temperatures]
    return [
        Round(
            question=questions[index],
            sampling=Sampling(max_tokens=plan.max_tokens, temperature=temperature, seed=plan.seed + index),
            turn=turn,
        )
        for turn, (index, temperature) in enumerate(wanted)
        if (questions[index].question_id, temperature) not in done
    ]


def _describe_skip(round_: Round, error: TooLongError) -> Skip:
    question = round_.question
    return Skip(
        question_id=question.question_id,
        task=question.task,
        temperature=round_.sampling.temperature,
        reason=f"expected {error.expected}, found {error.found}",
    )


def _token_counter(facts: EngineFacts) -> Callable[[str], int]:
    tokenizer = Tokenizer.from_file(str(facts.folder / read_manifest(facts.folder).tokenizer_file))
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
