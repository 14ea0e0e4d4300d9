// Speaks with the daemon that this page came from.

const KEY = "fairlane-token";

/** What was not answered as asked: a status, 0 where nobody answered, and one sentence. */
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

/** The path of parts that may be any text. */
export const path = (...parts) => `v1/${parts.map(encodeURIComponent).join("/")}`;

async function send(where, options) {
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  let answer;
  try {
    answer = await fetch(where, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted && options.signal.reason?.name !== "TimeoutError") throw error;
    // A token that no header can carry never gets as far as the daemon.
    const odd = [...token()].some((letter) => letter < " " || letter > "~");
    throw new Refused(0, odd ? "the token has letters that no token has" : "the daemon does not answer");
  }
  if (answer.ok) return answer;
  let sentence = `the daemon answers with status ${answer.status}`;
  try {
    sentence = JSON.parse(await answer.text()).error ?? sentence;
  } catch {
    // Not the daemon's own words.
  }
  throw new Refused(answer.status, sentence);
}

/** Asks, and has what was answered. */
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

/** Each state as it is told, until the stream ends. */
export async function* states(signal) {
  const answer = await send("v1/events", { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  // A state is as long as there are classes: its parts are looked at once each.
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
    // Whoever reads slowly wants the last one only.
    const line = events.at(-1).split("\n").find((text) => text.startsWith("data: "));
    if (line) yield JSON.parse(line.slice(6));
  }
}
