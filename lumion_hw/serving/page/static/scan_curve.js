// The curve of a running scan: its readings over the setting that it changes.

import { scale, tickText } from "/curves.js";
import { dbm, element, number, parent, svgElement } from "/format.js";

const HEIGHT = 200, LEFT = 52, RIGHT = 12, TOP = 8, BASE = 36, LEAST_WIDTH = 240, TICKS_PX = 90;

/** Return the picture of a curve and its legend, for a place of the given width in px. */
export function scanCurve(curve, placeWidth) {
  const names = Object.keys(curve.readings), isPower = curve.unit === "W", unit = isPower ? "dBm" : curve.unit === "1" ? "" : curve.unit;
  const convert = (value) => (value === null || !isPower ? value : value > 0 ? dbm(value) : null); // the noise of a dark meter may be negative
  const lines = names.map((name) => curve.readings[name].map(convert));
  const values = lines.flat().filter((value) => value !== null);
  if (!values.length || curve.x.length < 2) return [];
  const width = Math.max(placeWidth, LEAST_WIDTH), inner = width - LEFT - RIGHT, begin = Math.min(...curve.x), end = Math.max(...curve.x);
  const [bottom, top, step] = scale(Math.min(...values), Math.max(...values));
  const x = (value) => LEFT + (value - begin) / (end - begin || 1) * inner;
  const y = (value) => HEIGHT - BASE - (value - bottom) / (top - bottom) * (HEIGHT - BASE - TOP);
  const done = Math.max(...lines.map((line) => line.filter((value) => value !== null).length));
  const label = `${names.join(", ")} over ${curve.setting}: ${done} of ${curve.x.length} points, ${number(Math.min(...values))} to ${number(Math.max(...values))} ${unit}`;
  const svg = svgElement("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (let value = bottom; value <= top + step / 2; value += step) {
    svg.append(svgElement("path", { class: "grid", d: `M${LEFT} ${y(value).toFixed(1)}H${width - RIGHT}` }));
    svg.append(svgElement("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, tickText(value, step)));
  }
  drawAxis(svg, begin, end, inner, x);
  svg.append(svgElement("text", { class: "tick", x: LEFT + inner / 2, y: HEIGHT - 4, "text-anchor": "middle" }, `${curve.setting}${curve.setting_unit ? `, ${curve.setting_unit}` : ""}`));
  lines.forEach((line, index) => svg.append(svgElement("path", { class: `line circuit-${index}`, d: outline(line, curve.x, x, y) })));
  const legend = parent("p", "aside", ...names.map((name, index) => parent("span", "legend", element("span", `swatch circuit-${index}`), ` ${name}  `)));
  return [element("h3", "", `Readings${unit ? `, ${unit}` : ""}`), parent("div", "curves", svg), legend];
}

function drawAxis(svg, begin, end, inner, x) {
  const [first, last, step] = scale(begin, end), every = Math.ceil((last - first) / step * TICKS_PX / inner) || 1;
  for (let value = first; value <= last + step / 2; value += step * every) {
    if (value < begin - step * 1e-6 || value > end + step * 1e-6) continue;
    svg.append(svgElement("path", { class: "grid", d: `M${x(value).toFixed(1)} ${TOP}V${HEIGHT - BASE}` }));
    svg.append(svgElement("text", { class: "tick", x: x(value), y: HEIGHT - BASE + 15, "text-anchor": "middle" }, tickText(value, step)));
  }
}

// A point without a number is a gap; a single point is a short dash.
function outline(line, settings, x, y) {
  let path = "", isOpen = false;
  line.forEach((value, index) => {
    if (value === null) { isOpen = false; return; }
    path += `${isOpen ? "L" : "M"}${x(settings[index]).toFixed(1)} ${y(value).toFixed(1)}${isOpen ? "" : "h1.5"}`;
    isOpen = true;
  });
  return path || "M0 0";
}
