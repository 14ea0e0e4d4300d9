// The top of the page: problems, and the load of each link. Also the small plots of the last ten minutes.

import { count, find, make, percent, rate, say, span } from "./figures.js";
import { ask, path } from "./site.js";

/** Seconds per step of a small plot, and the number of steps. */
const STEP = 5;
const STEPS = 120;
/** Maximum number of classes whose history is added up to the load of a link. */
const ADDED = 16;
/** Maximum number of listed problems. */
const LISTED = 8;
/** Seconds for which a problem stays listed after it was seen last. */
const KEPT = 10;

const now = () => Date.now() / 1_000;

function shape(name, attributes, ...inside) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

/** The last ten minutes of one or more lines: a value per step, as a part of the scale. */
export class Recent {
  constructor(lines) {
    this.lines = Array.from({ length: lines }, () => new Float32Array(STEPS).fill(NaN));
    this.step = 0;
    this.counted = 0;
    /** Changes with each completed step. */
    this.version = 0;
  }

  /** Moves to the current step. */
  advance() {
    const step = Math.floor(now() / STEP);
    const passed = Math.min(step - this.step, STEPS);
    if (passed <= 0) return;
    for (const line of this.lines) {
      line.copyWithin(0, passed);
      line.fill(NaN, STEPS - passed);
    }
    this.step = step;
    this.counted = 0;
    this.version += 1;
  }

  /** Adds values of the current step, which has their mean. */
  add(values) {
    this.advance();
    this.counted += 1;
    values.forEach((value, at) => {
      const line = this.lines[at];
      const before = line[STEPS - 1];
      if (value === null) return;
      line[STEPS - 1] = Number.isNaN(before) ? value : before + (value - before) / this.counted;
    });
  }

  /** Fills steps that have no value from columns of a history, whose last entry is the current second. */
  fill(columns, seconds) {
    this.advance();
    columns.forEach((column, at) => {
      const sums = new Map();
      column.forEach((value, place) => {
        const step = STEPS - 1 - Math.floor(((column.length - 1 - place) * seconds) / STEP);
        if (value === null || step < 0) return;
        const [sum, all] = sums.get(step) ?? [0, 0];
        sums.set(step, [sum + value, all + 1]);
      });
      for (const [step, [sum, all]] of sums) if (Number.isNaN(this.lines[at][step])) this.lines[at][step] = sum / all;
    });
    this.version += 1;
  }

  /** Returns the number of seconds for which a line has exceeded a value, up to now; infinite for the whole plot. */
  above(at, value) {
    let steps = 0;
    while (steps < STEPS && this.lines[at][STEPS - 1 - steps] > value) steps += 1;
    return steps === STEPS ? Infinity : steps * STEP;
  }
}

/** The history of a class in the last ten minutes, in seconds of the daemon's clock. */
let ahead = null;
async function history(link, name) {
  const since = ahead === null ? {} : { since: Math.floor(now() + ahead) - STEP * STEPS };
  const told = await ask(`${path("history")}?${new URLSearchParams({ link, class: name, span: "hour", ...since })}`);
  if (told.rate_bps.length) ahead = told.start + told.rate_bps.length * told.step_s - now();
  return told;
}

/** Requests for histories, one at a time. */
let queue = Promise.resolve();

/** Fills the plot of a class once. */
export function fill(node) {
  if (node.filled) return;
  node.filled = true;
  queue = queue.then(async () => {
    const { rate_bps: rates, max_us: delays, step_s: step } = await history(node.link.name, node.name);
    const parts = (column, part) => column.map((value) => (value === null ? null : part(value)));
    node.recent.fill([parts(rates, (it) => node.partOf(it)), parts(delays, (it) => node.delayPart(it))], step);
  }).catch(() => {});
}

/** A small plot. Its scale ends at twice the guarantee and the bound, which are the line in the middle. */
export class Spark {
  constructor(middle = true) {
    const line = (name) => shape("path", { class: name, "vector-effect": "non-scaling-stroke" });
    this.lines = [line("one"), line("two")];
    this.middle = shape("path", { class: "middle", d: middle ? `M0 50H${STEPS}` : "", "vector-effect": "non-scaling-stroke" });
    this.element = shape("svg", { class: "spark", viewBox: `0 0 ${STEPS} 100`, preserveAspectRatio: "none", "aria-hidden": "true" },
      this.middle, ...this.lines);
    this.drawn = null;
  }

  draw(recent, top = 2) {
    if (this.drawn === recent && this.version === recent.version) return;
    [this.drawn, this.version] = [recent, recent.version];
    this.lines.forEach((element, at) => {
      let path = "";
      let joined = false;
      (recent.lines[at] ?? []).forEach((value, x) => {
        if (Number.isNaN(value)) joined = false;
        else {
          path += `${joined ? "L" : "M"}${x} ${(98 - 96 * Math.min(value / top, 1)).toFixed(1)}`;
          joined = true;
        }
      });
      element.setAttribute("d", path);
    });
  }
}

/** The links with their load. */
export class Links {
  constructor() {
    this.place = find("links");
    this.known = new Map();
  }

  update(state) {
    for (const link of state.links) {
      const it = this.known.get(link.name) ?? this.add(link);
      it.recent.add([link.recent_bps / link.rate_bps]);
      it.spark.draw(it.recent, 1);
      say(it.words, `${rate(link.recent_bps)} of ${rate(link.rate_bps)}, ${percent(link.recent_bps / link.rate_bps)}${link.shaped ? "" : ", not shaped"}`);
      say(it.to, ` to ${link.to || "processes"}`);
    }
    for (const [name, it] of this.known) {
      if (state.links.some((link) => link.name === name)) continue;
      it.element.remove();
      this.known.delete(name);
    }
  }

  add(link) {
    const it = { recent: new Recent(1), spark: new Spark(false), words: make("span"), to: make("small") };
    it.element = make("div", { class: "load" }, make("div", {}, make("b", {}, link.name), it.to), it.words, it.spark.element);
    this.place.append(it.element);
    this.known.set(link.name, it);
    this.fill(link, it);
    return it;
  }

  /** Adds up the histories of the topmost classes. */
  fill(link, it) {
    const top = link.classes.filter((told) => told.parent === null);
    if (top.length > ADDED) return;
    queue = queue.then(async () => {
      let sums = [];
      let step = 1;
      for (const told of top) {
        const { rate_bps: rates, step_s: seconds } = await history(link.name, told.name);
        step = seconds;
        // Histories end at the same time and may begin at different ones.
        const more = Math.max(rates.length - sums.length, 0);
        sums = [...Array(more).fill(0), ...sums];
        rates.forEach((value, at) => { sums[sums.length - rates.length + at] += value ?? 0; });
      }
      it.recent.fill([sums.map((bps) => bps / link.rate_bps)], step);
      it.spark.draw(it.recent, 1);
    }).catch(() => {});
  }
}

const clock = (seconds) => new Date(seconds * 1_000).toLocaleTimeString("en-GB").slice(0, 5);

/** The problems of the site, the most severe first. */
export class Problems {
  constructor() {
    this.list = find("problems");
    this.known = new Map();
  }

  update(state, nodes) {
    const time = now();
    // An ongoing problem may have begun before the page was opened.
    const isFirst = !this.started;
    this.started = true;
    for (const { key, since = time, before = isFirst, bad = true, words } of found(state, nodes, time)) {
      const it = this.known.get(key) ?? { since: Infinity };
      this.known.set(key, Object.assign(it, { bad, words, seen: time }, since < it.since ? { since, before } : null));
    }
    for (const [key, it] of this.known) if (time - it.seen > KEPT) this.known.delete(key);
    const all = [...this.known.values()].sort((a, b) => b.bad - a.bad || a.since - b.since);
    const lines = all.slice(0, LISTED).map(({ words, since, before }) => (
      words.replace("{since}", `since ${before ? "before " : ""}${clock(since)}`)));
    if (all.length > LISTED) lines.push(`and ${all.length - LISTED} more`);
    this.list.hidden = lines.length === 0;
    const said = [...this.list.children].map((item) => item.textContent);
    if (said.join("\n") !== lines.join("\n")) this.list.replaceChildren(...lines.map((line) => make("li", {}, line)));
  }
}

/** Yields the problems of a state. Advisory ones are not `bad`. */
function* found(state, nodes, time) {
  const lately = `in the last ${span(state.recent_seconds)}`;
  for (const it of state.interfaces) {
    const { name } = it;
    if (it.attached === false) yield { key: `detached ${name}`, words: `${name} is detached {since}; its egress is dropped` };
    else if (it.backend === "away") yield { key: `away ${name}`, words: `${name} is missing {since}; its egress is dropped` };
    if (it.recent_lost) yield { key: `lost ${name}`, words: `Overload: ${name} lost ${count(it.recent_lost)} frames before classification ${lately}` };
    if (it.recent_early_drops) yield { key: `early ${name}`, words: `Overload: ${count(it.recent_early_drops)} frames dropped on arrival at ${name} ${lately} (classes above their share)` };
  }
  for (const words of state.bypasses) yield { key: words, words };
  for (const link of state.links) {
    if (!link.shaped) yield { key: `open ${link.name}`, words: `link ${link.name} is not shaped {since}` };
    if (link.opaque_protocol) yield { key: `opaque ${link.name}`, bad: false, words: `link ${link.name}: filters cannot match ${link.opaque_protocol}` };
  }
  const { unsaved_changes: changes = 0, last_reload_error: error = null } = state.configuration ?? {};
  if (error) yield { key: "reload", words: `last reload refused: ${error}` };
  for (const node of nodes.values()) yield* ofClass(node, state.links.length > 1, time);
  if (changes) yield { key: "unsaved", bad: false, words: `${changes === 1 ? "1 unsaved change" : `${changes} unsaved changes`} (fairlane ctl save)` };
}

function* ofClass(node, isOneOfMany, time) {
  if (node.isLink) return;
  const name = isOneOfMany ? `${node.name} (${node.link.name})` : node.name;
  const [sign, bad] = node.is;
  if (bad && sign.includes("late")) yield { key: `late ${node.key}`, words: `${name} exceeds its delay bound {since}, although it is within its guarantee` };
  else if (bad) yield { key: `below ${node.key}`, words: `${name} is below its guarantee {since}, although packets are queued` };
  // A class that only uses spare bandwidth is no problem.
  if (!node.exceeds || !node.bound || !(node.worst > node.bound || node.dropRate > 0)) return;
  fill(node);
  const seconds = node.recent.above(0, 1);
  const since = time - Math.min(seconds, STEP * STEPS);
  yield { key: `above ${node.key}`, since, before: seconds === Infinity, bad: false, words: `${name} is above its guarantee {since}; delay bound not applicable` };
}
