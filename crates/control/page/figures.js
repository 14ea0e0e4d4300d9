// Number formats, and helpers for the document that all parts of the page share.

const NONE = "–";

/** Formats a number of at least 0.001 with three digits. */
function digits(value) {
  if (value >= 99.95) return value.toFixed(0);
  return value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

/** Formats four digits in the largest unit below the value, as all output of the program: it can be typed back. */
function scaled(value, units) {
  let [factor, unit] = units[0];
  for (const [next, name] of units) if (value >= next) [factor, unit] = [next, name];
  const part = value / factor;
  const decimals = Math.max(3 - Math.floor(Math.log10(Math.max(part, 1))), 0);
  return `${Number(part.toFixed(decimals))}${unit}`;
}

/** Formats a rate in bit/s: `46.99mbit`. */
export function rate(bps) {
  if (bps === null || bps === undefined) return NONE;
  return scaled(Math.round(bps), [[1, "bit"], [1e3, "kbit"], [1e6, "mbit"], [1e9, "gbit"], [1e12, "tbit"]]);
}

/** Formats a time in microseconds: `15.7ms`. */
export function delay(us) {
  if (us === null || us === undefined) return NONE;
  return scaled(Math.floor(us * 1e3), [[1, "ns"], [1e3, "us"], [1e6, "ms"], [1e9, "s"]]);
}

/** Formats a count, for example of packets. */
export function count(number) {
  if (number === null || number === undefined) return NONE;
  if (number < 9_999.5) return `${Math.round(number)}`;
  let [factor, unit] = [1e3, "k"];
  for (const [next, name] of [[1e6, "M"], [1e9, "G"], [1e12, "T"]]) if (number >= next * 0.9995) [factor, unit] = [next, name];
  return `${digits(number / factor)}${unit}`;
}

/** Formats a fraction as a percentage. */
export function percent(part) {
  const hundredths = part * 100;
  if (hundredths < 0.05) return "0%";
  return `${hundredths >= 9.95 ? hundredths.toFixed(0) : hundredths.toFixed(1)}%`;
}

/** Formats a duration in seconds. */
export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5_400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} days`;
}

/** Formats a rate as the configuration has it. */
export function written(bps) {
  if (bps === null || bps === undefined) return "";
  for (const [factor, unit] of [[1e9, "gbit"], [1e6, "mbit"], [1e3, "kbit"]]) {
    // At most three decimals.
    if (bps >= factor && bps % (factor / 1e3) === 0) return `${bps / factor}${unit}`;
  }
  return `${bps}bit`;
}

/** Returns an element with attributes and contents. Text is never parsed as markup. */
export function make(name, attributes = {}, ...inside) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null) element.setAttribute(key, value);
  }
  element.append(...inside.filter((it) => it !== null));
  return element;
}

/** Sets the text of an element if it differs. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const find = (id) => document.getElementById(id);
