// The other views: top talkers, grants, and losses at the interfaces.

import { effectsOf, Field, form, Proposal } from "./change.js";
import { doing, Outcome } from "./deed.js";
import { count, delay, find, make, percent, rate, say, span } from "./figures.js";
import { ask, path } from "./site.js";

/** A table whose rows are updated in place. */
class Table {
  constructor(caption, heads) {
    this.heads = heads;
    const head = heads.map(([name, number]) => make("th", { scope: "col", class: number ? "number" : null }, name));
    this.body = make("tbody");
    this.caption = make("caption", { class: "hint" }, caption);
    this.element = make("div", { class: "scroll" }, make("table", { class: "figures" },
      this.caption, make("thead", {}, make("tr", {}, ...head)), this.body));
  }

  add() {
    const cells = this.heads.map(([, number]) => make("td", { class: number ? "number" : null }));
    return this.body.appendChild(make("tr", {}, ...cells));
  }

  /** Shows rows. Each cell is a text, or an element that is inserted as it is. */
  show(rows) {
    while (this.body.rows.length > rows.length) this.body.lastChild.remove();
    rows.forEach((cells, at) => {
      const row = this.body.rows[at] ?? this.add();
      cells.forEach((cell, column) => {
        const place = row.cells[column];
        if (typeof cell === "string") say(place, cell);
        else if (place.firstChild !== cell) place.replaceChildren(cell);
      });
    });
  }
}

/** A view that polls the daemon while it is shown. */
class Asking {
  constructor(id, every) {
    this.section = find(id);
    this.every = every;
    this.words = make("p", { class: "empty", role: "status" });
    this.shown = false;
  }

  show(shown) {
    this.shown = shown;
    clearTimeout(this.timer);
    if (shown) this.again();
  }

  async again() {
    clearTimeout(this.timer);
    try {
      say(this.words, (await this.refresh()) ?? "");
      this.there(true);
    } catch (error) {
      this.there(error.status !== 404);
      say(this.words, error.status === 404 ? this.none : `No answer: ${error.message}.`);
      if (error.status === 401) dispatchEvent(new CustomEvent("token-to-read", { detail: error.message }));
    }
    this.words.hidden = this.words.textContent === "";
    if (this.shown) this.timer = setTimeout(() => this.again(), this.every);
  }

  there() {}
  state() {}
}

/** Top talkers: the flows with the highest recent rate. */
export class Flows extends Asking {
  constructor() {
    super("flows", 2_000);
    this.none = "This daemon does not report top talkers.";
    this.table = new Table("Top talkers", [
      ["Flow"], ["Class"], ["Link"], ["Offered", true], ["Sent", true], ["Share", true], ["Packets", true],
      ["RTT", true], ["Retransmissions", true], ["CE marks", true],
    ]);
    this.link = make("select", { onchange: () => this.again() }, make("option", { value: "" }, "all"));
    this.known = "";
    this.tools = make("p", { class: "tools" }, make("label", {}, "Link ", this.link));
    this.section.append(this.tools, this.words, this.table.element);
  }

  state(state) {
    const names = state.links.map((link) => link.name);
    if (names.join("\n") === this.known) return;
    this.known = names.join("\n");
    const { value } = this.link;
    const options = names.map((name) => make("option", { value: name }, name));
    this.link.replaceChildren(make("option", { value: "" }, "all"), ...options);
    this.link.value = names.includes(value) ? value : "";
  }

  async refresh() {
    const wanted = new URLSearchParams({ top: 20, ...(this.link.value ? { link: this.link.value } : {}) });
    const { flows, seconds } = await ask(`${path("flows")}?${wanted}`);
    say(this.table.caption, `Top talkers (last ${span(seconds)})`);
    this.table.show(flows.map((it) => [
      it.flow, it.class, it.link, rate(it.offered_bps), rate(it.bps), percent(it.share), count(it.packets),
      delay(it.rtt_us?.p50), count(it.retransmits), count(it.ecn_ce),
    ]));
    return flows.length ? null : `No flow sent anything in the last ${span(seconds)}.`;
  }

  there(is) {
    this.table.element.hidden = !is;
    this.tools.hidden = !is;
  }
}

/** Parses one or more KEY=VALUE, separated by commas or spaces. */
function pairs(text) {
  const all = text.split(/[\s,]+/).filter(Boolean).map((pair) => {
    const at = pair.indexOf("=");
    if (at < 1) throw new Error(`'${pair}' is not KEY=VALUE, such as destination-port=5060`);
    const value = pair.slice(at + 1);
    return [pair.slice(0, at), /^\d{1,9}$/.test(value) ? Number(value) : value];
  });
  if (!all.length) throw new Error("Packets: enter a condition, such as destination-port=5060");
  return Object.fromEntries(all);
}

/** Admission: a flow requests a rate and a delay, and gets a grant or the best available offers. */
export class Grants extends Asking {
  constructor() {
    super("grants", 3_000);
    this.none = "This daemon does not accept requests for grants.";
    this.table = new Table("Grants", [
      ["Grant"], ["Link"], ["Packets"], ["Rate", true], ["Sent", true], ["Delay bound", true],
      ["Max", true], ["Expires in", true], [""],
    ]);
    this.links = new Field("link", "Link", "", { choices: [] });
    const filter = new Field("filter", "Packets", "", { hint: "destination-port=5060" });
    const fields = [
      new Field("rate", "Rate", "", { hint: "such as 2mbit" }),
      new Field("burst", "Burst", "", { hint: "such as 3kb" }),
      new Field("delay", "Delay", "", { hint: "such as 20ms" }),
      new Field("lifetime", "Lifetime", "", { hint: "1h" }),
    ];
    const proposal = new Proposal(() => {
      const written = fields.filter((field) => field.text).map((field) => [field.key, field.text]);
      const body = { filter: pairs(filter.text), ...Object.fromEntries(written) };
      return { method: "POST", where: path("links", this.links.text, "grants"), body };
    }, { look: "Preview", make: "Request", told: granted, done: () => this.again() });
    this.form = make("div", {}, make("h3", {}, "Request a grant"), form([this.links, filter, ...fields], proposal));
    this.section.append(this.words, this.table.element, this.form);
  }

  state(state) {
    this.links.choose(state.links.map((link) => link.name));
  }

  async refresh() {
    const grants = await ask(path("grants"));
    this.table.show(grants.map((grant) => [
      grant.class, grant.link, filters(grant.filter), rate(grant.rate_bps), rate(grant.measured?.sent_bps),
      delay(grant.delay_us), delay(grant.measured?.delay_max_us), span(grant.expires_in_s), this.buttons(grant),
    ]));
    return grants.length ? null : "No grants.";
  }

  /** Returns the buttons of a grant, the same elements for its lifetime. */
  buttons(grant) {
    this.made ??= new Map();
    if (!this.made.has(grant.id)) {
      const button = (words, method) => make("button", {
        type: "button", "aria-label": `${words}: ${grant.class}`, onclick: () => this.send(grant.id, method),
      }, words);
      this.made.set(grant.id, make("span", { class: "buttons" }, button("Renew", "PUT"), button("Revoke", "DELETE")));
    }
    return this.made.get(grant.id);
  }

  async send(id, method) {
    try {
      await ask(path("grants", id), { method, body: method === "PUT" ? {} : undefined });
      await this.again();
    } catch (error) {
      say(this.words, `Refused: ${error.message}`);
      this.words.hidden = false;
      if (error.status === 401) dispatchEvent(new CustomEvent("token", { detail: error.message }));
    }
  }

  there(is) {
    this.table.element.hidden = !is;
    this.form.hidden = !is;
  }
}

/** Formats filters as they are typed in the field. */
function filters(all) {
  return all.map((filter) => Object.entries(filter).map(([key, value]) => `${key}=${value}`).join(", ")).join("; or ");
}

/** Formats the answer to a request for a grant: its guarantees, and the losses of other classes. */
function granted(answer) {
  const { grant } = answer;
  const facts = [
    ["Class", grant.class],
    ["Rate", `${rate(grant.granted.guaranteed_bps)} guaranteed, ${rate(grant.rate_bps)} requested`],
    ["Delay bound", delay(grant.granted.delay_us)],
    ["Buffer", `${count(grant.granted.room_packets)} packets`],
    ["Lifetime", span(grant.lifetime_s)],
  ];
  const words = answer.applied ? "Granted." : "It can be granted.";
  const list = facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
  return [make("p", {}, words), make("dl", {}, ...list), ...effectsOf(answer)];
}

/** Traffic and losses of the interfaces, and whether they are in use. */
export class Interfaces {
  constructor() {
    this.table = new Table("Interface drops", [
      ["Interface"], ["Shaped"], ["Actions"], ["Backend"], ["Lost before classification", true], ["Early drops", true],
      ["Rejected by the interface", true], ["Interface missing", true],
    ]);
    this.words = make("p", { class: "hint" });
    this.outcome = new Outcome();
    this.made = new Map();
    this.place = new Field("place", "Replaces", "", { choices: [] });
    this.name = new Field("interface", "Interface", "", { hint: "such as wan1" });
    const proposal = new Proposal(() => {
      if (!this.name.text) throw new Error("Interface: enter a name");
      return { method: "POST", where: path("interfaces", this.place.text, "attach"), body: { interface: this.name.text } };
    }, { make: "Attach" });
    this.form = make("div", { hidden: true }, make("h3", {}, "Attach another interface"), form([this.place, this.name], proposal));
    find("interfaces").append(this.table.element, this.outcome.element, this.form, this.words);
  }

  show() {}

  /** Returns the buttons of an interface, the same elements for its lifetime. */
  use(it) {
    // Traffic of local processes has no interface.
    if (!it.name) return "";
    if (!this.made.has(it.name)) {
      const { name } = it;
      const own = { now: it };
      const shape = doing("", this.outcome, () => shaping(own.now), { "aria-label": "" });
      const attach = doing("", this.outcome, () => attaching(own.now), { "aria-label": "" });
      this.made.set(name, Object.assign(own, { shape, attach, all: make("span", { class: "buttons" }, shape, attach) }));
    }
    const own = this.made.get(it.name);
    own.now = it;
    const called = (button, words) => {
      say(button, words);
      button.setAttribute("aria-label", `${words}: ${it.name}`);
    };
    called(own.shape, it.shaped ? "Stop shaping" : "Resume shaping");
    own.shape.hidden = !it.links || it.attached === false;
    called(own.attach, it.attached === false ? "Attach again" : "Detach");
    return own.all;
  }

  /** Returns whether egress of an interface is shaped. */
  shaped(it) {
    if (it.attached === false) return "✗ detached";
    return it.shaped ? "yes" : it.links ? "▼ no: switched off" : "no";
  }

  state(state) {
    const all = state.interfaces.map((it) => ({ ...it, links: state.links.some((link) => link.to === it.name) }));
    this.table.show(all.map((it) => [
      it.name || "processes", this.shaped(it), this.use(it), it.backend,
      count(it.lost), count(it.early_drops), count(it.refused), count(it.absent_drops),
    ]));
    const places = all.filter((it) => it.attached === false).map((it) => it.name);
    this.form.hidden = places.length === 0;
    this.place.choose(places);
    const open = state.open.map((it) => `towards ${it.to || "processes"}: not shaped, ${count(it.frames)} frames`);
    say(this.words, [
      `Longest forwarding pause (config change or statistics): ${delay(state.forwarding_pause_max_us)}`,
      `${state.reloads} reloads`,
      `${state.attached} attached processes`,
      ...open,
    ].join(" · "));
  }
}

/** Turns shaping of an interface off, after a confirmation, or on again. */
function shaping({ name, shaped }) {
  return {
    method: "PUT",
    where: path("interfaces", name, "shaping"),
    body: { enabled: !shaped },
    sure: shaped ? [
      `Stop shaping the egress of ${name}?`,
      "Frames pass first in, first out: rates, ceilings and delay bounds do not apply until shaping resumes.",
      "Stop shaping",
    ] : null,
    told: () => (shaped ? `The egress of ${name} passes unshaped.` : `The egress of ${name} is shaped.`),
  };
}

/** Detaches an interface, after a confirmation, or attaches it again. */
function attaching({ name, attached }) {
  if (attached === false) {
    return {
      method: "POST",
      where: `${path("interfaces", name, "attach")}?effects=0`,
      body: { interface: name },
      told: () => `${name} is attached.`,
    };
  }
  return {
    method: "POST",
    where: path("interfaces", name, "detach"),
    sure: [
      `Detach ${name}?`,
      "Frames that arrive there are not received, and its egress is dropped, until an interface is attached.",
      "Detach",
    ],
    told: () => `${name} is detached.`,
  };
}
