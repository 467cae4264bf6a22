// Curves over time with a common time range: drag to zoom, gaps stay gaps. Keys on a curve: + and - zoom, arrows move, 0 shows all.

import { serverNow } from "/live.js";
import { clock, duration, element, number, parent, svgElement } from "/format.js";

const REFRESH_MS = 5000, HEIGHT = 176, LEFT = 46, RIGHT = 10, TOP = 8, BASE = 22, TICK_WIDTH = 54, MIN_SPAN_S = 20, GAP_FACTOR = 3, MIN_GAP_S = 7;
const TICKS_S = [5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];
const SPANS = [["10 min", 600], ["1 h", 3600], ["all", 0]];

// The last `span` seconds (0: everything), or from `start` to `end` after zooming.
const range = { span: 0, start: null, end: null };
const curves = new Set(), choices = new Set();

function query() {
  if (range.start !== null) return { from: range.start, to: range.end };
  return range.span ? { from: serverNow() - range.span } : {};
}

function setRange(changes) {
  Object.assign(range, { start: null, end: null }, changes);
  for (const button of choices) button.setAttribute("aria-pressed", String(range.start === null && Number(button.value) === range.span));
  for (const curve of curves) curve.load();
}

/** Return the buttons that choose the time range of all curves. */
export function rangeButtons() {
  const group = element("p", "ranges");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", "Time range");
  for (const [text, span] of SPANS) {
    const button = element("button", "plain small", text);
    button.type = "button"; button.value = String(span);
    button.setAttribute("aria-pressed", String(range.start === null && range.span === span));
    button.addEventListener("click", () => setRange({ span }));
    choices.add(button);
    group.append(button);
  }
  group.append(element("span", "aside hint", "drag over a curve to zoom"));
  return group;
}

/** Forget the curves and buttons of a view that is no longer shown. */
export function dropDetached() {
  for (const curve of curves) if (!curve.place.isConnected) curves.delete(curve);
  for (const button of choices) if (!button.isConnected) choices.delete(button);
}

/** Curves of several readings with one unit.
 *
 * `load(query)` returns `{time_s, low, high}` with values by name, or null; `style(name)` the attributes of a line.
 */
export class Curves {
  constructor(place, { label, unit, load, style, limit = null, convert = (value) => value }) {
    Object.assign(this, { place, label, unit, fetch: load, style, limit, convert, data: null, width: 0 });
    this.readout = element("p", "readout aside");
    this.picture = element("div", "curves");
    place.replaceChildren(this.picture, this.readout);
    new ResizeObserver(() => { if (this.picture.clientWidth !== this.width) this.draw(); }).observe(this.picture);
    curves.add(this);
  }

  async load() {
    if (document.hidden || !this.place.isConnected || this.place.offsetParent === null) return;
    try {
      const data = await this.fetch(query());
      if (data !== null) { this.data = data; this.draw(); }
    } catch { /* the stream reports a lost server */ }
  }

  draw() {
    this.width = this.picture.clientWidth;
    const data = this.data, times = data?.time_s ?? [];
    if (this.width < 60 || times.length < 2) {
      if (data !== null) this.picture.replaceChildren(element("p", "aside", "The first samples come in a few seconds."));
      return;
    }
    const names = Object.keys(data.low);
    const bounds = (side, pick) => names.flatMap((name) => data[side][name]).filter((value) => value !== null).map(this.convert).reduce(pick, this.limit ?? undefined);
    const least = names.length ? bounds("low", lesser) : undefined, most = names.length ? bounds("high", greater) : undefined;
    const [bottom, top, step] = scale(least ?? 0, most ?? 1);
    const inner = this.width - LEFT - RIGHT, begin = times[0], span = Math.max(times.at(-1) - begin, 1e-3);
    const level = (value) => HEIGHT - BASE - (value - bottom) / (top - bottom) * (HEIGHT - BASE - TOP);
    const x = (time) => LEFT + (time - begin) / span * inner;
    const y = (value) => level(this.convert(value));
    const svg = svgElement("svg", { width: this.width, height: HEIGHT, viewBox: `0 0 ${this.width} ${HEIGHT}`, role: "img", tabindex: 0, "aria-label": this.summary(names, data) });
    for (let value = bottom; value <= top + step / 2; value += step) {
      const at = level(value);
      svg.append(svgElement("path", { class: "grid", d: `M${LEFT} ${at.toFixed(1)}H${this.width - RIGHT}` }));
      svg.append(svgElement("text", { class: "tick", x: LEFT - 6, y: at + 4, "text-anchor": "end" }, tickText(value, step)));
    }
    for (const time of timeTicks(begin, times.at(-1), inner)) {
      svg.append(svgElement("path", { class: "grid", d: `M${x(time).toFixed(1)} ${TOP}V${HEIGHT - BASE}` }));
      const place = Math.min(x(time), this.width - TICK_WIDTH / 2);
      svg.append(svgElement("text", { class: "tick", x: place, y: HEIGHT - 6, "text-anchor": "middle" }, span < 300 ? clock(time) : clock(time).slice(0, 5)));
    }
    const gaps = gapStarts(times);
    for (const index of gaps) this.drawGap(svg, x(times[index - 1]), x(times[index]));
    if (this.limit !== null) svg.append(svgElement("path", { class: "limit", d: `M${LEFT} ${level(this.limit).toFixed(1)}H${this.width - RIGHT}` }));
    for (const name of names) this.drawCurve(svg, name, gaps, x, y);
    this.picture.replaceChildren(svg);
    this.listen(svg, begin, span, inner);
  }

  drawGap(svg, from, to) {
    svg.append(svgElement("rect", { class: "gap", x: from.toFixed(1), width: Math.max(to - from, 1).toFixed(1), y: TOP, height: HEIGHT - BASE - TOP }));
    if (to - from > 60) svg.append(svgElement("text", { class: "tick", x: (from + to) / 2, y: TOP + 14, "text-anchor": "middle" }, "no data"));
  }

  drawCurve(svg, name, gaps, x, y) {
    const { low, high, time_s: times } = this.data, style = this.style(name);
    let line = "", band = "", pieces = [];
    const close = () => {
      if (pieces.length === 1) line += `h1.5`;
      const upper = pieces.map(([at, top]) => `${at} ${top}`), lower = pieces.toReversed().map(([at, , bottom]) => `${at} ${bottom}`);
      if (pieces.some(([, top, bottom]) => bottom - top > 1)) band += `M${[...upper, ...lower].join("L")}Z`;
      pieces = [];
    };
    times.forEach((time, index) => {
      if (low[name][index] === null) { close(); return; }
      if (gaps.has(index)) close();
      const at = x(time).toFixed(1), top = Number(y(high[name][index]).toFixed(1)), bottom = Number(y(low[name][index]).toFixed(1));
      line += `${pieces.length ? "L" : "M"}${at} ${((top + bottom) / 2).toFixed(1)}`;
      pieces.push([at, top, bottom]);
    });
    close();
    if (band) svg.append(svgElement("path", { d: band, class: `band ${style.class}` }));
    const path = svgElement("path", { d: line || "M0 0", ...style, class: `line ${style.class}` });
    path.append(svgElement("title", {}, name));
    svg.append(path);
  }

  summary(names, data) {
    const parts = names.map((name) => {
      const values = data.low[name].filter((value) => value !== null).map(this.convert);
      return values.length ? `${name} ${number(values.reduce(lesser))} to ${number(data.high[name].filter((value) => value !== null).map(this.convert).reduce(greater))}` : `${name} no value`;
    });
    return `${this.label} in ${this.unit} over ${duration(data.time_s.at(-1) - data.time_s[0])}: ${parts.slice(0, 8).join(", ")}`;
  }

  listen(svg, begin, span, inner) {
    const timeAt = (event) => begin + Math.min(Math.max((event.clientX - svg.getBoundingClientRect().left - LEFT) / inner, 0), 1) * span;
    const place = (time) => LEFT + (time - begin) / span * inner;
    const cursor = svgElement("rect", { class: "cursor", y: TOP, height: HEIGHT - BASE - TOP, width: 0 });
    svg.append(cursor);
    let from = null;
    svg.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse") { from = timeAt(event); svg.setPointerCapture(event.pointerId); } });
    svg.addEventListener("pointermove", (event) => {
      const time = timeAt(event), start = place(Math.min(from ?? time, time));
      cursor.setAttribute("x", start); cursor.setAttribute("width", Math.max(Math.abs(place(time) - place(from ?? time)), 1));
      this.say(time);
    });
    svg.addEventListener("pointerup", (event) => {
      const [start, end] = [from, timeAt(event)].sort((one, other) => one - other);
      if (from !== null && end - start >= MIN_SPAN_S) setRange({ start, end });
      from = null;
    });
    svg.addEventListener("pointerleave", () => { cursor.setAttribute("width", 0); this.readout.textContent = ""; });
    svg.addEventListener("dblclick", () => setRange({ span: 0 }));
    svg.addEventListener("keydown", (event) => {
      const quarter = span / 4, end = begin + span;
      const ways = { "+": [begin + quarter, end - quarter], "-": [begin - span / 2, end + span / 2], ArrowLeft: [begin - quarter, end - quarter], ArrowRight: [begin + quarter, end + quarter] };
      if (event.key === "0") setRange({ span: 0 });
      else if (ways[event.key] && ways[event.key][1] - ways[event.key][0] >= MIN_SPAN_S) setRange({ start: ways[event.key][0], end: ways[event.key][1] });
      else return;
      event.preventDefault();
      setTimeout(() => this.picture.querySelector("svg")?.focus(), 300);
    });
  }

  say(time) {
    const { time_s: times, low } = this.data;
    let index = times.findIndex((each) => each >= time);
    if (index < 0) index = times.length - 1;
    const text = (value) => (value === null ? "–" : number(Number(this.convert(value).toFixed(4))));
    const values = Object.keys(low).map((name) => `${name.slice(name.indexOf(".") + 1)} ${text(low[name][index])}`);
    this.readout.replaceChildren(parent("strong", "", clock(times[index])), `  ${values.join("   ")} ${this.unit}`);
  }
}

const lesser = (one, other) => (other === undefined || one < other ? one : other);
const greater = (one, other) => (other === undefined || one > other ? one : other);

/** Return the lowest and highest tick of an axis, and the step between ticks. */
export function scale(least, most) {
  const middle = (least + most) / 2, span = Math.max(most - least, Math.abs(middle) * 1e-4, 1e-9);
  const rough = span / 3, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((each) => each >= rough);
  const bottom = Math.floor(least / step + 1e-9) * step;
  const top = Math.max(Math.ceil(most / step - 1e-9) * step, bottom + step);
  return [bottom, top, step];
}

export function tickText(value, step) {
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
  return Math.abs(value) >= 1e5 || (value !== 0 && digits > 5) ? value.toExponential(1) : value.toFixed(digits);
}

function timeTicks(begin, end, width) {
  const step = TICKS_S.find((each) => (end - begin) / each <= width / 75) ?? 14400;
  const offset = new Date(begin * 1000).getTimezoneOffset() * 60, ticks = [];
  for (let time = Math.ceil((begin - offset) / step) * step + offset; time <= end; time += step) ticks.push(time);
  return ticks;
}

/** Return the indexes of samples before which no sample was taken for unusually long. */
function gapStarts(times) {
  const steps = times.slice(1).map((time, index) => time - times[index]), sorted = steps.toSorted((one, other) => one - other);
  const usual = sorted[Math.floor(sorted.length / 2)];
  return new Set(steps.flatMap((step, index) => (step > Math.max(GAP_FACTOR * usual, MIN_GAP_S) ? [index + 1] : [])));
}

/** Ask the server for curves; `path` is /margins or /history. */
export async function loadCurves(path, parameters) {
  const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, { cache: "no-store" });
  return answer.ok ? answer.json() : null;
}

export function beginCurves() {
  setInterval(() => { if (range.start === null) for (const curve of curves) curve.load(); }, REFRESH_MS);
  document.addEventListener("visibilitychange", () => { for (const curve of curves) curve.load(); });
}
