"""Bring the peers of the benchmark into build/peers/, each at its pinned commit, with its environment.

    python benchmarks/predictors/fetch.py [NAME ...]

Without it, or for those that cannot be fetched, the answers recorded in recorded/ are read.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from predictors.contract import PEERS  # noqa: E402


def listed() -> dict[str, Any]:
    """What `peers.toml` says."""
    return tomllib.loads((HERE / "peers.toml").read_text(encoding="utf-8"))


def commit_of(folder: Path) -> str:
    """The commit that is checked out in a folder, empty where there is none or something was changed."""
    if not (folder / ".git").exists():
        return ""
    asked = ["git", "-C", str(folder)]
    changed = subprocess.run(
        [*asked, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False
    )
    head = subprocess.run([*asked, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return "" if changed.stdout.strip() or changed.returncode else head.stdout.strip()


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment."""
    return PEERS / f"{name}-env" / "bin" / "python"


def fetch(name: str, peer: Mapping[str, Any]) -> None:
    """Check a peer out and install what it imports.

    Raises:
        subprocess.CalledProcessError: If there is no network, or no such commit.
    """
    folder = PEERS / name
    if commit_of(folder) != peer["commit"]:
        if not folder.exists():
            subprocess.run(["git", "clone", "--quiet", peer["repository"], str(folder)], check=True)
        subprocess.run(["git", "-C", str(folder), "checkout", "--quiet", peer["commit"]], check=True)
    if not python_of(name).exists():
        venv.create(python_of(name).parents[1], with_pip=True)
    install = [str(python_of(name)), "-m", "pip", "install", "--quiet", *peer["requires"]]
    subprocess.run(install, check=True)


def main() -> None:
    """Fetch all, or those named; one that fails leaves the others."""
    peers = {name: peer for name, peer in listed().items() if name != "not_run"}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(peers))
    for name in parser.parse_args().names or peers:
        try:
            fetch(name, peers[name])
            print(f"{name}: {peers[name]['commit'][:7]} in {PEERS / name}")
        except subprocess.CalledProcessError as error:
            print(f"{name}: not fetched ({error}); its recorded answers are read")


if __name__ == "__main__":
    main()
