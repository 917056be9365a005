// Requests to the service that served the page, and to nothing else.
import { signal } from "./html.js";

const TOKEN = "precision-time token";

/** A problem+json answer, or what stood in its place. */
export class Problem extends Error {
  constructor({ status = 0, title = "", detail = "", field = "" }) {
    super(detail || title || `The service answered with status ${status}.`);
    Object.assign(this, { status, title, field });
  }
}

// Kept for this tab only, and forgotten with it.
export const token = signal(stored());
/** Whether the service has refused to answer without a token, or with this one. */
export const tokenWanted = signal(false);

export function useToken(text) {
  token.value = text.trim();
  try {
    if (token.value) sessionStorage.setItem(TOKEN, token.value);
    else sessionStorage.removeItem(TOKEN);
  } catch {
    // Without storage the token lasts until the page is closed.
  }
}

function stored() {
  try {
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}

/** The service's own address, also where it lives below a path. */
export const addressOf = (path) => new URL(path, document.baseURI.replace(/#.*$/, "")).href;

export const get = (path, signal) => ask(path, { signal });
export const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
export const upload = (path, file, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file, signal });

async function ask(path, { headers = {}, ...options }) {
  const authorized = token.value ? { ...headers, Authorization: `Bearer ${token.value}` } : headers;
  let response;
  try {
    response = await fetch(addressOf(path), { ...options, headers: authorized, credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ title: "The service does not answer.", detail: "The service cannot be reached. To fix: check that precision-time serve is running, then try again." });
  }
  const answer = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (response.ok && answer !== null) {
    tokenWanted.value = false;
    return answer;
  }
  if (response.status === 401 || response.status === 403) tokenWanted.value = true;
  throw new Problem({ ...(answer ?? {}), status: response.status });
}
