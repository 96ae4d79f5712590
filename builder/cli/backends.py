"""``build-engine backends``: what is installed, in which version, and how to get the rest."""

from .output import JsonOption, print_json, print_table


def list_backends(json: JsonOption = False) -> None:
    """List engine backends and servers: installed or not, versions, how to install what is missing.

    Example: [cyan]build-engine backends[/cyan]
    """
    from ..installed import list_installed

    rows = list_installed()
    if json:
        print_json(rows)
        return
    print_table(
        ["name", "kind", "available", "version", "note"],
        [[r["name"], r["kind"], "yes" if r["available"] else "no", r["version"] or "-", r["note"] or ""] for r in rows],
    )
