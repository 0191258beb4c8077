"""Files outside of docs/ that the site shows: results, changelog, examples, and links to them.

A link in docs/ is relative to the file, as in a checkout (`../results/overall.md`); on the site all
these files stand beside the pages.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = (
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "SECURITY.md",
    "examples/*.py", "results/*", "tutorials/*",
)  # fmt: skip


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages that mkdocs.yml does not name into a section of their own, so that none is lost."""
    folders = (ROOT / "docs", "docs"), (ROOT / "results", ".")
    pages = [
        path.relative_to(ROOT / base).as_posix()
        for folder, base in folders
        for path in sorted(folder.glob("*.md"))
    ]
    known = set(named(config.nav))
    if more := [page for page in pages if page not in known]:
        config.nav.append({"More": more})
    return config


def named(nav: object) -> list[str]:
    """The pages that a navigation names, at any depth.

    Example:
        >>> named([{"Start": "index.md"}, {"More": ["a.md", {"B": "b.md"}]}])
        ['index.md', 'a.md', 'b.md']
    """
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in named(part)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of docs/ to the site."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show tutorials as text and code, and let links find their files where the site has them."""
    included = r"^```python title=\"(tutorials/\w+\.py)\"\n--8<--\n\1\n--8<--\n```$"
    markdown = re.sub(included, lambda m: cells((ROOT / m[1]).read_text()), markdown, flags=re.M)
    return site_links(markdown, page.file.src_uri)


def cells(text: str) -> str:
    r"""A file in the percent format as Markdown, its headings one level down, without its title.

    Example:
        >>> print(cells("# %% [markdown]\n# # Title\n# ## One\n# Text.\n# %%\nx = 1\n"))
        ### One
        Text.
        <BLANKLINE>
        ```python
        x = 1
        ```
    """
    parts = []
    for cell in re.split(r"^# %%", text, flags=re.M)[1:]:
        kind, _, body = cell.partition("\n")
        if "[markdown]" in kind:
            body = re.sub(r"^# ?", "", body, flags=re.M)
            body = re.sub(r"^# .*\n", "", body, flags=re.M)
            parts.append(re.sub(r"^##", "###", body, flags=re.M))
        else:
            parts.append(f"```python\n{body.strip()}\n```")
    return "\n\n".join(part.strip() for part in parts)


def site_links(markdown: str, name: str) -> str:
    """The text of a page with its links as the site needs them.

    Example:
        >>> site_links("[table](../results/overall.md), [own](../examples)", "reproduce.md")
        '[table](results/overall.md), [own](own_parts.md)'
        >>> site_links("[serve](docs/serve.md)", "CHANGELOG.md")
        '[serve](serve.md)'
    """
    markdown = re.sub(r"\]\((?:\.\./)?examples/?\)", "](own_parts.md)", markdown)
    markdown = re.sub(r"\]\((?:\.\./)?tutorials/?\)", "](tutorials.md)", markdown)
    outside = name.split("/")[0] in {pattern.split("/")[0] for pattern in OUTSIDE}
    return markdown.replace("](docs/" if outside else "](../", "](")
