"""Watch a training from outside: one process writes a log in torchtitan's lines, this one says when it ends.

On the command line: precision-time watch train.log
"""

import subprocess
import sys
import time

from precision_time_integrations.watch.follow import Follower
from precision_time_integrations.watch.log_watch import LogWatch

TRAINER = """
import datetime, time
with open("train.log", "w", buffering=1) as log:
    for step in range(1, 31):
        time.sleep(0.5 if step == 1 else 0.05)
        now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        log.write(f"[titan] {now} - root - INFO - step: {step:2}  loss:  3.2  tps: 7,282\\n")
    log.write("[titan] Training completed\\n")
"""

open("train.log", "w").close()
trainer = subprocess.Popen([sys.executable, "-c", TRAINER])
watch = LogWatch(total_steps=30, say=print)
shown = 0
with Follower("train.log") as follower:
    while not watch.ended:
        for line in follower.read() or ():
            watch.feed(line)
        state = watch.state()
        if shown + 10 <= state.eta.step < 30:
            shown = state.eta.step
            print(state.text)
        time.sleep(0.02)
trainer.wait()
print(watch.state().text)

# prints: step 1\d of 30 \(.*%\), .* left .* per step, from \d+ steps
# prints: step 30 of 30 \(100.0%\), ended after .* per step
