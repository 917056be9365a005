// One piece of work at a time: starting the next aborts the one before, whose answer is never shown.
import { signal } from "./html.js";

const IDLE = { status: "idle", value: null, problem: null, slow: false };
const SLOW_AFTER_MS = 600;

export function latest() {
  const shown = signal(IDLE);
  let running = null;
  const clear = () => {
    running?.abort();
    running = null;
  };
  return {
    shown,
    /** Forget the answer and whatever is under way. */
    reset() {
      clear();
      shown.value = IDLE;
    },
    /** What is shown, if anything, is of what was asked before: it stays, marked as such, until the next answer. */
    outdate() {
      clear();
      shown.value = { ...shown.value, status: "waiting", slow: false };
    },
    fail(problem) {
      clear();
      shown.value = { ...IDLE, status: "failed", problem };
    },
    /** `work` gets the signal that aborts it; the answer is returned only if it is still wanted. */
    async start(work) {
      clear();
      const mine = (running = new AbortController());
      shown.value = { ...shown.value, status: "waiting", slow: false };
      const timer = setTimeout(() => {
        if (running === mine) shown.value = { ...shown.value, slow: true };
      }, SLOW_AFTER_MS);
      try {
        const value = await work(mine.signal);
        if (running !== mine) return null;
        shown.value = { ...IDLE, status: "done", value };
        return value;
      } catch (problem) {
        if (running === mine && problem.name !== "AbortError") shown.value = { ...IDLE, status: "failed", problem };
        return null;
      } finally {
        clearTimeout(timer);
      }
    },
  };
}
