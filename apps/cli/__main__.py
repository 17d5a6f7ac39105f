"""``python -m apps.cli``: the ``hydra`` command without installing it."""

from apps.cli import main

main()
