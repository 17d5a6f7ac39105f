"""Find dependences of tests on the load of the machine, in the syntax tree of a file.

Intended times have a reason: a comment ``# timed: REASON`` on a line of the statement, on the line
above, or on the line of the function's ``def``.
"""

from __future__ import annotations

import ast
import io
import operator
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

LEAST_S: Final = 60.0
"""A busy machine misses shorter time-outs."""
_REASON: Final = re.compile(r"# timed: \w+\W+\w+")
_KEYWORD: Final = re.compile(r"^(ready_|meet_|attempt_)?(timeout|patience)(_s|_ms)?$")
_WAITERS: Final[Mapping[str, int]] = {
    "wait_until": 1,
    "wait": 0,
    "wait_for": 1,
    "join": 0,
    "result": 0,
    "communicate": 1,
    "settimeout": 0,
    "create_connection": 1,
    "set_default_timeout": 0,
    "optical_switch": 1,
    "tor_switch": 1,
    "select": 3,
    "Deadline": 0,
    "Call": 0,
    "accept": 0,
    "finish": 0,
}
"""Function or method -> the position of its time-out."""
_ALONE: Final = frozenset(
    {"wait", "join", "result", "settimeout", "set_default_timeout", "accept", "finish"}
)
"""Of these, only calls with the time-out as the only argument."""
_MILLISECONDS: Final = frozenset({"set_default_timeout", "wait_for_timeout", "expect"})
_PLAYWRIGHT: Final = re.compile(r"^(to_|not_to_|wait_for_|set_options$|goto$|click$|expect_)")
_CLOCKS: Final = frozenset({"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns"})
_COUNTERS: Final = _CLOCKS - {"time"}
_SLEEPS: Final = frozenset({"sleep", "wait_for_timeout"})
_LISTENERS: Final = frozenset(
    {"bind", "create_server", "start_server", "serve", "listen", "RestServer", "HTTPServer",
     "ThreadingHTTPServer", "TCPServer", "run_simple"}
)  # fmt: skip
_HTTPX: Final = frozenset(
    {"get", "post", "put", "patch", "delete", "request", "stream", "Client", "AsyncClient"}
)
_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "::1", "::", ""})
_LONG: Final = frozenset({"HANGS_S", "PATIENCE_S"})
"""Names of tests.waiting."""
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_SHELL_SLEEPS: Final = re.compile(r"\bsleep ([0-9.]+)")
_PREFER: Final = re.compile(r"^wait=([0-9]+)$")
"""1 is for a test that waits for the full time-out."""
_OPTION: Final = re.compile(r"^--(?:connect-|max-)?time(?:out)?=([0-9.]+)$")


@dataclass(frozen=True)
class Finding:
    line: int
    words: str


@dataclass
class _Finder:
    tree: ast.Module
    reasons: set[int]
    reads_clock: bool
    constants: dict[str, float] = field(default_factory=dict)
    timed: set[str] = field(default_factory=set)
    """Names that hold a measured time, in the present function."""
    nodes: dict[ast.stmt, list[ast.AST]] = field(default_factory=dict)
    """All nodes under each statement of the file."""
    quiet: bool = False
    """True if the present function runs while no other test runs."""
    timers: set[str] = field(default_factory=set)
    """Functions that return a measured time."""

    def findings(self) -> Iterator[Finding]:
        self._learn()
        marks = _quiet_marks(self.tree)
        whole_file = "pytestmark" in marks
        for node in self.tree.body:
            self._learn_times(node)
            self.quiet = whole_file or _is_quiet(node, marks)
            yield from self._visit(node, in_loop=False)

    def _learn(self) -> None:
        for node in self.tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                value = self.number(node.value)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if value is not None and isinstance(targets[0], ast.Name):
                    self.constants[targets[0].id] = value
        if not self.reads_clock:
            return
        self.nodes = {top: list(ast.walk(top)) for top in self.tree.body}
        for _ in range(2):  # a function may return another function's measured time
            for top in self.tree.body:
                self._learn_times(top)
                self.timers.update(
                    node.name
                    for node in self.nodes[top]
                    if isinstance(node, ast.FunctionDef) and self._returns_time(node)
                )

    def _returns_time(self, function: ast.FunctionDef) -> bool:
        return any(
            isinstance(node, ast.Return)
            and node.value is not None
            and self._is_measured(node.value)
            for node in ast.walk(function)
        )

    def _learn_times(self, top: ast.stmt) -> None:
        """Collect the names of a top-level function or class that hold a measured time."""
        if not self.reads_clock:
            return
        self.timed = set(self.timers)
        before = -1
        while len(self.timed) > before:
            before = len(self.timed)
            for node in self.nodes[top]:
                self._learn_time(node)

    def _learn_time(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign) and self._is_measured(node.value):
            self.timed.update(
                name.id
                for target in node.targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            )
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and isinstance(node.func.value, ast.Name)
            and any(self._is_measured(argument) for argument in node.args)
        ):
            self.timed.add(node.func.value.id)

    def _is_measured(self, expression: ast.expr) -> bool:
        """True if the value contains a difference of two readings of a clock."""
        return any(map(self._measures, ast.walk(expression)))

    def _measures(self, node: ast.AST) -> bool:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            return (
                _is_call(node.left, _COUNTERS)
                or (_is_call(node.left, {"time"}) and not isinstance(node.right, ast.Constant))
                or (_is_time(node.left) and _is_time(node.right))
            )
        if isinstance(node, ast.Attribute):
            return node.attr in self.timers
        return isinstance(node, ast.Name) and node.id in self.timed

    def _is_long(self, bound: ast.expr) -> bool:
        value = self.number(bound)
        if value is not None:
            return value >= LEAST_S
        return isinstance(bound, ast.Name) and bound.id in _LONG

    def number(self, node: ast.expr) -> float | None:
        """The value of a number, or of a calculation with numbers and the file's constants."""
        value: float | None = None
        if isinstance(node, ast.Constant):
            if isinstance(node.value, int | float) and not isinstance(node.value, bool):
                value = float(node.value)
        elif isinstance(node, ast.Name):
            value = self.constants.get(node.id)
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = self.number(node.left), self.number(node.right)
            if left is not None and right is not None:
                value = _OPERATORS[type(node.op)](left, right)
        return value

    def _visit(self, node: ast.AST, *, in_loop: bool) -> Iterator[Finding]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            if not isinstance(node, ast.Lambda | ast.ClassDef) and node.lineno in self.reasons:
                return
            in_loop = False
        if isinstance(node, ast.stmt) and not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ):
            first, last = node.lineno, _last_line(node)
            if self.reasons.intersection(range(first - 1, last + 1)):
                yield from self._nested(node, in_loop=in_loop)
                return
        in_loop = in_loop or isinstance(node, ast.While)
        yield from self._of(node, in_loop=in_loop)
        for child in ast.iter_child_nodes(node):
            yield from self._visit(child, in_loop=in_loop)

    def _nested(self, node: ast.stmt, *, in_loop: bool) -> Iterator[Finding]:
        """Statements inside an excused statement: its reason is for its own lines only."""
        in_loop = in_loop or isinstance(node, ast.While)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield from self._visit(child, in_loop=in_loop)

    def _of(self, node: ast.AST, *, in_loop: bool) -> Iterator[Finding]:
        match node:
            case ast.Call():
                yield from self._call(node, in_loop=in_loop)
            case ast.Assert():
                for inner in ast.walk(node.test):
                    if isinstance(inner, ast.Compare):
                        yield from self._compare(inner)
            case ast.BinOp(op=ast.Add()):
                yield from self._moment(node)
            case ast.Constant(value=str(text)):
                yield from _in_text(text, node.lineno)
            case ast.arguments():
                yield from self._defaults(node)
            case ast.Dict():
                yield from self._items(node)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                if _KEYWORD.search(name):
                    yield from self._short(name, value, name.endswith("_ms"))

    def _moment(self, node: ast.BinOp) -> Iterator[Finding]:
        """A moment in the near future, by a clock."""
        seconds = self.number(node.right)
        if seconds is None or seconds >= LEAST_S:
            return
        if _is_call(node.left, _COUNTERS):
            yield Finding(node.lineno, f"deadline in {seconds:g} s: use wait_until")
        elif _is_call(node.left, {"time"}):
            words = f"a moment in {seconds:g} s, which may have passed: put the clock forward"
            yield Finding(node.lineno, words)

    def _items(self, node: ast.Dict) -> Iterator[Finding]:
        """Time-outs in options of devices, and in headers of requests to REST."""
        for key, value in zip(node.keys, node.values, strict=True):
            match key, value:
                case ast.Constant(value="timeout_s" as name), _:
                    yield from self._short(repr(name), value, milliseconds=False)
                case ast.Constant(value="Prefer"), ast.Constant(value=str(preference)):
                    asked = _PREFER.match(preference)
                    if asked and 1 < float(asked[1]) < LEAST_S:
                        words = f"REST waits for {asked[1]} s at most: use wait=60"
                        yield Finding(value.lineno, words)

    def _defaults(self, arguments: ast.arguments) -> Iterator[Finding]:
        positional = [*arguments.posonlyargs, *arguments.args]
        given = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
        pairs = [*zip(positional, given, strict=True)]
        pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        for argument, default in pairs:
            if default is not None and _KEYWORD.search(argument.arg):
                yield from self._short(argument.arg, default, argument.arg.endswith("_ms"))

    def _call(self, node: ast.Call, *, in_loop: bool) -> Iterator[Finding]:
        name = _name(node.func)
        if name in _SLEEPS:
            seconds = self.number(node.args[0]) if node.args else None
            if seconds and not in_loop:
                yield Finding(node.lineno, f"sleeps for {seconds:g}: wait for what is awaited")
            return
        if name == "Timer" and node.args and (seconds := self.number(node.args[0])) is not None:
            if seconds < LEAST_S:
                words = f"acts after {seconds:g} s, whatever has happened by then: use once"
                yield Finding(node.lineno, words)
            return
        if name == "wait" and len(node.args) == 2 and isinstance(node.args[0], ast.List):
            yield from self._short(name, node.args[1], milliseconds=False)
        browser = bool(_PLAYWRIGHT.match(name)) or name in _MILLISECONDS
        position = _WAITERS.get(name)
        alone = name not in _ALONE or (isinstance(node.func, ast.Attribute) and len(node.args) == 1)
        if position is not None and position < len(node.args) and alone and not in_loop:
            yield from self._short(name, node.args[position], browser)
        for keyword in node.keywords:
            if keyword.arg and _KEYWORD.search(keyword.arg):
                milliseconds = browser or keyword.arg.endswith("_ms")
                yield from self._short(f"{name}({keyword.arg}=)", keyword.value, milliseconds)
        if _is_httpx(node.func) and not any(one.arg in {"timeout", None} for one in node.keywords):
            yield Finding(node.lineno, f"httpx.{name}: gives up after 5 s: use plain_http")
        if name in _LISTENERS:
            yield from _fixed_port(node)

    def _short(self, words: str, node: ast.expr, milliseconds: bool) -> Iterator[Finding]:
        value = self.number(node)
        if value is None:
            return
        seconds = value / 1000 if milliseconds else value
        if 0 < seconds < LEAST_S:
            yield Finding(node.lineno, f"{words}: time-out of {seconds:g} s: use PATIENCE_S")

    def _compare(self, node: ast.Compare) -> Iterator[Finding]:
        if not self.reads_clock:
            return
        operands = [node.left, *node.comparators]
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            lesser = left if isinstance(op, ast.Lt | ast.LtE) else right
            if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and self._is_measured(lesser):
                greater = right if lesser is left else left
                if not (self.quiet or self._is_measured(greater) or self._is_long(greater)):
                    yield Finding(node.lineno, "bound on measured time")


def findings(source: str) -> list[Finding]:
    """Dependences of the tests in ``source`` on the load of the machine. Raises SyntaxError."""
    reasons = set[int]()
    if "# timed:" in source:
        reasons = {
            token.start[0]
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT and _REASON.match(token.string)
        }
    reads_clock = any(f"{name}()" in source for name in _CLOCKS) or "_s - " in source
    return list(_Finder(ast.parse(source), reasons, reads_clock).findings())


def files(folder: Path) -> list[Path]:
    """Python files under ``folder``, in order, or the file itself."""
    if folder.is_file():
        return [folder]
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def _in_text(text: str, line: int) -> Iterator[Finding]:
    """The value of a command's or an option's text."""
    asleep = _SHELL_SLEEPS.search(text)
    if asleep and LEAST_S / 600 < float(asleep[1]) < LEAST_S * 10:
        words = f"a program sleeps for {asleep[1]}: let it wait for a file, or for 600"
        yield Finding(line, words)
    option = _OPTION.match(text)
    if option and float(option[1]) < LEAST_S:
        yield Finding(line, f"time-out of {option[1]} s in an option")


def _last_line(node: ast.stmt) -> int:
    """The last line of a statement, or of a compound statement's head."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
        return max(node.lineno, body[0].lineno - 1)
    if isinstance(node, ast.Match):
        return node.subject.end_lineno or node.lineno
    return node.end_lineno or node.lineno


def _is_call(node: ast.expr, names: frozenset[str] | set[str]) -> bool:
    return isinstance(node, ast.Call) and not node.args and _name(node.func) in names


def _is_time(node: ast.expr) -> bool:
    """True if a value is a time, by its name."""
    if isinstance(node, ast.Call):
        return _name(node.func).endswith("_s") or _name(node.func) in _COUNTERS
    return isinstance(node, ast.Name | ast.Attribute) and _name(node).endswith("_s")


def _name(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _quiet_marks(tree: ast.Module) -> set[str]:
    """Names of the file for ``pytest.mark.quiet(…)``, alone or in a list."""
    return {
        node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and _names_quiet(node.value, set())
    }


def _is_quiet(node: ast.stmt, marks: set[str]) -> bool:
    """True if a test is marked ``quiet``."""
    return isinstance(node, ast.FunctionDef) and any(
        _names_quiet(decorator, marks) for decorator in node.decorator_list
    )


def _names_quiet(expression: ast.expr, marks: set[str]) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "quiet")
        or (isinstance(node, ast.Name) and node.id in marks)
        for node in ast.walk(expression)
    )


def _is_httpx(function: ast.expr) -> bool:
    """True for a call of httpx that waits for an answer."""
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "httpx"
        and function.attr in _HTTPX
    )


def _fixed_port(node: ast.Call) -> Iterator[Finding]:
    arguments: list[ast.expr] = []
    for argument in node.args:
        arguments += argument.elts if isinstance(argument, ast.Tuple) else [argument]
    values = [one.value if isinstance(one, ast.Constant) else None for one in arguments]
    for host, port in pairwise(values):
        if host in _HOSTS and isinstance(port, int) and not isinstance(port, bool) and port:
            yield Finding(node.lineno, f"fixed port {port}: use 0, or free_port")
