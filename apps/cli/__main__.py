"""``python -m apps.cli``: the ``hydra`` command without an installation."""

from apps.cli import main

main()
