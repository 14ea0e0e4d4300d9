// Changes: edited in a form, previewed, and only then applied.

import { count, delay, make, rate, written } from "./figures.js";
import { doing, Outcome } from "./deed.js";
import { ask, path } from "./site.js";

/** Maximum number of effects in an answer, the worst first. */
const LISTED = 40;

const PROMISES = [
  ["guaranteed_bps", "guaranteed", rate, "no guarantee"],
  ["bound_us", "delay bound", delay, "no bound"],
  ["ceil_bps", "ceiling", rate, "no ceiling"],
  ["weight", "weight", count, "none"],
  ["room_packets", "reserved packets", count, "none"],
];

const said = (value, format, none) => (value === null || value === undefined ? none : format(value));

/** Returns the effect on a class as a sentence; an arrow shows the direction of each change. */
function effectOn({ before, after }) {
  if (!before || !after) {
    const { guaranteed_bps: least, bound_us: bound } = before ?? after;
    const promise = `guaranteed ${said(least, rate, "nothing")}, ${bound ? `delay bound ${delay(bound)}` : "no bound"}`;
    return before ? `removed; it was ${promise}` : `added: ${promise}`;
  }
  const changes = [];
  if (before.parent !== after.parent) changes.push(`moves below ${after.parent ?? "the link"}`);
  for (const [key, name, format, none] of PROMISES) {
    const [was, is] = [before[key], after[key]];
    if (was === is) continue;
    const way = was === null || is === null ? "" : is > was ? " ▲ more" : " ▼ less";
    changes.push(`${name} ${said(was, format, none)} → ${said(is, format, none)}${way}`);
  }
  return changes.join("; ");
}

/** Returns the effects of a change on all guarantees, as elements. */
export function effectsOf(changed) {
  const effects = changed.effects ?? [];
  const all = changed.effects_total ?? effects.length;
  const list = effects.map((effect) => make("li", {}, make("b", {}, effect.class), ` ${effectOn(effect)}`));
  if (all > effects.length) {
    const less = changed.effects_worse;
    list.push(make("li", {}, `and ${all - effects.length} more; ${less} of ${all} have a weaker guarantee`));
  }
  const many = all === 0 ? "No guarantees" : all === 1 ? "1 guarantee" : `${all} guarantees`;
  const end = all === 0 ? "." : ":";
  const words = changed.applied ? `Applied. ${many} changed${end}` : `${many} would change${end}`;
  const warnings = (changed.warnings ?? []).map((warning) => make("li", {}, `Warning: ${warning}`));
  return [make("p", {}, words), make("ul", { class: "effects" }, ...list, ...warnings)];
}

/**
 * Two buttons and the answer: one previews a change, the other applies it, and only if it is the change that was
 * previewed. `request` returns method, path and body, or throws a sentence. `told` formats an answer as elements;
 * `done` is called after the change was applied.
 */
export class Proposal {
  constructor(request, { look = "Preview", make: making = "Apply", told = effectsOf, done = () => {} } = {}) {
    Object.assign(this, { request, told, done });
    // Enter in a field previews; it never applies.
    this.look = make("button", { type: "submit" }, look);
    this.make = make("button", { type: "button", class: "main", disabled: true, onclick: () => this.send(false) }, making);
    this.outcome = new Outcome();
    this.element = make("div", {}, make("p", { class: "buttons" }, this.look, this.make), this.outcome.element);
    this.looked = null;
  }

  /** Discards the preview, which does not match the fields any more. */
  forget() {
    this.looked = null;
    this.make.disabled = true;
    this.outcome.tell();
  }

  async send(dry) {
    this.look.disabled = true;
    this.make.disabled = true;
    try {
      const { method, where, body } = this.request();
      const asked = JSON.stringify([method, where, body]);
      if (!dry && asked !== this.looked) throw new Error("changed since the preview: preview again");
      const changed = await ask(`${where}?effects=${LISTED}${dry ? "&dry-run=true" : ""}`, { method, body });
      this.looked = dry ? asked : null;
      this.make.disabled = !dry;
      this.outcome.tell(...this.told(changed));
      if (!dry) this.done(changed, this);
    } catch (error) {
      this.looked = null;
      this.outcome.refuse(error);
    } finally {
      this.look.disabled = false;
    }
  }

  /** Adds a line to the answer. */
  add(...inside) {
    this.outcome.element.append(make("p", { class: "buttons" }, ...inside));
  }
}

/** A field and its original value. */
export class Field {
  constructor(key, words, value, { hint = "", choices = null, number = false } = {}) {
    Object.assign(this, { key, value, number });
    this.input = choices
      ? make("select", {}, ...choices.map(([it, name]) => make("option", { value: it, selected: it === value }, name)))
      : make("input", {
        value, placeholder: hint, autocomplete: "off", spellcheck: "false", inputmode: number ? "numeric" : null,
      });
    this.element = make("label", {}, words, this.input);
    this.input.addEventListener("input", () => this.input.classList.toggle("changed", this.isChanged));
  }

  get text() {
    return this.input.value.trim();
  }

  get isChanged() {
    return this.text !== this.value;
  }

  /** Makes the current text the original value, after it was applied. */
  settle() {
    this.value = this.text;
    this.input.classList.remove("changed");
  }

  /** Replaces the choices if they differ, and keeps the selection. */
  choose(names) {
    const options = [...this.input.options];
    if (names.join("\n") === options.map((option) => option.value).join("\n")) return;
    const { value } = this.input;
    this.input.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    if (names.includes(value)) this.input.value = value;
  }

  /** The value as the daemon takes it; null removes the key. */
  get json() {
    if (this.text === "") return null;
    return this.number && /^\d+$/.test(this.text) ? Number(this.text) : this.text;
  }
}

/** Returns the keys and values of fields. */
export function keysOf(fields, onlyChanged) {
  const wanted = fields.filter((field) => (onlyChanged ? field.isChanged : field.text !== ""));
  return Object.fromEntries(wanted.map((field) => [field.key, field.json]));
}

/** Returns a form of fields with its proposal. */
export function form(fields, proposal) {
  const element = make("form", {}, make("div", { class: "fields" }, ...fields.map((field) => field.element)), proposal.element);
  element.addEventListener("input", () => proposal.forget());
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    proposal.send(true);
  });
  return element;
}

/** Offers to write the running configuration to its file. */
function offerToSave(proposal, fields) {
  for (const field of fields) field.settle();
  const save = make("button", { type: "button" }, "Save to the file");
  save.addEventListener("click", async () => {
    try {
      const { saved } = await ask("v1/save", { method: "POST", body: {} });
      save.replaceWith(`Saved to ${saved}.`);
    } catch (error) {
      save.replaceWith(`Not saved: ${error.message}`);
    }
  });
  proposal.add("It applies until the daemon ends.", save);
}

const NOTHING = "no change: edit a field first";

function changesOfClass(node, nodes) {
  const { told } = node;
  const below = new Set();
  const take = (of) => {
    below.add(of.name);
    of.children.forEach(take);
  };
  take(node);
  const inner = [...nodes.values()].filter((it) => it.link === node.link && it.told.kind === "inner");
  const others = inner.filter((it) => !below.has(it.name));
  const fields = [
    new Field("rate", "Rate (guaranteed)", written(told.rate_bps), { hint: "such as 2mbit" }),
    new Field("ceil", "Ceiling", written(told.ceil_bps), { hint: "such as 4mbit" }),
    new Field("weight", "Weight", told.weight === null ? "" : `${told.weight}`, { hint: "none", number: true }),
    new Field("burst", "Burst at the ceiling", "", { hint: told.burst ? `${told.burst} bytes now` : "such as 16kb" }),
    new Field("parent", "Parent", told.parent ?? "", {
      choices: [["", "the link"], ...others.map((it) => [it.name, it.name])],
    }),
  ];
  const where = path("links", node.link.name, "classes", node.name);
  const proposal = new Proposal(() => {
    const body = keysOf(fields, true);
    if (!Object.keys(body).length) throw new Error(NOTHING);
    return { method: "PATCH", where, body };
  }, { done: (_, it) => offerToSave(it, fields) });
  return [make("h3", {}, "Change"), form(fields, proposal)];
}

function changesOfLink(node) {
  const fields = [new Field("rate", "Rate", written(node.most), { hint: "such as 20mbit" })];
  const proposal = new Proposal(() => {
    const body = keysOf(fields, true);
    if (!Object.keys(body).length) throw new Error(NOTHING);
    return { method: "PATCH", where: path("links", node.name), body };
  }, { done: (_, it) => offerToSave(it, fields) });
  return [make("h3", {}, "Change"), form(fields, proposal)];
}

function adding(node) {
  const fields = [
    new Field("name", "Name", ""),
    new Field("rate", "Rate (guaranteed)", "", { hint: "none" }),
    new Field("ceil", "Ceiling", "", { hint: "none" }),
    new Field("weight", "Weight", "", { hint: "1", number: true }),
  ];
  const proposal = new Proposal(() => {
    const parent = node.isLink ? {} : { parent: node.name };
    return { method: "POST", where: path("links", node.link.name, "classes"), body: { ...keysOf(fields, false), ...parent } };
  }, { make: "Add", done: (_, it) => offerToSave(it, []) });
  return make("details", {}, make("summary", {}, node.isLink ? "Add a class" : "Add a class below it"), form(fields, proposal));
}

function removing(node) {
  const where = path("links", node.link.name, "classes", node.name);
  const proposal = new Proposal(() => ({ method: "DELETE", where }), { make: "Remove", done: (_, it) => offerToSave(it, []) });
  return make("details", {}, make("summary", {}, "Remove"), form([], proposal));
}

/** Drops the packets of a queue, after a confirmation. */
function emptying(node) {
  const what = node.isLink ? `link ${node.name}` : `class ${node.name}`;
  const below = node.children.length ? " and below it" : "";
  const where = path("links", node.link.name, ...(node.isLink ? [] : ["classes", node.name]), "flush");
  const outcome = new Outcome();
  const button = doing("Flush queue", outcome, () => ({
    method: "POST",
    where,
    sure: [
      `Flush the queue of ${what}?`,
      `${count(node.queued)} packets are queued there${below} now. They are lost unless their senders retransmit them.`,
      "Flush",
    ],
    told: (dropped) => `Dropped ${count(dropped.packets)} packets, ${count(dropped.bytes)} bytes.`,
  }));
  return make("details", {}, make("summary", {}, "Flush queue"), make("p", { class: "buttons" }, button), outcome.element);
}

/** All actions for a node. */
export function changes(node, nodes) {
  if (node.isLink) return [...changesOfLink(node), adding(node), emptying(node)];
  const inner = node.told.kind === "inner" ? [adding(node)] : [];
  return [...changesOfClass(node, nodes), ...inner, emptying(node), removing(node)];
}
