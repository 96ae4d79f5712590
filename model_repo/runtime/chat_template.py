"""Chat messages to a prompt: renders a model's Jinja template in a sandbox, within a budget.

A template comes with a checkpoint, so it is not trusted: it gets no attributes beyond plain data (Jinja's sandbox), and
every loop turn, call and built string is paid from a budget, so that it cannot run for ever or fill the memory.
"""

import datetime
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jinja2
from draftsmith.model_repo.contract.errors import ManifestError, RequestError
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

_BUDGET = "draftsmith_budget"
_BOUNDED_LOOP = "draftsmith_bounded_loop"
_BOUNDED_TEXT = "draftsmith_bounded_text"
_MAX_TURNS = 200_000
_MAX_CHARS = 16_000_000
_MAX_NUMBER = 10_000
_LONG_WIDTH = re.compile(r"\d{5,}")


class TemplateError(Exception):
    """What a template says when it refuses its messages (``raise_exception``), or that its budget is spent."""


class Budget:
    """Loop turns and characters that one rendering may still use."""

    def __init__(self) -> None:
        self._turns = _MAX_TURNS
        self._chars = _MAX_CHARS

    def pay_turn(self) -> None:
        """One loop turn or call."""
        self._turns -= 1
        if self._turns < 0:
            raise TemplateError(f"the template runs too long (more than {_MAX_TURNS:,} loop turns and calls)")

    def pay_value(self, value: object) -> None:
        """A value that was built; its size counts."""
        if isinstance(value, (str, list, tuple)):
            self._chars -= len(value)
            if self._chars < 0:
                raise TemplateError(f"the template writes too much (more than {_MAX_CHARS:,} characters)")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with every call and every growing operator paid from the context's budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
        self.filters["tojson"] = _to_json
        self.filters[_BOUNDED_LOOP] = jinja2.pass_context(_bound_loop)
        self.filters[_BOUNDED_TEXT] = jinja2.pass_context(_bound_text)
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = _find_budget(context)
        budget.pay_turn()
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            _check_numbers((owner, *args, *kwargs.values()), is_format=getattr(obj, "__name__", "") == "format")
            if getattr(obj, "__name__", "") == "replace" and len(args) > 1:
                _check_product(owner, args[1])
        result = super().call(context, obj, *args, **kwargs)
        budget.pay_value(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            _check_product(left, right)
        elif operator == "**":
            _check_numbers((left, right), is_format=False)
        elif operator == "%":
            _check_numbers((left,), is_format=isinstance(left, str))
        result = super().call_binop(context, operator, left, right)
        _find_budget(context).pay_value(result)
        return result


class GenerationTag(Extension):
    """``{% generation %}``: marks the assistant's part for training; here its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - the type that Jinja declares

    def parse(self, parser: jinja2.parser.Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template.

    Arguments:
        source: the Jinja text. ``special_tokens``: names it may use, such as ``bos_token`` -> ``<s>``.

    Raises:
        ManifestError: it is no valid template.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = BoundedEnvironment()
        try:
            tree = environment.parse(source)
            _bind_budget(tree)
            self._template = environment.from_string(tree)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ManifestError(
                "chat template", expected="a valid Jinja template", found=_shorten(error), where="chat_template"
            ) from error
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The prompt that the messages make.

        Raises:
            RequestError: the template refuses the messages, fails, or uses more than its budget.
        """
        budget = Budget()
        variables = {
            **self._special_tokens,
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            _BUDGET: budget,
        }
        pieces: list[str] = []
        try:
            for piece in self._template.generate(variables):
                budget.pay_turn()
                budget.pay_value(piece)
                pieces.append(piece)
        except (TemplateError, jinja2.TemplateError) as error:
            raise _refusal(error) from error
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            MemoryError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise _refusal(error) from error
        return "".join(pieces)


def _bind_budget(tree: nodes.Template) -> None:
    """Route every loop's items, every ``~`` and every filter's result through the budget."""
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = _filter(loop.iter, _BOUNDED_LOOP)
    for field_owner in list(tree.find_all(nodes.Node)):
        for name, value in list(field_owner.iter_fields()):
            if isinstance(value, list):
                setattr(field_owner, name, [_bound(item) for item in value])
            else:
                setattr(field_owner, name, _bound(value))


def _bound(value: Any) -> Any:
    is_ours = isinstance(value, nodes.Filter) and value.name in (_BOUNDED_LOOP, _BOUNDED_TEXT)
    if isinstance(value, nodes.Concat) or (isinstance(value, nodes.Filter) and not is_ours and value.node is not None):
        return _filter(value, _BOUNDED_TEXT)
    return value


def _filter(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _find_budget(context: Context) -> Budget:
    """From the variables that were passed in: what a template sets itself cannot hide it."""
    budget = context.parent.get(_BUDGET)
    if not isinstance(budget, Budget):
        raise TemplateError("the template hides its budget")
    return budget


def _bound_loop(context: Context, items: Any) -> Any:
    budget = _find_budget(context)
    return _pay_for(items, budget) if isinstance(items, Iterable) else items  # Jinja says what is wrong with it


def _pay_for(items: Iterable[Any], budget: Budget) -> Iterator[Any]:
    for item in items:
        budget.pay_turn()
        yield item


def _bound_text(context: Context, value: Any) -> Any:
    budget = _find_budget(context)
    budget.pay_turn()
    budget.pay_value(value)
    return value


def _check_numbers(values: Iterable[Any], *, is_format: bool) -> None:
    """Refuse huge paddings, powers and format widths before they are built."""
    for value in values:
        if isinstance(value, int) and abs(value) > _MAX_NUMBER:
            raise TemplateError(f"the template uses a number above {_MAX_NUMBER:,} to build a value")
        if is_format and isinstance(value, str) and _LONG_WIDTH.search(value):
            raise TemplateError("the template formats with a huge width")


def _check_product(left: Any, right: Any) -> None:
    size = 1
    for value in (left, right):
        if isinstance(value, (str, list, tuple)):
            size *= len(value)
        elif isinstance(value, int):
            size *= max(1, value if value.bit_length() < 64 else 2**64)
    if size > _MAX_CHARS and any(isinstance(v, (str, list, tuple)) for v in (left, right)):
        raise TemplateError("the template multiplies a text to a huge size")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers' templates expect it: no HTML escapes, Unicode as it is."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)  # local time, as transformers has it


def _refusal(error: BaseException) -> RequestError:
    return RequestError(
        "messages",
        expected="messages that the model's chat template takes",
        found=_shorten(error),
        where="chat template",
    )


def _shorten(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
