"""A hook of mkdocs: lists decisions in their order, and adds the files to which documents link."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK: Final = re.compile(r"(\]\()(\.\./[^)\s#]+)(\))")
_FOLDER: Final = "source"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    decisions = sorted(
        Path(config.docs_dir).glob("decisions/*.md"),
        key=lambda path: (path.name != "README.md", path.name),  # the index first
    )
    for part in config.nav or []:
        for entry in next(iter(part.values())):
            if isinstance(entry, dict) and "Decisions" in entry:
                entry["Decisions"] = [f"decisions/{path.name}" for path in decisions]
    return config


def _in_repository(page_uri: str, target: str) -> str | None:
    """Path of ``target`` from the repository's root; None for a target in docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page_uri), target))
    return None if path.startswith("docs/") else path


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    root = Path(config.docs_dir).parent
    for page in list(files.documentation_pages()):
        for _, target, _ in _LINK.findall(page.content_string):
            path = _in_repository(page.src_uri, target)
            uri = f"{_FOLDER}/{path}"
            if (
                path is not None
                and (root / path).is_file()
                and files.get_file_from_path(uri) is None
            ):
                files.append(File.generated(config, uri, content=(root / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs' names
    def lead(match: re.Match[str]) -> str:
        path = _in_repository(page.file.src_uri, match[2])
        if path is None:
            return match[0]
        up = posixpath.relpath(_FOLDER, posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{up}/{path}{match[3]}"

    return _LINK.sub(lead, markdown)
