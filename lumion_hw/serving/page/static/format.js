// Elements, numbers with units, ages, and the styles of circuits. Names from bench files and devices are written as text.

import { isStale, known, serverNow } from "/live.js";

const SVG = "http://www.w3.org/2000/svg";
const N_COLOURS = 7; // classes circuit-0 to circuit-6 in page.css
const DASHES = ["", "10 3.5", "3 2.5", "16 3 3 3", "22 4", "6 3", "12 3 3 3 3 3", "4 6"];
const FIGURE_SPACE = "\u2007"; // as wide as a digit
export const SEVERITY = ["OK", "MINOR", "MAJOR", "INVALID"];

export function element(name, kind = "", text = "") {
  const node = document.createElement(name);
  if (kind) node.className = kind;
  if (text !== "") node.textContent = text;
  return node;
}

export function svgElement(name, attributes, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== "") node.setAttribute(key, value);
  if (text !== "") node.textContent = text;
  return node;
}

/** Return an element with children, which may be texts. */
export function parent(name, kind, ...children) {
  const node = element(name, kind);
  node.append(...children);
  return node;
}

export const byId = (id) => document.getElementById(id);

export function setText(node, text) { if (node.textContent !== text) node.textContent = text; }

/** Show a section only while it has content. */
export function show(id, isShown) { if (byId(id).hidden === isShown) byId(id).hidden = !isShown; }

/** Format a number with three or four significant digits. */
export function number(value) {
  if (typeof value !== "number") return "–";
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1);
  return value.toFixed(size >= 1000 ? 1 : size >= 10 ? 2 : 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

export function withUnit(value, unit) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "on" : "off";
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.length > 6 ? `${value.length} values` : `${value.map((each) => number(each).padStart(6, FIGURE_SPACE)).join(" ")} ${unit}`;
  if (unit === "W") return value <= 0 ? "≤ 0 W" : `${dbm(value).toFixed(2)} dBm`;
  const size = Math.abs(value);
  if (unit === "mA" && size > 0 && size < 0.1) return `${(1000 * value).toFixed(2)} µA`;
  const digits = { dBm: 2, dB: 2, "°C": 1, V: 3, mA: size === 0 ? 0 : size < 10 ? 3 : 2 }[unit];
  const text = digits !== undefined && size < 1e4 ? value.toFixed(digits) : number(value);
  return unit && unit !== "1" ? `${text} ${unit}` : text;
}

export const MEASURED = ".measured"; // ending of a reading if a setting has the same name

/** Return the words for a reading or setting, from its name without the device. */
export const quantity = (name) => name.replace(MEASURED, "").replace(/_(dbm|c|v|ma|w|nm|db|thz|s|ps)(?=\.|$)/, "").replaceAll("_", " ");

export function dbm(watts) { return 10 * Math.log10(watts * 1000); }

export function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return "0.0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

const timeOfDay = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const clock = (seconds) => timeOfDay.format(new Date(seconds * 1000));

/** Return a cell of a table header or body. */
export function cell(text, kind = "", isHead = false) {
  const node = element(isHead ? "th" : "td", kind, text);
  if (isHead) node.scope = kind === "name" ? "row" : "col";
  return node;
}

/** Return a table inside a region that scrolls if it must; on a phone each row becomes a block with labels. */
export function table(label, heads, rows) {
  const isNumber = (index) => rows.length > 0 && rows.every((row) => row.cells[index]?.classList.contains("number"));
  const body = parent("tbody", "", ...rows);
  const head = parent("thead", "", parent("tr", "", ...heads.map((text, index) => cell(text, isNumber(index) ? "number" : "", true))));
  const region = parent("div", "scroll", parent("table", "", head, body));
  for (const row of rows) [...row.cells].forEach((each, index) => { each.dataset.label = heads[index]; });
  region.tabIndex = 0;
  region.setAttribute("role", "region");
  region.setAttribute("aria-label", label);
  return region;
}

// -- ages --------------------------------------------------------------------------------------------------------------

/** Show the age of a value in an element from now on; `invalid` gives the reason if the value is invalid. */
export function setAge(place, measuredS, invalid = "") {
  place.measuredS = measuredS; place.invalid = invalid;
  place.classList.add("age");
  refreshAge(place);
}

function refreshAge(place) {
  const stale = isStale() || Boolean(place.invalid);
  const age = place.measuredS ? duration(serverNow() - place.measuredS) : "never";
  setText(place, stale ? `STALE ${age}` : age);
  if (place.classList.contains("is-stale") !== stale) {
    place.classList.toggle("is-stale", stale);
    place.closest("tr, li, h2")?.classList.toggle("stale", stale);
  }
}

export function refreshAges() { for (const place of document.getElementsByClassName("age")) refreshAge(place); }

// -- pictures ----------------------------------------------------------------------------------------------------------

/** Return class and dashes of a circuit, as in the picture of the mesh; the circuits in `ended` are grey, each with its own dashes. */
export function circuitStyle(name, ended = []) {
  const path = known.paths.findIndex((each) => each.circuit === name);
  const index = path < 0 ? known.circuits.findIndex((each) => each.name === name) : path;
  const dashes = DASHES[Math.max(ended.indexOf(name), 0) % DASHES.length];
  return index < 0 ? { class: "circuit-gone", "stroke-dasharray": dashes } : { class: `circuit-${index % N_COLOURS}`, "stroke-dasharray": DASHES[index % DASHES.length] };
}

export function circuitMark(name, style = circuitStyle(name), width = 26) {
  const mark = svgElement("svg", { width, height: 8, viewBox: `0 0 ${width} 8`, "aria-hidden": "true" });
  mark.append(svgElement("path", { d: `M0 4H${width}`, "stroke-width": 3.5, ...style }));
  return mark;
}

export function putSvg(text, place) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (parsed.nodeName !== "svg") return null;
  const svg = document.importNode(parsed, true);
  if (!svg.hasAttribute("viewBox")) svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
  svg.removeAttribute("width"); svg.removeAttribute("height");
  place.replaceChildren(svg);
  return svg;
}

const requests = new WeakMap();

/** Load a picture from the server into an element; a newer request cancels a running one. */
export async function loadSvg(path, place, then = () => {}) {
  const own = {};
  requests.set(place, own);
  try {
    const answer = await fetch(path, { cache: "no-store" });
    if (!answer.ok || requests.get(place) !== own) return;
    const svg = putSvg(await answer.text(), place);
    if (svg !== null) then(svg);
  } catch { /* the stream reports a lost server */ }
}
