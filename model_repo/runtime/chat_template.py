"""Chat messages to a prompt: renders a model's Jinja template in a sandbox, within a budget.

A template comes with a checkpoint, so it is not trusted: it gets no attributes beyond plain data (Jinja's sandbox), and
every loop turn, call and built string is paid from a budget, so that it cannot run for ever or fill the memory.
"""

import datetime
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jinja2
from draftsmith.model_repo.contract.errors import ManifestError, RequestError
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .template_budget import Budget, TemplateError, check_call, check_operator

_BUDGET = "draftsmith_budget"
_BOUNDED_LOOP = "draftsmith_bounded_loop"
_BOUNDED_VALUE = "draftsmith_bounded_value"


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with every call and every growing operator paid from the context's budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
        del self.globals["lipsum"]
        self.filters["tojson"] = _to_json
        self.filters = {name: _guard(name, function) for name, function in self.filters.items()}
        self.filters[_BOUNDED_LOOP] = jinja2.pass_context(_bound_loop)
        self.filters[_BOUNDED_VALUE] = jinja2.pass_context(_bound_value)
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = _find_budget(context)
        budget.pay_turn()
        method = getattr(obj, "__wrapped__", obj)  # the sandbox wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, (str, bytes)):
            check_call(getattr(method, "__name__", ""), owner, args, kwargs)
        result = super().call(context, obj, *args, **kwargs)
        budget.pay_value(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        check_operator(operator, left, right)
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
    """Route every loop's items, and every value that is written, joined by ``~`` or filtered, through the budget."""
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = _filter(loop.iter, _BOUNDED_LOOP)
    for owner in list(tree.find_all(nodes.Node)):
        for name, value in list(owner.iter_fields()):
            is_written = isinstance(owner, nodes.Output)
            if isinstance(value, list):
                setattr(owner, name, [_bound(item, is_written=is_written) for item in value])
            else:
                setattr(owner, name, _bound(value, is_written=False))


def _bound(value: Any, *, is_written: bool) -> Any:
    if isinstance(value, nodes.Filter):
        grows = value.node is not None and value.name not in (_BOUNDED_LOOP, _BOUNDED_VALUE)
    else:
        grows = isinstance(value, nodes.Concat) or (is_written and not isinstance(value, nodes.TemplateData))
    return _filter(value, _BOUNDED_VALUE) if grows else value


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


def _bound_value(context: Context, value: Any) -> Any:
    budget = _find_budget(context)
    budget.pay_turn()
    budget.pay_value(value)
    return value


def _guard(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that refuses what would be huge; Jinja's marks on the function (what it is passed) are kept."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check_call(name, args[first] if len(args) > first else None, args[first + 1 :], kwargs)
        return function(*args, **kwargs)

    return call


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
