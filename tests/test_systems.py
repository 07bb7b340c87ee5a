"""Features of one operating system are used only after a check of the system; Windows locks, on an emulation."""

import ast
import importlib.util
import os
import re
import sys
import types
from pathlib import Path

import pytest

from beamwood import system

SOURCE = Path(system.__file__).parent
# Names that Python's documentation marks as available only on some systems.
OF_PYTHON = "fcntl resource pwd grp termios pty tty msvcrt winreg syslog readline curses"
OF_OS = (
    "fork forkpty register_at_fork sched_getaffinity sched_setaffinity getuid geteuid getgid getegid setsid killpg "
    "getpgid pread pwrite preadv O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NONBLOCK mkfifo mknod statvfs fstatvfs sendfile "
    "memfd_create getloadavg uname chown fchown nice pipe2 WNOHANG wait3 wait4 posix_fadvise posix_fallocate "
    "posix_spawn fdatasync sync copy_file_range splice startfile"
)
OF_SIGNAL = (
    "SIGKILL SIGHUP SIGALRM SIGUSR1 SIGUSR2 SIGPIPE SIGQUIT SIGCHLD SIGSTOP SIGCONT SIGXCPU alarm setitimer "
    "pthread_sigmask pthread_kill sigwait pause CTRL_C_EVENT"
)
MODULES = {*OF_PYTHON.split()}
ATTRIBUTES = {
    "os": set(OF_OS.split()),
    "signal": set(OF_SIGNAL.split()),
    "socket": {"AF_UNIX", "SO_REUSEPORT", "socketpair"},
}
METHODS = {"add_signal_handler", "renameat2"}
TEXT = re.compile(r"^/(proc|dev|sys)(/|$)|\bflock\b|renameat2")
# An import that may fail is a check by itself.
MISSES = ("ImportError", "ModuleNotFoundError", "AttributeError", "NotImplementedError")


def own_of_a_system(node):
    """The name of a feature that not every system has, None for other code."""
    if isinstance(node, ast.Import):
        return next((each.name for each in node.names if each.name.split(".")[0] in MODULES), None)
    if isinstance(node, ast.ImportFrom):
        known = ATTRIBUTES.get(node.module, set())
        found = [each.name for each in node.names if each.name in known]
        return node.module if node.module in MODULES else next(iter(found), None)
    if isinstance(node, ast.Attribute):
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        return node.attr if node.attr in ATTRIBUTES.get(owner, METHODS) else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and TEXT.search(node.value):
        return node.value
    return None


def asks(node):
    """Whether a statement checks the system, or catches the error of a missing feature."""
    if isinstance(node, ast.If | ast.IfExp):
        return "sys.platform" in ast.unparse(node.test)
    if isinstance(node, ast.Try):
        return any(
            handler.type is not None and any(m in ast.unparse(handler.type) for m in MISSES)
            for handler in node.handlers
        )
    return False


def unasked(tree):
    """Lines and names of system-specific features without a check."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    texts = {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        name = own_of_a_system(node)
        if name is None or node in texts or is_asked(node, parents):
            continue
        yield node.lineno, name


def is_asked(node, parents):
    while node in parents:
        child, node = node, parents[node]
        if asks(node) and not (isinstance(node, ast.If | ast.IfExp) and child is node.test):
            return True
        if isinstance(node, ast.FunctionDef):
            before = node.body[: node.body.index(child)] if child in node.body else []
            if any(asks(each) and isinstance(each.body[-1], ast.Return | ast.Raise) for each in before):
                return True
    return False


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_system_specific_features_are_checked_for(path):
    assert [*unasked(ast.parse(path.read_text()))] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import fcntl", "fcntl"),
        ("from os import fork", "fork"),
        ("import os\ndef f():\n    return len(os.sched_getaffinity(0))", "sched_getaffinity"),
        ("import signal\nx = signal.SIGHUP if ready else signal.SIGTERM", "SIGHUP"),
        ("open('/proc/self/status')", "/proc/self/status"),
        ("library.renameat2(1)", "renameat2"),
        ("loop.add_signal_handler(2, stop)", "add_signal_handler"),
        ("if sys.platform == 'win32':\n    x = 1\nos.fork()", "fork"),
        ("try:\n    import fcntl\nexcept ValueError:\n    pass", "fcntl"),
        ("def f():\n    os.fork()\n    if sys.platform == 'win32':\n        return", "fork"),
    ],
)
def test_missing_checks_are_found(text, found):
    assert [name for _, name in unasked(ast.parse(text))] == [found]


@pytest.mark.parametrize(
    "text",
    [
        "if sys.platform == 'win32':\n    import msvcrt\nelse:\n    import fcntl",
        "try:\n    import resource\nexcept ImportError:\n    resource = None",
        "def f():\n    if sys.platform != 'linux':\n        return None\n    return os.pread(1, 2, 3)",
        "n = len(os.sched_getaffinity(0)) if sys.platform == 'linux' else 1",
        "'''Reads /proc/self as flock does.'''",
        "self.nice = os.getpid()",
    ],
)
def test_checked_features_are_accepted(text):
    assert [*unasked(ast.parse(text))] == []


# Locks


@pytest.fixture(params=["own", "win32"])
def ways(request, monkeypatch):
    """The module on this system, and as on Windows with an emulation of its locks."""
    if request.param == "own":
        return system
    fcntl = pytest.importorskip("fcntl")

    def locking(descriptor, mode, count):
        assert (os.lseek(descriptor, 0, os.SEEK_CUR), count) == (2**30, 1)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if mode == "wait" else fcntl.LOCK_NB))
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

    twin = types.SimpleNamespace(LK_LOCK="wait", LK_NBLCK="at once", locking=locking)
    monkeypatch.setitem(sys.modules, "msvcrt", twin)
    monkeypatch.setattr(sys, "platform", "win32")
    spec = importlib.util.spec_from_file_location("system_of_windows", system.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_folder_can_be_locked_once(ways, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(FileNotFoundError):
        ways.hold_path(folder)
    folder.mkdir()
    for _ in range(2):
        held = ways.hold_path(folder)
        with pytest.raises(BlockingIOError):
            ways.hold_path(folder)
        with pytest.raises(BlockingIOError):
            ways.hold_path(folder, unlocked=True)
        held.close()
    ways.hold_path(folder, wait=True).close()
    assert [*tmp_path.iterdir()] == [folder]
    assert [*folder.iterdir()] == []


def test_a_file_can_be_locked_once_and_still_be_read(ways, tmp_path):
    path = tmp_path / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    ways.hold_file(first)
    os.lseek(first, 0, os.SEEK_SET)
    os.write(first, b"17")
    with pytest.raises(BlockingIOError):
        ways.hold_file(second)
    os.lseek(second, 0, os.SEEK_SET)
    assert os.read(second, 20) == b"17"
    os.close(first)
    ways.hold_file(second)
    os.close(second)


def test_disk_space_and_processors(ways, tmp_path):
    (tmp_path / "file").write_text("x")
    ways.sync(tmp_path / "file")
    ways.sync(tmp_path)
    assert 1 <= ways.processors() <= os.cpu_count()
