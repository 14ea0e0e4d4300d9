// Requests to the daemon that served this page.

const KEY = "fairlane-token";

/** A failed request: its status, or 0 without an answer, and one sentence. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export const token = () => sessionStorage.getItem(KEY) ?? "";

export function keepToken(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** Returns the path of segments, which may be any text. */
export const path = (...parts) => `v1/${parts.map(encodeURIComponent).join("/")}`;

async function send(where, options) {
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  let answer;
  try {
    answer = await fetch(where, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted && options.signal.reason?.name !== "TimeoutError") throw error;
    // A token that is not valid in a header is never sent.
    const odd = [...token()].some((letter) => letter < " " || letter > "~");
    throw new Refused(0, odd ? "the token has characters that are not allowed" : "the daemon does not answer");
  }
  if (answer.ok) return answer;
  let sentence = `the daemon answers with status ${answer.status}`;
  try {
    sentence = JSON.parse(await answer.text()).error ?? sentence;
  } catch {
    // The body is not from the daemon, for example from a proxy.
  }
  throw new Refused(answer.status, sentence);
}

/** Sends a request and returns the answer. */
export async function ask(where, { method = "GET", body, seconds = 20 } = {}) {
  const signal = AbortSignal.timeout(seconds * 1000);
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const answer = await send(where, { method, body: sent, signal });
  try {
    return await answer.json();
  } catch {
    throw new Refused(0, "the daemon's answer ended early");
  }
}

/** Facts about the site besides its state: its name. */
export const about = { name: "" };

/** Yields each published state until the stream ends. */
export async function* states(signal) {
  const answer = await send("v1/events", { signal });
  about.name = decodeURIComponent(answer.headers.get("fairlane-site") ?? "");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  // A state grows with the number of classes, so each part is searched only once.
  let parts = [];
  let last = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const ends = (last + value).includes("\n\n");
    parts.push(value);
    last = value.slice(-1) || last;
    if (!ends) continue;
    const events = parts.join("").split("\n\n");
    parts = [events.pop()];
    last = parts[0].slice(-1);
    // A slow reader gets only the last state.
    const line = events.at(-1).split("\n").find((text) => text.startsWith("data: "));
    if (line) yield JSON.parse(line.slice(6));
  }
}
