"""The pages that are shipped: one task a page, in Markdown, each with its title on the first line."""

from importlib.resources import files


def topics() -> dict[str, str]:
    """The title of every page, by the page's name, in alphabetical order."""
    names = sorted(file.name for file in files(__name__).iterdir() if file.name.endswith(".md"))
    return {name: page(name).partition("\n")[0].removeprefix("# ") for name in (n.removesuffix(".md") for n in names)}


def page(name: str) -> str:
    """The text of a page. Raises FileNotFoundError for a name that ``topics`` does not have."""
    return files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8")
