from pathlib import Path

CONFIGS = Path(__file__).parents[3] / "configs"
DEMO = CONFIGS / "demo.yaml"
