"""A Slurm of one machine for tests: munged, slurmctld and two slurmd, in one folder, on free ports."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "sinfo")
_START_S = 60.0


def can_start() -> bool:
    """Whether a cluster can be started here: slurmd needs root."""
    return os.geteuid() == 0 and all(shutil.which(name, path=_path()) for name in PROGRAMS)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """For its commands."""
        return {"PATH": _path(), "SLURM_CONF": str(self.folder / "slurm.conf"), "HOME": str(self.folder)}

    def run(self, *words: str, check: bool = True) -> str:
        """The output of one of its commands."""
        found = subprocess.run(
            words,
            env={**os.environ, **self.environment},
            text=True,
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert not check or found.returncode == 0, (words, found.stdout, found.stderr)
        return found.stdout

    def job(self, number: str) -> dict[str, str]:
        """What `scontrol show job` says, by name."""
        words = self.run("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for(self, number: str, state: str, seconds: float = 30.0) -> dict[str, str]:
        """A job once it has a state."""
        end_s = time.monotonic() + seconds
        while (job := self.job(number))["JobState"] != state:
            assert job["JobState"] in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"), job
            assert time.monotonic() < end_s, job
            time.sleep(0.1)
        return job


def _ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobcomp.log
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
MinJobAge=3600
InactiveLimit=0
KillWait=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=16 RealMemory=1000 Gres=gpu:a100:8
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=16 RealMemory=1000 Gres=gpu:a100:8
PartitionName=gpu Nodes=n1,n2 Default=YES MaxTime=UNLIMITED DefaultTime=1-00:00:00 State=UP
PartitionName=short Nodes=n1,n2 MaxTime=00:30:00 State=UP
"""


@contextmanager
def cluster(*, conf: str = "") -> Iterator[Cluster]:
    """Start one; everything of it ends and goes with the block.

    Args:
        conf: Further lines of slurm.conf.
    """
    folder = Path(
        tempfile.mkdtemp(prefix="slurm-", dir="/tmp")
    )  # munged takes no folder that others may write
    folder.chmod(0o755)
    found = Cluster(folder=folder)
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_munged(folder))
        text = _CONF.format(folder=folder, ports=_ports(3), host=socket.gethostname().split(".")[0])
        (folder / "slurm.conf").write_text(text + conf.replace("{folder}", str(folder)), encoding="utf-8")
        (folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu Type=a100 File={folder}/gpu[0-7]\n")
        for number in range(8):
            (folder / f"gpu{number}").touch()
        (folder / "state").mkdir()
        for name in ("n1", "n2"):
            (folder / f"spool-{name}").mkdir()
        environment = {**os.environ, **found.environment}
        for words in (["slurmctld", "-D", "-i"], ["slurmd", "-D", "-N", "n1"], ["slurmd", "-D", "-N", "n2"]):
            with (folder / f"{words[0]}-{words[-1]}.out").open("wb") as log:
                started.append(
                    subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)
                )
        _wait(found, started)
        yield found
    finally:
        with suppress(Exception):
            found.run("scancel", "--user=root", check=False)
        for each in reversed(started):
            each.send_signal(signal.SIGTERM)
        for each in started:
            with suppress(subprocess.TimeoutExpired):
                each.wait(timeout=5)
            each.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _munged(folder: Path) -> subprocess.Popen[bytes]:
    home = folder / "munge"
    home.mkdir(mode=0o755)
    key = home / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    user = pwd.getpwnam("munge")
    os.chown(key, user.pw_uid, user.pw_gid)
    os.chown(home, user.pw_uid, user.pw_gid)
    words = [
        "munged", "--foreground", "--force", "--num-threads=2", f"--key-file={key}",
        f"--socket={home}/socket", f"--pid-file={home}/pid", f"--log-file={home}/log",
        f"--seed-file={home}/seed",
    ]  # fmt: skip
    return subprocess.Popen(
        words, env={"PATH": _path()}, user=user.pw_uid, group=user.pw_gid, extra_groups=[],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _wait(found: Cluster, started: list[subprocess.Popen[bytes]]) -> None:
    """Until both nodes are idle."""
    end_s = time.monotonic() + _START_S
    while True:
        dead = [each.args for each in started if each.poll() is not None]
        logs = {path.name: path.read_text(errors="replace")[-2000:] for path in found.folder.glob("*.out")}
        assert not dead, (dead, logs)
        states = found.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T", check=False).split()
        if states == ["idle", "idle"]:
            return
        assert time.monotonic() < end_s, (states, logs)
        time.sleep(0.1)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    """A cluster of two nodes with eight GPUs each, that are none."""
    if not can_start():
        pytest.skip("Slurm's daemons are not installed (Debian: slurm-wlm, munge), or this is not root")
    with cluster() as found:
        yield found
