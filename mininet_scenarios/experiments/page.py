"""The report: one self-contained HTML page, plots included."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from mininet_scenarios.experiments.judgement import Verdict, counts
from mininet_scenarios.stage.stage import ScenarioError


def write_page(
    found: Sequence[dict[str, Any]], verdicts: Sequence[Verdict], results: Path, path: Path
) -> None:
    """Write the report of :func:`~mininet_scenarios.experiments.runner.read_results`.

    Raises ScenarioError if a plot is missing or the page can't be written.
    """
    environment = Environment(
        loader=PackageLoader("mininet_scenarios.experiments", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    experiments = [
        {
            **experiment,
            "images": [_image(results / experiment["name"] / plot) for plot in experiment["plots"]],
        }
        for experiment in found
    ]
    page = environment.get_template("report.html.j2").render(
        experiments=experiments, verdicts=verdicts, counts=counts(verdicts)
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path} can't be written: {error.strerror}") from error


def _image(path: Path) -> dict[str, str]:
    try:
        data = base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError as error:
        raise ScenarioError(f"{path} can't be read: {error.strerror}; run it again") from error
    return {"name": path.stem, "source": f"data:image/png;base64,{data}"}
