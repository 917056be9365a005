"""Put the packages of the service's page into the repository, as its package-lock.json states them.

`npm ci` installs them into a temporary folder and refuses what differs from the lock's integrity. Their names
in imports become the files beside them, since browsers read these as they are. With --check nothing is
written, and what lies in the repository is compared.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parent.parent / "packages/server/src/precision_time_server/page"
FILES: Mapping[str, str] = {
    "preact": "preact/dist/preact.mjs",
    "preact/hooks": "preact/hooks/dist/hooks.mjs",
    "@preact/signals-core": "@preact/signals-core/dist/signals-core.mjs",
    "@preact/signals": "@preact/signals/dist/signals.mjs",
    "htm": "htm/dist/htm.mjs",
}
"""What is imported, and the file of the package that answers it."""
SUMS = "SHA256SUMS"
_IMPORT = re.compile(r'\bfrom"([^".][^"]*)"')
_SOURCE_MAP = re.compile(r"\n?//# sourceMappingURL=\S+\s*$")


def main() -> int:
    """Write or check page/vendor; 1 where it differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    wanted = vendored()
    folder = PAGE / "vendor"
    found = {path.name: path.read_bytes() for path in folder.glob("*")}
    if found == wanted:
        print(f"{folder.name}: {len(wanted)} files as the lock states them")
        return 0
    if check:
        different = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        print(f"{folder.name} differs: {', '.join(different)}. To fix: python tools/vendor_page.py.")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in wanted.items():
        (folder / name).write_bytes(content)
    print(f"{folder.name}: {len(wanted)} files, {sum(map(len, wanted.values())):,} bytes")
    return 0


def vendored() -> dict[str, bytes]:
    """The files of page/vendor by name, made from what npm installs."""
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PAGE / name, folder)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True)
        installed = Path(folder, "node_modules")
        for name, path in FILES.items():
            files[_file_of(name)] = _for_browsers((installed / path).read_text("utf-8")).encode()
            package = "/".join(name.split("/")[: 2 if name.startswith("@") else 1])
            files[f"LICENSE-{_slug(package)}"] = (installed / package / "LICENSE").read_bytes()
    sums = "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items())
    )
    return {**files, SUMS: sums.encode()}


def _for_browsers(text: str) -> str:
    """A module whose imports are files beside it.

    Raises:
        ValueError: If it imports what is not vendored.
    """
    strange = set(_IMPORT.findall(text)) - FILES.keys()
    if strange:
        raise ValueError(f"{', '.join(sorted(strange))} is imported too. To fix: add it to FILES.")
    return _SOURCE_MAP.sub("\n", _IMPORT.sub(lambda found: f'from"./{_file_of(found[1])}"', text))


def _file_of(name: str) -> str:
    return f"{_slug(name)}.js"


def _slug(name: str) -> str:
    return name.removeprefix("@").replace("/", "-")


if __name__ == "__main__":
    sys.exit(main())
