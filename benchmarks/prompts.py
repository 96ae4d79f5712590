"""Prompts that benchmarks share, written for them."""

STORY = (
    "The old lighthouse keeper climbed the stairs every evening, counting each step as he had done for forty years. "
    "From the top he could see the whole bay, the fishing boats coming home, and far away the thin line where the sea "
    "met the sky. One autumn night the lamp would not light. He checked the oil, the wick and the glass, and found "
    "nothing wrong. Then he noticed that the wind had changed, and that somewhere below a bell was ringing. "
)

ARTICLE = (
    "The city council of Marlow voted on Tuesday to close Harbour Street to cars from next spring. The street, which "
    "runs from the railway station to the old harbour, is used by about nine thousand cars a day. The council expects "
    "that most of them will use the new ring road, which was opened last year at a cost of forty million pounds. Shop "
    "owners on Harbour Street are divided. Elena Price, who has run a book shop there for twenty years, said that she "
    "welcomed the decision because people who walk buy more books than people who drive. Thomas Reed, the owner of a "
    "furniture shop, said that his customers need to park near the door, and that he may have to move. The council "
    "will plant sixty trees along the street and build a new market hall at the harbour end. Work begins in March and "
    "is expected to take fourteen months. Buses will continue to use the street during the work."
)

CODE = '''def load_settings(path):
    """Read the settings file and return a dictionary with default values for missing keys."""
    settings = {"host": "localhost", "port": 8080, "timeout": 30, "retries": 3, "verbose": False}
    with open(path) as file:
        for line in file:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            key, value = line.split("=", 1)
            key = key.strip()
            value = value.strip()
            if key not in settings:
                raise KeyError(key)
            settings[key] = type(settings[key])(value)
    return settings
'''

SPECULATION: dict[str, tuple[str, ...]] = {
    "summary": (
        f"Summarise this article in three sentences, using its own words:\n\n{ARTICLE}",
        f"List the facts of this article as short bullet points:\n\n{ARTICLE}",
    ),
    "code": (
        f"Add a comment to every line of this function and print the whole function:\n\n```python\n{CODE}```",
        f'Rename the variable "settings" to "options" and print the whole function:\n\n```python\n{CODE}```',
    ),
    "copy": (
        f'Repeat this text word by word, but call the city "Oakford":\n\n{ARTICLE}',
        f"Correct the spelling mistakes of this text and print it:\n\n{STORY}",
    ),
    "question": (
        f"Read the article and answer: why does Elena Price welcome the decision?\n\n{ARTICLE}",
        "Explain in a few sentences why the sky is blue.",
    ),
    "chat": (
        "Give me five ideas for a weekend trip with two small children.",
        "Write a short poem about the sea in autumn.",
    ),
}
