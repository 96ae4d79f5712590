"""Templates render as transformers renders them, and cannot escape, hang or fill the memory."""

import resource
from pathlib import Path

import pytest
from draftsmith.model_repo.contract.errors import ManifestError, RequestError
from draftsmith.model_repo.runtime.chat_template import ChatTemplate

from tests.tiny_tokenizer import CHAT_TEMPLATE

MESSAGES = [
    {"role": "system", "content": "Be <brief> & \u00fcseful."},
    {"role": "user", "content": "Hi \U0001f600"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "line\nbreak"},
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
# The shapes of the templates that SmolLM2, Llama 2 and Gemma ship, written anew, and what transformers adds to Jinja.
TEMPLATES = {
    "ChatML with a default": """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "turns must alternate": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}
    {%- set first = messages[0]['content'] | trim + '\n\n' -%}{% set rest = messages[1:] %}
{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}
{%- for m in rest -%}
    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('roles must alternate') }}{%- endif -%}
    {{ '[' ~ (first if loop.first else '') ~ m.content | trim ~ '/' ~ loop.index ~ ']' ~ (eos_token if loop.last) }}
{%- endfor %}""",
    "JSON, macros, namespaces, loop controls": """{% macro turn(m) %}
<{{ m.role | upper }}>{{ m | tojson }}{% endmacro %}
{% set seen = namespace(count=0) %}
{% for m in messages %}
    {% if m.role == 'assistant' %}{% continue %}{% endif %}
    {% set seen.count = seen.count + 1 %}
{{ turn(m) }}{{ {'n': seen.count, 'list': [1, 2]} | tojson(indent=2) }}
{% endfor %}{{ messages | length }} {{ ', '.join(messages | map(attribute='role') | list) }} {{ 'ab' * 3 }} {{ 7 % 4 }}
{{ '%s-%d' % ('x', 3) }}{% for a, b in {'k': 'v'}.items() %}{{ a }}={{ b }}{% endfor %}
{% generation %}x{% endgeneration %}""",
    "tiny": CHAT_TEMPLATE,
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_renders_as_transformers_does(name, add_generation_prompt):
    pytest.importorskip("transformers", reason="needs transformers as the oracle")
    from transformers.utils.chat_template_utils import render_jinja_template

    for messages in (MESSAGES, MESSAGES[1:], MESSAGES[1:2]):
        expected, _ = render_jinja_template(
            conversations=[messages],
            chat_template=TEMPLATES[name],
            add_generation_prompt=add_generation_prompt,
            **SPECIAL,
        )
        rendered = ChatTemplate(TEMPLATES[name], SPECIAL).render(messages, add_generation_prompt=add_generation_prompt)
        assert [rendered] == expected


def render(source, messages=None):
    return ChatTemplate(source, SPECIAL).render(messages or MESSAGES)


def test_what_a_template_refuses_is_said():
    with pytest.raises(RequestError, match="roles must alternate"):
        render(TEMPLATES["turns must alternate"], [{"role": "assistant", "content": "x"}])


def test_the_date_is_available():
    assert len(render("{{ strftime_now('%Y-%m-%d') }}")) == 10


ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ ''['__cl' ~ 'ass__']['__mro__'] }}",
    "{{ self.__init__.__globals__ }}",
    "{{ (messages | attr('__class__')).__mro__ }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "{% include '/etc/passwd' %}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "{{ messages.append({'role': 'user', 'content': 'changed'}) }}",
    "{{ draftsmith_budget.__class__ }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_a_template_cannot_leave_its_sandbox(source):
    try:
        text = render(source)
    except RequestError:
        return
    assert text in ("", "{}", "[]")  # an undefined value, nothing else


HANGS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999999) %}{% endfor %}",
    "{% set x = range(1000) | list %}{% for a in x %}{% for b in x %}{% for c in x %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% for m in messages recursive %}{{ loop(messages) }}{{ loop(messages) }}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for a in range(200) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for a in range(200) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for a in range(200) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{{ 'a' * 10000000000 }}",
    "{{ [1] * 10000000000 }}",
    "{{ ('a' * 10000000) ~ ('a' * 10000000) }}",
    "{{ 10 ** 10000000000 }}",
    "{{ '%9999999999d' % 1 }}",
    "{{ '%*d' % (9999999999, 1) }}",
    "{{ '%9999999999d' | format(1) }}",
    "{{ '{:9999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 9999999999) }}",
    "{{ 'a'.center(9999999999) }}",
    "{{ 'a' | center(9999999999) }}",
    "{{ 'a\nb' | indent(9999999999) }}",
    "{{ 'a'.zfill(9999999999) }}",
    "{% set x = 'a' * 9000000 %}{{ x.replace('a', x) }}",
    "{% set x = 'a' * 9000000 %}{{ x | replace('a', x) }}",
    "{% set x = 'a' * 9000000 %}{{ x.join(x) }}",
    "{% set x = 'a' * 9000000 %}{{ x | join(x) }}",
    "{{ [1] | tojson(indent=9999999999) }}",
    "{{ range(99999) | list | batch(1, 'x') | slice(3) | list }}{% for a in range(99999) %}{% endfor %}"
    "{% for a in range(99999) %}{% endfor %}{% for a in range(99999) %}{% endfor %}",
    "{{ lipsum(n=100000) }}",
    "{% set n = namespace(x='ab') %}{% for a in range(200) %}{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "{% set x = 'a' * 9000000 %}{{ x.translate({97: x}) }}",
    "{% set x = '\t' * 9000000 %}{{ x.expandtabs(9999) }}",
    "{% set x = 'a' * 9000000 %}{{ [x] | map('replace', 'a', x) | list }}",
    "{{ [1] | batch(9999999999, 'x') | list }}",
    "{% set n = namespace(x=10 ** 9999) %}{% for a in range(9999) %}{% set n.x = n.x * n.x %}{% endfor %}",
]


@pytest.fixture
def little_memory():
    """One GiB more than now: a template that gets through must not take the machine's memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**30, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, old)


@pytest.mark.parametrize("source", HANGS)
def test_a_template_cannot_run_or_grow_without_end(source, little_memory):
    with pytest.raises(RequestError) as caught:
        render(source)
    assert not isinstance(caught.value.__cause__, MemoryError)


def test_a_long_conversation_stays_within_the_budget():
    messages = [{"role": "user", "content": "x" * 1000}] * 500
    assert len(render(TEMPLATES["ChatML with a default"], messages)) > 500_000


@pytest.mark.parametrize("source", ["{% for %}", "{{ a | no_such_filter }}", "{% endif %}", "{{ " + "(" * 5000])
def test_a_broken_template_is_refused_when_it_is_loaded(source):
    with pytest.raises(ManifestError, match="a valid Jinja template"):
        ChatTemplate(source, {})


@pytest.mark.parametrize("source", ["{{ 1 / 0 }}", "{{ missing.name }}", "{{ messages['x']['y'] }}", "{{ 1 + 'a' }}"])
def test_a_template_that_fails_refuses_the_request(source):
    with pytest.raises(RequestError, match="chat template"):
        render(source)
