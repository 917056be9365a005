"""`job_submit.lua`: the plugin of slurmctld that asks a service for time limits, with its settings."""

from __future__ import annotations

import re
from importlib.resources import files

from precision_time import __version__
from precision_time.errors import ConfigError, shown

from .limits import MARGIN, QUANTILE, check_quantile

URL = "http://127.0.0.1:8400"
TIMEOUT_S = 2.0
PAUSE_S = 60
_LONGEST_S = 30.0
_URL = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?(?:/[A-Za-z0-9._~/-]*)?")
_PATH = re.compile(r"/[A-Za-z0-9._/-]+")


def job_submit_lua(
    url: str = URL,
    *,
    quantile: float = QUANTILE,
    margin: float = MARGIN,
    timeout_s: float = TIMEOUT_S,
    pause_s: int = PAUSE_S,
    token_file: str = "",
) -> str:
    """The text of the plugin.

    Args:
        url: Of the service.
        quantile: Probability that a job ends within its limit.
        margin: Added share.
        timeout_s: Longest that slurmctld waits for an answer.
        pause_s: After a failure the service is not asked for so long.
        token_file: File that slurmctld can read, with one line `Authorization: Bearer TOKEN`; empty for none.

    Raises:
        ConfigError: If one of them could not stand in a command line of a shell, or breaks its rule.
    """
    if not _URL.fullmatch(url):
        raise ConfigError(
            f"url={shown(url)} is no plain address of a service. The rule: http(s)://HOST[:PORT][/PATH] of "
            f"letters, digits and ._~/-. To fix: such as {URL}."
        )
    if token_file and not _PATH.fullmatch(token_file):
        raise ConfigError(
            f"token_file={shown(token_file)} is no plain path. The rule: absolute, of letters, digits and "
            "._/-. To fix: such as /etc/slurm/precision-time-token."
        )
    if not 0.0 < timeout_s <= _LONGEST_S or not 0 <= pause_s <= 86_400:
        raise ConfigError(
            f"timeout={timeout_s:g} s, pause={pause_s} s. The rule: slurmctld waits for {_LONGEST_S:g} s at "
            "most, and pauses for a day at most. To fix: such as 2 and 60."
        )
    check_quantile(quantile, margin)
    text = files(__package__).joinpath("data/job_submit.lua").read_text(encoding="utf-8")
    filled = {
        "VERSION": __version__,
        "URL": url.rstrip("/"),
        "TIMEOUT": f"{timeout_s:g}",
        "PAUSE": str(pause_s),
        "QUANTILE": f"{quantile:g}",
        "MARGIN": f"{margin:g}",
        "TOKEN_FILE": token_file,
    }
    for name, value in filled.items():
        text = text.replace(f"@{name}@", value)
    return text
