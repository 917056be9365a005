"""Precision schedules as a Gymnasium environment, and an agent of Stable-Baselines3 that learns them.

An episode gives one group after another a type. The reward of a step is the predicted time that it saves,
as a share of the reference's, with all groups that are not decided yet in the reference: rewards of an
episode add up to what its schedule saves, whatever the order. A type that the budget does not allow any
more counts as the reference, so that every episode ends within the budget.

References: Sutton and Barto, Reinforcement Learning (2018), chapter 3; Schulman et al. 2017, Proximal
Policy Optimization Algorithms, arXiv 1707.06347.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from precision_time.arrays import Floats
from precision_time.errors import required_module

from .schedules import Picks, Schedules

_PURPOSE = "search precision schedules by reinforcement learning"
gymnasium: Any = required_module(
    "gymnasium", package="gymnasium", extra="precision-time-papers[reinforcement]", purpose=_PURPOSE
)

_SLACK = 1e-9
_STEPS = 4096
"""Of all environments together that an agent is trained for."""
_ENVIRONMENTS = 8
"""Side by side: one pass through the policy serves all of them."""
_ROLLOUT = 256
"""Steps of all of them between two updates."""
_LEARNING_RATE = 3e-3
_ENTROPY = 0.01


class ScheduleEnvironment(gymnasium.Env):  # type: ignore[misc]  # gymnasium is an extra
    """One episode is one precision schedule.

    Observation, all in shares: the group that is next (one-hot), the budget that is left, for each type the
    seconds that it saves in this group alone and the risk that it costs there, and whether it is used yet.
    Action: the index of a type, 0 for the reference.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - the name and the type are gymnasium's

    def __init__(
        self, schedules: Schedules, budget: float, *, tried: dict[Picks, float] | None = None
    ) -> None:
        self._schedules, self._budget = schedules, budget
        choices, groups = schedules.choices, len(schedules.groups)
        self._reference_s = float(schedules.times_s([(0,) * groups])[0])
        finite = np.where(np.isfinite(choices.risk), choices.risk, 2.0 * max(budget, _SLACK))
        self._cost = np.clip(finite / max(budget, _SLACK), 0.0, 2.0)
        self._saved = np.clip(-(choices.seconds + choices.fixed_s) / self._reference_s, -1.0, 1.0)
        size = groups + 1 + 3 * schedules.kinds
        self.observation_space = gymnasium.spaces.Box(-1.0, 2.0, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(schedules.kinds)
        self.picks: Picks = ()
        """Of this episode so far."""
        self.tried: dict[Picks, float] = {} if tried is None else tried
        """Seconds of every schedule that an episode ended with."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin with all groups in the reference."""
        super().reset(seed=seed, options=options)
        self.picks = ()
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Give the next group a type."""
        risk, group = self._schedules.choices.risk, len(self.picks)
        spent = sum(risk[place, kind] for place, kind in enumerate(self.picks))
        allowed = spent + risk[group, int(action)] <= self._budget * (1.0 + _SLACK)
        before = self._full()
        self.picks = (*self.picks, int(action) if allowed else 0)
        before_s, after_s = self._schedules.times_s([before, self._full()])
        ended = len(self.picks) == len(self._schedules.groups)
        if ended:
            self.tried[self.picks] = float(after_s)
        return self._observation(), float(before_s - after_s) / self._reference_s, ended, False, {}

    def _full(self) -> Picks:
        return self.picks + (0,) * (len(self._schedules.groups) - len(self.picks))

    def _observation(self) -> Floats:
        schedules, group = self._schedules, len(self.picks)
        groups, kinds = len(schedules.groups), schedules.kinds
        place, here = np.zeros(groups), min(group, groups - 1)
        place[here] = float(group < groups)
        risk = schedules.choices.risk
        spent = sum(risk[index, kind] for index, kind in enumerate(self.picks))
        left = 1.0 - spent / max(self._budget, _SLACK)
        used = np.bincount(np.array(self.picks, dtype=np.int64), minlength=kinds) > 0
        parts = (place, [np.clip(left, 0.0, 1.0)], self._saved[here], self._cost[here], used)
        found: Floats = np.concatenate(parts).astype(np.float32)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """What an agent learned."""

    best: Picks
    """The fastest schedule of all episodes."""
    greedy: Picks
    """The schedule of the trained policy itself, without exploration."""
    schedules: int
    """Different ones that its episodes ended with."""


def train(schedules: Schedules, budget: float, *, seed: int = 0, steps: int = _STEPS) -> Trained:
    """An agent trained on the schedules of one job under one budget.

    Args:
        schedules: Of the job.
        budget: Of risk.
        seed: Of the agent; the same seed finds the same schedule.
        steps: Of the environment.

    Raises:
        MissingExtraError: If Stable-Baselines3 is not installed.
    """
    learners = required_module(
        "stable_baselines3",
        package="stable-baselines3",
        extra="precision-time-papers[reinforcement]",
        purpose=_PURPOSE,
    )
    vectors = required_module(
        "stable_baselines3.common.vec_env",
        package="stable-baselines3",
        extra="precision-time-papers[reinforcement]",
        purpose=_PURPOSE,
    )
    tried: dict[Picks, float] = {}
    beside = vectors.DummyVecEnv(
        [lambda: ScheduleEnvironment(schedules, budget, tried=tried) for _ in range(_ENVIRONMENTS)]
    )
    agent = learners.PPO(
        "MlpPolicy",
        beside,
        n_steps=_ROLLOUT // _ENVIRONMENTS,
        batch_size=_ROLLOUT // 4,
        learning_rate=_LEARNING_RATE,
        ent_coef=_ENTROPY,
        gamma=1.0,
        seed=seed,
        device="cpu",
    )
    agent.learn(steps)
    environment = ScheduleEnvironment(schedules, budget)
    seen, _ = environment.reset()
    ended = False
    while not ended:
        action, _ = agent.predict(seen, deterministic=True)
        seen, _, ended, _, _ = environment.step(action)
    tried |= environment.tried
    best = min(tried, key=lambda picks: tried[picks])
    return Trained(best=best, greedy=environment.picks, schedules=len(tried))
