// The terms that a step is the sum of, as cost/data/terms.toml has them (packages/server/tests/test_charts.py holds them
// to it), and how each looks. Hue is by group (kernels cool, exposed warm, update yellow), lightness differs
// between neighbors, and every group but the kernels has a pattern, so that color is never all there is.

export const GROUPS = {
  method: ["Beside the update", "cross"],
  kernels: ["Kernels", null],
  host: ["Host", "rows"],
  update: ["Update", "dots"],
  exposed: ["Exposed communication and waiting", "diagonal"],
  input: ["Input", "columns"],
};

/** name: title, group, color. */
export const TERMS = {
  conv_s: ["convolutions", "kernels", "#2a6bb0"],
  gemm_s: ["matrix products", "kernels", "#5b9bd8"],
  rnn_s: ["recurrent layers", "kernels", "#2b8fb3"],
  attention_s: ["attention", "kernels", "#16806c"],
  norm_s: ["norms", "kernels", "#72c4ad"],
  embedding_s: ["embeddings and gathers", "kernels", "#4f8541"],
  dispatch_s: ["rows sorted to experts", "kernels", "#8a5fbf"],
  memory_bound_s: ["other memory-bound kernels", "kernels", "#a9cdec"],
  casts_s: ["casts between types", "kernels", "#b7d36b"],
  recompute_s: ["recomputation", "kernels", "#6a6cc0"],
  host_stall_s: ["waiting for the host", "host", "#9aa1aa"],
  trainer_s: ["the trainer's time per tensor", "update", "#c06a14"],
  offload_s: ["offloading", "update", "#cdb48c"],
  optimizer_s: ["optimizer", "update", "#e3b02a"],
  unscale_s: ["unscaling of gradients", "update", "#f0d98a"],
  host_sync_s: ["overflow check", "update", "#a1851f"],
  data_exposed_s: ["data-parallel exchange", "exposed", "#c84d40"],
  tensor_exposed_s: ["tensor-parallel messages", "exposed", "#ef8a62"],
  pipeline_exposed_s: ["pipeline messages", "exposed", "#a03a6c"],
  context_exposed_s: ["context-parallel messages", "exposed", "#f4b8a4"],
  expert_exposed_s: ["expert all-to-all", "exposed", "#a569a8"],
  pipeline_bubble_s: ["pipeline bubble", "exposed", "#e0d6da"],
  contention_s: ["slowdown by hidden communication", "exposed", "#cf93a2"],
  straggler_s: ["waiting for the slowest device", "exposed", "#8a4f3c"],
  data_stall_s: ["waiting for input data", "input", "#8a7362"],
  prefill_s: ["reading prompts", "method", "#d66ba0"],
  decode_s: ["writing answers", "method", "#9c4a7e"],
  tail_s: ["writing the longest answers", "method", "#6f2f5b"],
  logprobs_s: ["log-probabilities of the policy", "method", "#e58fb8"],
  reward_s: ["checking answers by rule", "method", "#d9a5e0"],
  updates_s: ["further updates of a generated batch", "method", "#8d5fa8"],
  uneven_s: ["waiting for longer answers", "method", "#7a6fb0"],
  sync_s: ["weights to the engine", "method", "#b98aa0"],
  reference_s: ["reference model", "method", "#eab4d0"],
  teacher_s: ["teacher", "method", "#c48fd0"],
  reward_model_s: ["reward model", "method", "#b0587f"],
  critic_s: ["critic", "method", "#f0c4dc"],
};

const UNKNOWN = "#b9bec6";
const sayable = (name) => name.replace(/_(s|bytes)$/, "").replaceAll("_", " ");

/** How a term is called and drawn; one that this page does not know is gray, and called by its name. */
export function termOf(name) {
  const [title, group, color] = TERMS[name] ?? [sayable(name), "kernels", UNKNOWN];
  return { name, title, group, color, pattern: name in TERMS ? GROUPS[group][1] : "cross" };
}

/** What takes device memory: title, color, pattern. Static state blue, gradients yellow, what a pass holds green. */
const MEMORY = {
  parameters: ["parameters", "#2a6bb0", null],
  expert_parameters: ["expert parameters", "#5b9bd8", null],
  cast_weights: ["weights in compute precision", "#a9cdec", null],
  master_weights: ["master weights", "#6a6cc0", null],
  optimizer_states: ["optimizer states", "#a569a8", "dots"],
  gradients: ["gradients", "#e3b02a", null],
  gradient_buckets: ["gradient buckets", "#f0d98a", "dots"],
  gathered: ["gathered weights", "#ef8a62", "rows"],
  activations: ["activations", "#16806c", null],
  logits: ["logits", "#72c4ad", null],
  temporary: ["temporary", "#b7d36b", "columns"],
  fragmentation: ["fragmentation", "#cdb48c", "diagonal"],
  framework: ["framework and context", "#9aa1aa", "diagonal"],
};

/** How a part of the memory is called and drawn. */
export function memoryOf(name) {
  const [title, color, pattern] = MEMORY[name] ?? [sayable(name), UNKNOWN, "cross"];
  return { name, title, color, pattern };
}

/** What a segment of a timeline is: a pass, or a term without its `_s`. */
const PASSES = {
  forward: ["forward", "#5b9bd8", null],
  backward: ["backward", "#1f5d9c", null],
  weight: ["weight gradients", "#72c4ad", null],
  recompute: ["recomputation", "#6a6cc0", null],
  bubble: ["pipeline bubble", "#e0d6da", "diagonal"],
  overlapped: ["communication behind computation", "#f4b8a4", "diagonal"],
};

export function kindOf(kind) {
  if (kind in PASSES) {
    const [title, color, pattern] = PASSES[kind];
    return { name: kind, title, color, pattern };
  }
  return termOf(`${kind}_s` in TERMS ? `${kind}_s` : kind);
}

const SHAPES = ["circle", "square", "triangle", "diamond", "down", "plus", "bar", "star"];

/** Color and mark of a series by its number: no color says alone which it is, and no pair comes twice below 64. */
export const seriesLook = (number) => ({
  color: `var(--series-${(number % SHAPES.length) + 1})`,
  mark: SHAPES[(number + Math.floor(number / SHAPES.length)) % SHAPES.length],
});
