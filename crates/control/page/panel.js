// One class or link: its guarantees and its history, explanations, and changes.

import { changes } from "./change.js";
import { count, delay, find, make, percent, rate, say } from "./figures.js";
import { History, LINES, Plot } from "./plot.js";
import { ask, path } from "./site.js";

const RANGES = [
  ["10 minutes", 600, "hour"],
  ["hour", 3_600, "hour"],
  ["week", 604_800, "week"],
];
/** Maximum number of lines in a plot. */
const LINED = LINES.length;

/** Returns the text on whether the delay bound of a class applies now. */
function applies(node) {
  const when = "valid while the class stays within its guarantee";
  return node.exceeds ? `${when}; it does not now` : when;
}

/** The main facts of a class: a name, and a function for the value. */
const FIRST = [
  ["Guaranteed", ({ told }) => (told.guaranteed_bps === null ? told.no_bound ?? "none" : rate(told.guaranteed_bps))],
  ["Rate", (node) => `${rate(node.rate)}${node.guaranteed ? `, ${percent(node.share)} of the guarantee` : ""}`],
  ["Delay bound", (node) => (node.told.bound_us === null ? "none" : `${delay(node.told.bound_us)} (${applies(node)})`)],
  ["Recent delay", (node) => (node.worst === null ? "–" : `p99 ${delay(node.p99)}, max ${delay(node.worst)}`)],
];

/** The facts below. */
const FURTHER = [
  ["Ceiling", ({ told }) => rate(told.ceil_bps)],
  ["Max delay", ({ told }) => delay(told.delay_us?.max)],
  ["Bound violations", (node) => (node.told.bound_us === null ? "–"
    : `${count(node.told.recent?.violations ?? 0)}${node.exceeds ? " (bound not applicable now)" : ""}`)],
  ["Queued", ({ told }) => `${count(told.queued_packets)} packets${told.room_packets ? `, buffer for ${count(told.room_packets)}` : ""}`],
  ["Drops", ({ told }) => `${count(told.drops.full)} full, ${count(told.drops.managed)} managed, ${count(told.drops.early)} early`],
  ["Orphan fragments", ({ told }) => count(told.orphan_fragments)],
  ["Weight", ({ told }) => count(told.weight)],
  ["Flows", ({ told }) => (told.each ? `${count(told.flows)} of ${count(told.each.most)}, per ${told.each.per}` : `${count(told.flows)}`)],
];

const OF_LINK = [
  ["Load", (node) => `${rate(node.rate)}, ${percent(node.rate / node.most)} of ${rate(node.most)}`],
  ["Egress", ({ told }) => told.to || "processes"],
  ["Algorithm", ({ told }) => told.algorithm],
  ["Queued", ({ told }) => `${count(told.queued_packets)} packets`],
  ["Matched by no filter", ({ told }) => `${count(told.unmatched)} frames`],
  ["Protocol filters cannot match", ({ told }) => `${count(told.opaque_frames)} frames${told.opaque_protocol ? `, of ${told.opaque_protocol}` : ""}`],
  ["Malformed, too long", ({ told }) => `${count(told.malformed)}, ${count(told.oversized)} frames`],
];

export class Panel {
  /** `closed` is called when the panel is closed. */
  constructor(closed) {
    this.element = find("panel");
    this.closed = closed;
    this.node = null;
    this.plots = [];
    this.range = RANGES[0];
    this.histories = new Map();
  }

  open(node, nodes) {
    this.end();
    this.node = node;
    this.title = make("h2", { id: "panel-title" }, node.isLink ? `Link ${node.name}` : node.name);
    this.gone = make("p", { class: "alarm", role: "alert", hidden: true }, "It was removed.");
    this.facts = [];
    const list = (facts) => make("dl", {}, ...facts.flatMap(([name, value]) => {
      const place = make("dd");
      this.facts.push([value, place]);
      return [make("dt", {}, name), place];
    }));
    const further = make("details", { open: true }, make("summary", {}, "All figures"), list(FURTHER));
    this.ranges = RANGES.map((range) => make("button", {
      type: "button", "aria-pressed": `${range === this.range}`, onclick: () => this.show(range),
    }, range[0]));
    this.figures = make("div");
    this.why = make("ul", { class: "why" });
    const why = node.isLink ? [] : [make("h3", {}, "Explanation"), this.why];
    this.element.replaceChildren(
      make("div", { class: "top" }, this.title, make("button", { type: "button", onclick: () => this.close() }, "Close")),
      ...(node.isLink ? [] : [make("p", { class: "hint" }, `of link ${node.link.name}`)]), this.gone,
      list(node.isLink ? OF_LINK : FIRST),
      make("div", { class: "ranges", role: "group", "aria-label": "Time that is shown" }, ...this.ranges),
      this.figures, ...why, ...changes(node, nodes), ...(node.isLink ? [] : [further]),
    );
    this.element.hidden = false;
    document.querySelector("main").classList.add("with-panel");
    this.element.scrollTop = 0;
    this.element.focus({ preventScroll: true });
    this.compose();
    this.update(nodes);
  }

  close() {
    this.end();
    this.element.hidden = true;
    this.element.replaceChildren();
    document.querySelector("main").classList.remove("with-panel");
    this.closed();
  }

  end() {
    for (const { plot } of this.plots) plot.end();
    this.plots = [];
    this.histories.clear();
    this.node = null;
  }

  /** Selects the lines: for a class its own, for a class with children those of the busiest. */
  compose() {
    for (const { plot } of this.plots) plot.end();
    const { node } = this;
    const busiest = [...node.children].sort((a, b) => b.rate - a.rate);
    const own = node.isLink ? [] : [{ of: node, key: "rate_bps", label: "Rate", fill: !node.children.length }];
    const most = node.isLink ? node.most : node.told.ceil_bps;
    const guarantee = { value: () => this.node?.told.guaranteed_bps, label: "Guarantee" };
    const ceiling = node.isLink
      ? { value: () => this.node?.most, label: "Link" }
      : { value: () => this.node?.told.ceil_bps, label: "Ceiling" };
    const fixed = [...(node.guaranteed && !node.children.length ? [guarantee] : []), ...(most ? [ceiling] : [])];
    const children = busiest.slice(0, LINED - own.length - fixed.length);
    const lines = [...own, ...children.map((child) => ({ of: child, key: "rate_bps", label: child.name })), ...fixed];
    this.plots = [this.plot("Rate", lines, rate)];
    if (!node.isLink && node.told.kind !== "inner") {
      const bound = node.bound ? [{ value: () => this.node?.told.bound_us, label: "Bound" }] : [];
      const p99 = { of: node, key: "p99_us", label: "p99" };
      const worst = { of: node, key: "max_us", label: "Max" };
      this.plots.push(this.plot("Delay", [p99, worst, ...bound], delay, { log: true }));
      const waiting = { of: node, key: "queued_packets", label: "Queued" };
      const step = this.range[2] === "week" ? "minute" : "second";
      const drops = { of: node, key: "drops", label: `Drops per ${step}` };
      this.plots.push(this.plot("Packets", [waiting, drops], count, { height: 130 }));
    }
    this.figures.replaceChildren(...this.plots.map(({ plot }) => plot.element));
  }

  plot(title, lines, format, options) {
    const looks = lines.map((line, at) => ({ ...LINES[at], ...line }));
    return { lines, plot: new Plot(title, looks, format, options) };
  }

  show(range) {
    this.range = range;
    this.ranges.forEach((button, at) => button.setAttribute("aria-pressed", RANGES[at] === range));
    this.compose();
    this.follow();
  }

  /** Shows the figures of a new state. */
  update(nodes) {
    if (!this.node) return;
    const node = nodes.get(this.node.key);
    this.gone.hidden = Boolean(node);
    if (!node) return;
    this.node = node;
    for (const [value, element] of this.facts) say(element, value(node));
    this.follow();
    if (!node.isLink) this.explain(node);
  }

  async explain(node) {
    if (this.explaining) return;
    this.explaining = true;
    try {
      const { because, advice } = await ask(path("links", node.link.name, "classes", node.name, "explain"));
      if (this.node?.key !== node.key) return;
      // A screen reader does not repeat unchanged text.
      const said = [...this.why.children].map((item) => item.textContent);
      const all = [...because, ...advice.map((text) => `→ ${text}`)];
      if (said.join("\n") !== all.join("\n")) this.why.replaceChildren(...all.map((text) => make("li", {}, text)));
    } catch {
      // The page shows the state of the connection.
    } finally {
      this.explaining = false;
    }
  }

  history(node) {
    const key = `${this.range[2]} ${node.key}`;
    if (!this.histories.has(key)) this.histories.set(key, new History(node.link.name, node.name, this.range[2]));
    return this.histories.get(key);
  }

  /** Fetches new steps and draws. */
  async follow() {
    if (this.following) return;
    this.following = true;
    const of = this.node;
    const range = this.range;
    try {
      const all = this.plots.flatMap(({ lines }) => lines);
      const histories = new Set(all.filter((line) => line.of).map((line) => this.history(line.of)));
      await Promise.allSettled([...histories].map((history) => history.refresh()));
      if (this.node?.key === of.key && this.range === range) requestAnimationFrame(() => this.draw([...histories]));
    } finally {
      this.following = false;
      if (this.node && (this.node.key !== of.key || this.range !== range)) this.follow();
    }
  }

  draw(histories) {
    const [, seconds] = this.range;
    const known = histories.filter((history) => history.start !== null);
    if (!this.node || !known.length) return;
    const step = known[0].step;
    const end = Math.max(...known.map((history) => history.end));
    const first = Math.max(Math.min(...known.map((history) => history.start)), end - seconds);
    // Limits the points to the resolution. Their steps are aligned, so they do not move as time passes.
    const points = Math.max(this.figures.clientWidth / 2, 60);
    const wide = step * Math.max(Math.ceil(Math.min(end - first, seconds) / step / points), 1);
    const from = Math.floor(first / wide) * wide;
    const times = Array.from({ length: Math.ceil((end - from) / wide) }, (_, at) => from + at * wide);
    // A new history shows at least 60 steps.
    const range = [Math.min(first, end - 60 * step), end];
    for (const { lines, plot } of this.plots) {
      const columns = lines.map((line) => (line.of
        ? this.history(line.of).at(times, wide, line.key)
        : times.map(() => line.value() ?? null)));
      plot.set(times, columns, range);
    }
  }
}
