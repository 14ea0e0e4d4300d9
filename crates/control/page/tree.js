// The tree of links and classes. Only visible rows have elements, and only texts that change are updated.

import { count, delay, find, make, percent, rate, say } from "./figures.js";
import { fill, Recent, Spark } from "./overview.js";

/** Rows that exist beyond the edges of the screen. */
const BEYOND = 4;

/** Returns the key of a class; the key of a link has no class. */
export const keyOf = (link, name = "") => JSON.stringify([link, name]);

/** A link or a class, with its recent figures. */
class Node {
  constructor(key) {
    this.key = key;
    this.folded = false;
    this.dropRate = 0;
    this.drops = null;
    this.backlogged = false;
    this.waited = false;
    /** Rate as a part of the guarantee, and delay as a part of the bound. */
    this.recent = new Recent(2);
    this.filled = false;
  }

  /** Takes the figures of a state. */
  note(link, told, seconds) {
    this.link = link;
    this.told = told;
    this.isLink = told === link;
    this.name = told.name;
    this.children = [];
    this.parent = null;
    this.seen = true;
    const waited = this.backlogged;
    this.queued = told.queued_packets;
    if (this.isLink) {
      this.rate = told.recent_bps;
      this.most = told.rate_bps;
      return;
    }
    const recent = told.recent;
    this.rate = recent?.sent_bps ?? 0;
    this.guaranteed = told.guaranteed_bps;
    this.most = told.ceil_bps ?? link.rate_bps;
    this.p99 = recent?.delay_us?.p99 ?? null;
    this.worst = recent?.delay_us?.max ?? null;
    this.bound = told.bound_us;
    // The bound does not apply above the guarantee.
    this.exceeds = recent?.bound_applies === false;
    // A sending class often has a packet or two queued; 0.1 s of its guarantee is a backlog.
    this.backlogged = told.queued_bytes * 8 > 0.1 * (this.guaranteed ?? Infinity);
    this.waited = waited && this.backlogged;
    this.count(told.drops.full + told.drops.managed + told.drops.early, seconds);
    this.recent.add([this.partOf(this.rate), this.delayPart(this.worst)]);
  }

  count(drops, seconds) {
    const before = this.drops ?? drops;
    if (seconds > 0) this.dropRate = Math.max(drops - before, 0) / seconds;
    this.drops = drops;
  }

  /** A rate on the scale of its plot: 1 is the guarantee, or else 2 the ceiling or the rate of the link. */
  partOf(bps) {
    return this.guaranteed ? bps / this.guaranteed : (2 * bps) / this.most;
  }

  /** A delay on the same scale: 1 is the bound. */
  delayPart(us) {
    return us === null || !this.bound ? null : us / this.bound;
  }

  /** Its rate as a fraction of its guarantee. */
  get share() {
    return this.guaranteed ? this.rate / this.guaranteed : null;
  }

  /** Its condition as a sign and a word, and whether that needs attention. */
  get is() {
    if (this.isLink) {
      return this.rate >= 0.95 * this.most ? ["■ full", false] : [this.rate > 0 ? "● sends" : "○ idle", false];
    }
    if (this.told.recent?.late_packets > 0) return ["✗ late", true];
    const held = this.told.recent?.overlimits > 0;
    // A class with children may only be short because one of them is held back.
    if (this.waited && !held && !this.children.length && (this.share ?? 1) < 0.9) return ["▼ below", true];
    if (this.dropRate > 0) return ["◆ drops", false];
    if (held && (this.told.ceil_bps || this.told.each?.ceil_bps)) return ["■ at ceiling", false];
    if (this.queued > 0) return ["● queued", false];
    return [this.rate > 0 ? "● sends" : "○ idle", false];
  }
}

/** Sort keys of siblings, largest first. */
const ORDERS = {
  rate: (node) => node.rate,
  share: (node) => node.share ?? -1,
  delay: (node) => node.worst ?? -1,
  queued: (node) => node.queued,
  drops: (node) => node.dropRate * 1e9 + (node.drops ?? 0),
};

/** Formats two delays, with the unit once if it is the same. */
function both(one, other) {
  const [figure, unit] = [parseFloat(one), one.replace(/^[\d.]+/, "")];
  return `${other.replace(/^[\d.]+/, "") === unit ? figure : one}, ${other}`;
}

/** The elements of a row. Their texts are updated in place. */
class Row {
  constructor(choose, fold) {
    this.fold = make("i", { "aria-hidden": "true", onclick: (event) => {
      event.stopPropagation();
      if (this.node) fold(this.node);
    } });
    this.name = make("span");
    this.tag = make("small");
    this.spark = new Spark();
    this.rate = make("span");
    this.of = make("small");
    this.delay = make("span");
    this.bound = make("small");
    const cell = (name, ...inside) => make("div", { class: name, role: "gridcell" }, ...inside);
    this.queue = cell("queue");
    this.drops = cell("drops");
    this.is = cell("is");
    this.element = make("div", { class: "row", role: "row", onclick: () => this.node && choose(this.node) },
      cell("name", this.fold, make("div", {}, this.name, this.tag)),
      cell("rate", this.spark.element, make("div", { class: "told" }, this.rate, this.of)),
      cell("delay", this.delay, this.bound), this.queue, this.drops, this.is);
    this.had = {};
  }

  /** Sets a property of an element if it differs. */
  set(key, value, how) {
    if (this.had[key] === value) return;
    this.had[key] = value;
    how(value);
  }

  attribute(name, value) {
    this.set(name, value, () => {
      if (value === null) this.element.removeAttribute(name);
      else this.element.setAttribute(name, value);
    });
  }

  show(node, at, top, chosen, active) {
    const { element } = this;
    this.node = node;
    const level = node.level;
    this.set("top", top, () => { element.style.transform = `translateY(${top}px)`; });
    this.set("indent", level, () => { this.fold.parentNode.style.paddingLeft = `${(level - 1) * 0.9}rem`; });
    this.set("class", `row${node.isLink ? " link" : ""}${chosen ? " chosen" : ""}${active ? " active" : ""}`,
      (value) => { element.className = value; });
    this.attribute("id", `row-${at}`);
    this.attribute("aria-rowindex", at + 1);
    this.attribute("aria-level", level);
    this.attribute("aria-selected", chosen);
    this.attribute("aria-expanded", node.children.length ? !node.folded : null);
    say(this.fold, node.children.length ? (node.folded ? "▸" : "▾") : "");
    say(this.name, node.name);
    say(this.tag, node.isLink ? `to ${node.link.to || "processes"}` : node.told.default ? "default" : "");
    this.figures(node);
  }

  figures(node) {
    this.set("link", node.isLink, (value) => this.spark.element.classList.toggle("empty-plot", value));
    if (!node.isLink) {
      fill(node);
      this.spark.draw(node.recent);
    }
    say(this.rate, rate(node.rate));
    say(this.of, node.guaranteed ? ` ${percent(node.share)} of ${rate(node.guaranteed)}`
      : node.isLink ? ` ${percent(node.rate / node.most)} of ${rate(node.most)}` : " no guarantee");
    const delays = node.worst === null || node.isLink ? "" : both(delay(node.p99), delay(node.worst));
    say(this.delay, delays);
    say(this.bound, node.bound ? ` bound ${node.exceeds ? "n/a" : delay(node.bound)}` : "");
    say(this.queue, count(node.queued));
    say(this.drops, node.isLink ? "" : node.dropRate > 0 ? `${count(Math.max(node.dropRate, 1))}/s` : count(node.drops));
    const [words, bad] = node.is;
    say(this.is, words);
    this.set("bad", bad, () => this.is.classList.toggle("bad", bad));
  }
}

/** The tree. `choose` is called with the selected node. */
export class Tree {
  constructor(choose) {
    this.choose = choose;
    this.grid = find("grid");
    this.rows = find("rows");
    this.nodes = new Map();
    this.links = [];
    this.visible = [];
    this.pool = [];
    this.filter = "";
    this.order = "file";
    this.chosen = null;
    this.active = null;
    this.due = false;
    this.grid.addEventListener("keydown", (event) => this.key(event));
    for (const moved of ["scroll", "resize"]) addEventListener(moved, () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.grid);
    find("filter").addEventListener("input", (event) => {
      this.filter = event.target.value.trim().toLowerCase();
      this.arrange();
    });
    find("order").addEventListener("change", (event) => {
      this.order = event.target.value;
      this.arrange();
    });
    find("tools").addEventListener("submit", (event) => event.preventDefault());
    find("fold").addEventListener("click", () => this.foldAll(true));
    find("unfold").addEventListener("click", () => this.foldAll(false));
  }

  /** Takes the nodes of a state. */
  update(state, seconds) {
    for (const node of this.nodes.values()) node.seen = false;
    this.links = state.links.map((link) => {
      const top = this.node(keyOf(link.name));
      top.note(link, link, seconds);
      const named = new Map();
      // Parents precede their children.
      for (const told of link.classes) {
        const node = this.node(keyOf(link.name, told.name));
        node.note(link, told, seconds);
        node.parent = named.get(told.parent) ?? top;
        node.parent.children.push(node);
        named.set(told.name, node);
      }
      return top;
    });
    for (const [key, node] of this.nodes) if (!node.seen) this.nodes.delete(key);
    this.arrange();
  }

  /** Forgets the counters: a restarted daemon counts from zero. */
  restart() {
    for (const node of this.nodes.values()) node.drops = null;
  }

  node(key) {
    let node = this.nodes.get(key);
    if (!node) this.nodes.set(key, node = new Node(key));
    return node;
  }

  /** Determines the rows and their order. */
  arrange() {
    const all = [];
    const { filter } = this;
    const value = ORDERS[this.order];
    const compare = this.order === "name" ? (a, b) => a.name.localeCompare(b.name) : (a, b) => value(b) - value(a);
    const finds = (node) => {
      node.found = !filter || node.name.toLowerCase().includes(filter);
      for (const child of node.children) node.found = finds(child) || node.found;
      return node.found;
    };
    const add = (node, level) => {
      node.level = level;
      all.push(node);
      // Matches of the filter are visible even in folded nodes.
      if (node.folded && !filter) return;
      const children = this.order === "file" ? node.children : [...node.children].sort(compare);
      for (const child of children) if (child.found) add(child, level + 1);
    };
    for (const link of this.links) {
      finds(link);
      if (link.found) add(link, 1);
    }
    this.visible = all;
    const classes = this.nodes.size - this.links.length;
    const shown = all.filter((node) => !node.isLink).length;
    say(find("shown"), shown === classes ? `${classes} classes` : `${shown} of ${classes} classes`);
    this.draw();
  }

  /** Updates the visible rows once before the next frame. */
  draw() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      this.write();
    });
  }

  get height() {
    return Number(getComputedStyle(this.rows).getPropertyValue("--row")) || 50;
  }

  write() {
    const { height, visible } = this;
    const top = this.rows.getBoundingClientRect().top;
    const first = Math.max(Math.floor(-top / height) - BEYOND, 0);
    const end = Math.min(Math.ceil((innerHeight - top) / height) + BEYOND, visible.length);
    const tall = `${visible.length * height}px`;
    if (this.rows.style.height !== tall) this.rows.style.height = tall;
    let used = 0;
    for (let at = first; at < end; at += 1, used += 1) {
      if (used === this.pool.length) this.pool.push(this.add());
      const node = visible[at];
      const active = node.key === this.active;
      this.pool[used].show(node, at, at * height, node.key === this.chosen, active);
    }
    for (const row of this.pool.splice(Math.max(used, 0))) row.element.remove();
    this.grid.setAttribute("aria-rowcount", visible.length);
    const at = visible.findIndex((node) => node.key === this.active);
    if (at >= first && at < end) this.grid.setAttribute("aria-activedescendant", `row-${at}`);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  add() {
    const row = new Row((node) => {
      this.active = node.key;
      this.choose(node);
      this.draw();
    }, (node) => this.toggle(node));
    this.rows.append(row.element);
    return row;
  }

  toggle(node, folded = !node.folded) {
    node.folded = folded;
    this.arrange();
  }

  foldAll(folded) {
    for (const node of this.nodes.values()) node.folded = folded && !node.isLink;
    this.arrange();
  }

  /** Makes a row active and scrolls it into view. */
  goTo(at) {
    const node = this.visible[Math.min(Math.max(at, 0), this.visible.length - 1)];
    if (!node) return;
    this.active = node.key;
    const { height } = this;
    const top = this.rows.getBoundingClientRect().top + this.visible.indexOf(node) * height;
    // The header covers the top of the view.
    const above = document.querySelector("header").offsetHeight;
    if (top < above) scrollBy(0, top - above);
    else if (top + height > innerHeight) scrollBy(0, top + height - innerHeight);
    this.draw();
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const at = this.visible.findIndex((node) => node.key === this.active);
    const node = this.visible[at];
    const page = Math.max(Math.floor(innerHeight / this.height) - 3, 1);
    const to = {
      ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.visible.length - 1, PageDown: at + page, PageUp: at - page,
    }[event.key];
    if (to !== undefined) this.goTo(to);
    else if (event.key === "ArrowRight" && node) {
      if (node.folded) this.toggle(node, false);
      else if (node.children.length) this.goTo(at + 1);
    } else if (event.key === "ArrowLeft" && node) {
      if (node.children.length && !node.folded) this.toggle(node, true);
      else if (node.parent) this.goTo(this.visible.indexOf(node.parent));
    } else if ((event.key === "Enter" || event.key === " ") && node) this.choose(node);
    else return;
    event.preventDefault();
  }
}
