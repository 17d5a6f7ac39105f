import struct
from pathlib import Path

import pytest

from mininet_scenarios.experiments.hydra_paper import fig9_plots

from .results import fig9a_result, fig9b_result


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


@pytest.mark.parametrize("name", ["fig9a", "both ways", "fig9b", "delay"])
def test_each_plot_is_a_picture_of_a_readable_size(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.png"
    if name == "fig9a":
        fig9_plots.plot_fig9a(fig9a_result(), path)
    elif name == "both ways":
        fig9_plots.plot_fig9a(fig9a_result(), path, made_first=fig9a_result(mbps=95.0))
    elif name == "fig9b":
        fig9_plots.plot_fig9b(fig9b_result(), path)
    else:
        fig9_plots.plot_delays(fig9a_result().changing, path)
    width, height = png_size(path)
    assert width >= 1000
    assert height >= 500
    assert path.stat().st_size > 10_000
