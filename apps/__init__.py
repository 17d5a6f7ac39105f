import sys

# httpx imports its own command, with the packages for colours, and works without: 5 % of a
# controller's start, and a fifth of the start of a `hydra` command that asks a controller.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
