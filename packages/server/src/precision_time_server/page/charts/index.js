// The charts of the page. Each takes the JSON of the service as it is.
export { Breakdown } from "./breakdown.js";
export { Memory } from "./memory.js";
export { Pareto } from "./pareto.js";
export { Precisions } from "./precisions.js";
export { Scaling } from "./scaling.js";
export { Timeline } from "./timeline.js";
