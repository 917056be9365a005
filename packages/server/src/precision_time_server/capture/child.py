"""Run as a script by `process.py`: limits itself, then captures one uploaded model and writes JSON.

The file is anyone's. Memory, time and files are limited before anything is imported, the network goes with
it; rights, new processes, sockets and files outside the installation go before the upload is opened. Needs
only the standard library until then.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import struct
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_NOBODY = 65534
_MOST_FILE_BYTES = 2**24
_MOST_OPEN_FILES = 128
_NEW_NAMES, _NEW_IPC, _NEW_USER, _NEW_NET = 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x4000_0000
_DEATH_SIGNAL, _NO_NEW_PRIVILEGES, _NOT_DUMPABLE = 1, 38, 4
_LANDLOCK = 444
"""System calls from here on: make a set of rules, add one, restrict ourselves (the same on every machine)."""
_WRITE_FILE, _READ_FILE, _READ_ONLY = 1 << 1, 1 << 2, 1 << 2 | 1 << 3
_MAKE_SPECIAL = 1 << 0 | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11
"""Run files; make devices, sockets and pipes."""
_CAPABILITIES_VERSION = 0x2008_0522
_MAY_READ = 1 << 2
"""The capability to read files and search folders whoever owns them."""
_NEVER = (
    "socket.", "subprocess.", "os.system", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile",
    "pty.", "pickle.find_class", "ftplib.", "smtplib.", "imaplib.", "poplib.", "telnetlib.", "urllib.Request",
    "http.client.", "webbrowser.", "syslog.", "os.kill", "signal.pthread_kill", "ctypes.",
    "os.chown", "os.chmod", "os.link", "os.symlink", "os.rename", "os.truncate", "os.setxattr", "sqlite3.",
)  # fmt: skip
"""Audit events, or how they begin, that no capture needs."""
_READ = ("open", "os.listdir", "os.scandir", "os.walk", "glob.glob")
_WRITTEN = ("os.mkdir", "os.remove", "os.rmdir", "os.utime", "shutil.rmtree")
_OPEN_FILES = (
    "/dev/null", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo", "/proc/self/maps", "/proc/self/stat",
    "/proc/self/statm", "/proc/self/status",
)  # fmt: skip
_PROCESSORS = "/sys/devices/system/"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _limited(memory_bytes: int, time_s: int) -> dict[str, bool]:
    """Limits of the whole process; which of them the platform has."""
    try:
        import resource
    except ImportError:  # Windows
        return dict.fromkeys(("memory", "processor time", "file size", "open files", "no core"), False)
    wanted = {
        "memory": (resource.RLIMIT_AS, memory_bytes),
        "processor time": (resource.RLIMIT_CPU, time_s),
        "file size": (resource.RLIMIT_FSIZE, _MOST_FILE_BYTES),
        "open files": (resource.RLIMIT_NOFILE, _MOST_OPEN_FILES),
        "no core": (resource.RLIMIT_CORE, 0),
    }
    return {name: _set(resource, kind, most) for name, (kind, most) in wanted.items()}


def _set(resource: Any, kind: int, most: int) -> bool:
    with contextlib.suppress(ValueError, OSError):  # a lower limit is set already: it stays
        resource.setrlimit(kind, (most, most))
    found = resource.getrlimit(kind)[1]
    return bool(found != resource.RLIM_INFINITY and found <= most)


def _without_network(libc: Any) -> bool:
    """A network namespace without any interface that is up; in a user namespace where we are not root."""
    wanted = _NEW_NET | _NEW_IPC | _NEW_NAMES
    if os.geteuid() == 0:
        return bool(libc.unshare(wanted) == 0)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(wanted | _NEW_USER) != 0:
        return False
    with contextlib.suppress(OSError):  # without them files cannot be made, and nothing needs to be
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def _without_rights(libc: Any, roots: tuple[str, ...]) -> dict[str, bool]:
    """No rights of root, none to gain, no new process or thread."""
    found = {"not root": os.geteuid() != 0, "no capabilities": False, "no new processes": False}
    # Whoever the process becomes must be able to reach the packages, and the folder of the upload.
    reached = (*roots, *map(str, Path.cwd().parents))
    if os.geteuid() == 0 and all(_can_reach(_NOBODY, root) for root in reached):
        for name in (".", *os.listdir(".")):
            os.chown(name, _NOBODY, _NOBODY, follow_symlinks=False)
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        found["not root"] = True
    if libc is None:
        return found
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)  # again: forgotten with the change of user
    libc.prctl(_NOT_DUMPABLE, 0, 0, 0, 0)
    privileges = libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    # Root without capabilities is a user like others: in a container a folder above may be somebody else's.
    kept = 0 if found["not root"] or all(_can_reach(0, root) for root in reached) else _MAY_READ
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    dropped = libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept)) == 0
    found["no capabilities"] = dropped and not kept and privileges == 0
    import resource

    # The kernel exempts root of the first user namespace; the audit hook refuses in any case.
    found["no new processes"] = _set(resource, resource.RLIMIT_NPROC, 0) and found["not root"]
    return found


def _without_files(libc: Any, readable: tuple[str, ...], folder: str) -> bool:
    """Landlock: the kernel itself refuses files other than the installation's and those of our folder."""
    rules = libc.syscall(_LANDLOCK, None, ctypes.c_size_t(0), 1)
    if rules < 1:  # an older kernel, or switched off
        return False
    every = (1 << (13 if rules == 1 else 14 if rules == 2 else 15)) - 1
    # Networks are named by later versions only, which know 16 bytes of attributes.
    attributes = (ctypes.c_uint64 * 2)(every, 3 if rules >= 4 else 0)
    ruleset = libc.syscall(_LANDLOCK, attributes, ctypes.c_size_t(16 if rules >= 4 else 8), 0)
    if ruleset < 0:
        return False
    allowed = {**dict.fromkeys(readable, _READ_ONLY), folder: every & ~_MAKE_SPECIAL}
    allowed |= {name: _READ_FILE | _WRITE_FILE for name in ("/dev/null", "/dev/urandom")}
    allowed |= dict.fromkeys(("/proc/cpuinfo", "/proc/meminfo"), _READ_FILE)
    allowed |= dict.fromkeys((os.path.realpath("/proc/self"), "/sys/devices"), _READ_ONLY)
    for name, rights in allowed.items():
        if not os.path.exists(name):
            continue
        file = os.open(name, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", rights, file)
        libc.syscall(_LANDLOCK + 1, ruleset, 1, rule, 0)
        os.close(file)
    return bool(libc.syscall(_LANDLOCK + 2, ruleset, 0) == 0)


def _can_reach(user: int, path: str) -> bool:
    """Whether a user and the group of that number may read a folder, by the modes of it and those above."""
    whole = Path(path).resolve()
    return all(_can_read(user, folder.stat()) for folder in (whole, *whole.parents))


def _can_read(user: int, stat: os.stat_result) -> bool:
    shift = 6 if stat.st_uid == user else 3 if stat.st_gid == user else 0
    return stat.st_mode >> shift & 0o5 == 0o5


def _installed(own: list[str]) -> tuple[str, ...]:
    """Folders whose files the installation consists of."""
    paths = sysconfig.get_paths()
    places = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    packages = [place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")]
    libraries = [place for place in ("/usr/lib", "/lib", "/usr/share/zoneinfo") if os.path.isdir(place)]
    return tuple({os.path.realpath(place) for place in (*places, *packages, *own, *libraries)})


def _audit(roots: tuple[str, ...], folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    """A hook that refuses what no capture needs, whoever asks for it."""
    readable = tuple(f"{root.rstrip(os.sep)}{os.sep}" for root in (*roots, folder))
    realpath = os.path.realpath

    def may(path: Any, allowed: tuple[str, ...]) -> bool:
        if isinstance(path, int) or path is None:
            return True
        text = os.fsdecode(path)
        if text in _OPEN_FILES:
            return True
        return f"{realpath(text)}{os.sep}".startswith((*allowed, _PROCESSORS))

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event.startswith(_NEVER):
            raise PermissionError(f"{event} is not possible while an upload is captured")
        if event in _READ:
            writes = event == "open" and isinstance(given[2], int) and given[2] & _WRITING
            if not may(given[0], readable[-1:] if writes and given[0] != os.devnull else readable):
                raise PermissionError(f"{event} of {given[0]!r} is not possible while an upload is captured")
        elif event in _WRITTEN and not may(given[0], readable[-1:]):
            raise PermissionError(f"{event} of {given[0]!r} is not possible while an upload is captured")

    return hook


def _libc() -> Any:
    """The C library, where it is Linux'."""
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def main(
    packages: list[str], kind: str, name: str, memory_bytes: int, time_s: int, places: list[str], report: bool
) -> None:
    """Write `{"graph": ..., "layers": [...]}`, or `{"error": ...}`, to what was standard output.

    Args:
        packages: Folders of the packages that are imported.
        kind: "onnx", "pt2" or "hf-config".
        name: Name of the graph.
        memory_bytes: Of address space.
        time_s: Of processor time.
        places: Folders of installed packages besides our own.
        report: Write what the platform enforces instead.
    """
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print is no answer
    libc = _libc()
    held = _limited(memory_bytes, time_s)
    if libc is not None:
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    held["no network"] = libc is not None and _without_network(libc)
    sys.path[:0] = [str(Path(package).parent) for package in packages]
    sys.path += [place for place in places if place not in sys.path]
    answer: Mapping[str, Any]
    try:
        roots = _installed(packages)
        captures = importlib.import_module("precision_time_server.capture.kinds")
        capture = (lambda _: held) if report else captures.prepared(kind)
        held |= _without_rights(libc, roots)
        held["no other files"] = libc is not None and _without_files(libc, roots, os.getcwd())
        sys.addaudithook(_audit(roots, os.getcwd()))
        held["audit hook"] = True
        answer = capture(name)
    except ModuleNotFoundError as error:
        answer = {"error": str(error), "missing": error.name}
    except MemoryError:
        answer = {"error": "it needs more memory than a capture may have"}
    except RecursionError:
        answer = {"error": "it is nested too deeply"}
    except Exception as error:  # noqa: BLE001 - an upload may lead to any error
        answer = {"error": f"{type(error).__name__}: {error}"}
    text = json.dumps(answer).encode()
    while text:
        text = text[os.write(answers, text) :]
    os._exit(0)  # nothing of what was loaded runs any more


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
