// The history of a class: fetched once, then updated, and drawn.

import { make } from "./figures.js";
import { ask, path } from "./site.js";

const COLUMNS = ["rate_bps", "queued_packets", "p99_us", "max_us", "drops"];
/** Maximum number of steps of a second and of a minute. */
const MOST = { hour: 3_600, week: 10_080 };

/** The history of one class in one span. */
export class History {
  constructor(link, name, span) {
    this.about = { link, class: name, span };
    this.empty();
  }

  empty() {
    this.start = null;
    this.step = 1;
    this.columns = Object.fromEntries(COLUMNS.map((name) => [name, []]));
    this.asked = 0;
    this.grew = performance.now();
  }

  get length() {
    return this.columns.rate_bps.length;
  }

  get end() {
    return this.start === null ? null : this.start + this.length * this.step;
  }

  /** Fetches new steps. */
  async refresh() {
    const now = performance.now();
    // Without new steps for this long, the daemon was restarted or its clock was set.
    if (this.start !== null && now - this.grew > this.step * 3_000 + 5_000) this.empty();
    // A step lasts a minute, so polling more often is useless.
    if (this.start !== null && now - this.asked < this.step * 500) return;
    this.asked = now;
    const since = this.start === null ? {} : { since: this.end };
    const told = await ask(`${path("history")}?${new URLSearchParams({ ...this.about, ...since })}`);
    if (since.since !== undefined && told.rate_bps.length && told.start !== since.since) {
      this.empty();
      return this.refresh();
    }
    if (this.start === null && told.rate_bps.length) this.start = told.start;
    this.step = told.step_s;
    if (told.rate_bps.length) this.grew = now;
    for (const name of COLUMNS) this.columns[name].push(...told[name]);
    const over = Math.max(this.length - MOST[this.about.span], 0);
    for (const name of COLUMNS) this.columns[name].splice(0, over);
    if (this.start !== null) this.start += over * this.step;
  }

  /** Returns a column at these times, `seconds` each: means, except for delays and queues their maximum. */
  at(times, seconds, name) {
    const column = this.columns[name];
    const mean = name === "rate_bps" || name === "drops";
    const steps = Math.round(seconds / this.step);
    return times.map((time) => {
      const begin = Math.round((time - (this.start ?? time)) / this.step);
      const known = column.slice(Math.max(begin, 0), Math.max(begin + steps, 0)).filter((it) => it !== null);
      if (!known.length) return null;
      return mean ? known.reduce((a, b) => a + b) / known.length : Math.max(...known);
    });
  }
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Widths and dashes, by which lines differ in addition to their colours. */
export const LINES = [
  { color: "--s1", width: 2, border: "solid" },
  { color: "--s2", width: 2, dash: [9, 4], border: "dashed" },
  { color: "--s3", width: 2.5, dash: [2, 4], border: "dotted" },
  { color: "--s4", width: 2, dash: [12, 4, 2, 4], border: "dashed" },
  { color: "--s5", width: 1.5, dash: [5, 2], border: "dashed" },
  { color: "--s6", width: 1.2, dash: [1, 2], border: "dotted" },
];

/** A line chart over time. `format` formats a value; with `log` the axis is logarithmic. */
export class Plot {
  constructor(title, lines, format, { log = false, height = 170 } = {}) {
    this.lines = lines;
    this.format = format;
    this.log = log;
    this.title = title;
    this.height = height;
    this.place = make("div", { class: "plot", role: "img" });
    this.element = make("figure", {}, make("figcaption", {}, title), this.place);
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.place);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.recolour = () => this.draw(true);
    this.scheme.addEventListener("change", this.recolour);
  }

  end() {
    this.observer.disconnect();
    this.scheme.removeEventListener("change", this.recolour);
    this.chart?.destroy();
  }

  options(width) {
    // Labels only whole decades on a logarithmic axis.
    const decade = (_, splits) => splits.map((it) => (Number.isInteger(Math.log10(it)) ? it : null));
    const only = this.log ? { filter: decade } : {};
    const axis = { stroke: style("--text"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line"), width: 1 } };
    // Removes trailing zeros, which only changing figures need.
    const short = (it) => this.format(it).replace(/\.0+ /, " ").replace(/(\.\d*[1-9])0+ /, "$1 ");
    const value = (_, it) => (it === null || it === undefined ? "–" : this.format(it));
    return {
      width,
      height: this.height,
      cursor: { y: false, drag: { x: false, y: false } },
      scales: {
        x: { time: true, range: () => this.range },
        y: this.log
          ? { distr: 3, range: (_, least, most) => decades(least, most) }
          : { range: (_, least, most) => [0, most > 0 ? most * 1.08 : 1] },
      },
      axes: [{ ...axis, size: 32, space: 62, values: (_, splits, at, space, step) => splits.map((it) => clock(it, step)) }, { ...axis, ...only,
        grid: { ...axis.grid, ...only }, ticks: { ...axis.ticks, ...only }, size: 78, values: (_, splits) => splits.map((it) => (it === null ? "" : short(it))) }],
      series: [{ label: "Time", value: (_, it) => (it ? clock(it, 1) : "–") }, ...this.lines.map(({ label, color, width: thick, dash, fill }) => ({
        label, stroke: style(color), width: thick, dash, value, points: { show: false }, fill: fill ? `${style(color)}22` : undefined,
      }))],
      legend: { markers: { width: 3, dash: (_, at) => (at > 0 ? this.lines[at - 1].border : "solid") } },
    };
  }

  /** Sets the data: times, a column for each line, and the range of times to show. */
  set(times, columns, range) {
    this.range = range;
    this.data = [times, ...columns];
    this.draw(false);
    const said = this.lines.map(({ label }, at) => {
      const known = columns[at].filter((it) => it !== null);
      if (!known.length) return `${label}: nothing`;
      const most = known.reduce((a, b) => Math.max(a, b));
      return `${label}: ${this.format(known.at(-1))} at the end, at most ${this.format(most)}`;
    });
    this.place.setAttribute("aria-label", `${this.title}. ${said.join("; ")}`);
  }

  draw(anew) {
    const width = Math.floor(this.place.clientWidth);
    if (!this.data || width === 0) return;
    if (this.chart && !anew) this.chart.setData(this.data);
    else {
      this.chart?.destroy();
      this.chart = new uPlot(this.options(width), this.data, this.place);
    }
    // The legend shows the last values if the pointer is not over the plot.
    if (this.chart.cursor.idx === null || this.chart.cursor.left < 0) {
      this.chart.setLegend({ idx: this.data[0].length - 1 });
    }
  }

  fit() {
    const width = Math.floor(this.place.clientWidth);
    if (!this.chart) this.draw(false);
    else if (width > 0 && width !== this.chart.width) this.chart.setSize({ width, height: this.height });
  }
}

/** Formats a time of day, or a date, depending on the distance of the times. */
function clock(seconds, step) {
  const time = new Date(seconds * 1_000);
  if (step >= 86_400) return time.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return time.toLocaleTimeString("en-GB").slice(0, step < 60 ? 8 : 5);
}

/** Returns whole decades around the data. */
function decades(least, most) {
  if (!(most > 0)) return [10, 10_000];
  const low = 10 ** Math.floor(Math.log10(Math.max(least, 1e-3)));
  const high = 10 ** Math.ceil(Math.log10(most * 1.01));
  return [Math.min(low, high / 10), high];
}
