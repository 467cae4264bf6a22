// Circuits with margin curves, devices with readings, and helpers for all parts of the page.
// Names come from bench files and devices, so they are written as text only, never as HTML.

import { known, isStale, serverNow } from "/live.js";

const SVG = "http://www.w3.org/2000/svg";
export const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00"];
const DASHES = ["", "10 3.5", "3 2.5", "16 3 3 3", "22 4", "6 3", "12 3 3 3 3 3", "4 6"];
const GONE = "#9aa6b2"; // colour of circuits that are no longer active
const SEVERITY = ["OK", "MINOR", "MAJOR", "INVALID"];
const MOST_IN_ROW = 8;
const MEASURED = ".measured"; // ending of a reading if a setting has the same name
const COLUMNS = 6; // columns of the table of circuits

export function element(name, kind = "", text = "") {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== "") made.textContent = text;
  return made;
}

export function drawnElement(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== "") made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

export function replaced(place, ...children) { place.replaceChildren(...children); }

export function setText(place, text) { if (place.textContent !== text) place.textContent = text; }

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
  if (Array.isArray(value)) return value.length > 6 ? `${value.length} values` : `${value.map(number).join(" ")} ${unit}`;
  if (unit === "W") {
    if (value <= 0) return "≤ 0 W";
    return `${(10 * Math.log10(value * 1000)).toFixed(2)} dBm`;
  }
  return unit ? `${number(value)} ${unit}` : number(value);
}

export function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return "0.0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** Show the age of a value in an element from now on; `invalid` gives the reason if the value is invalid. */
export function setAge(place, takenS, invalid = "") {
  place.takenS = takenS; place.invalid = invalid;
  place.classList.add("age");
  refreshAge(place);
}

function refreshAge(place) {
  const stale = isStale() || Boolean(place.invalid);
  const age = place.takenS ? duration(serverNow() - place.takenS) : "never";
  setText(place, stale ? `STALE ${age}` : age);
  if (place.classList.contains("is-stale") !== stale) {
    place.classList.toggle("is-stale", stale);
    const line = place.closest("tr, h2, .reading");
    if (line !== null) line.classList.toggle("stale", stale);
  }
}

export function refreshAges() { for (const place of document.querySelectorAll(".age")) if (place.takenS !== undefined) refreshAge(place); }

const loads = new WeakMap();

/** Load a picture from the server into an element; a newer request cancels a running one. */
export async function loadSvg(url, place, then = () => {}) {
  const mine = {};
  loads.set(place, mine);
  try {
    const answer = await fetch(url, { cache: "no-store" });
    if (!answer.ok || loads.get(place) !== mine) return;
    putSvg(await answer.text(), place);
    then(place.querySelector("svg"));
  } catch { /* the stream reports a lost server */ }
}

export function putSvg(text, place) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (parsed.nodeName !== "svg") return;
  const svg = document.importNode(parsed, true);
  if (!svg.hasAttribute("viewBox")) svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
  svg.removeAttribute("width"); svg.removeAttribute("height");
  replaced(place, svg);
}

// -- circuits ----------------------------------------------------------------------------------------------------------

const circuitLines = new Map();

export function styleOf(circuit) {
  const index = known.paths.findIndex((path) => path.circuit === circuit);
  const at = index < 0 ? known.circuits.findIndex((each) => each.name === circuit) : index;
  if (at < 0) return { stroke: GONE, "stroke-dasharray": "" };
  return { stroke: COLOURS[at % COLOURS.length], "stroke-dasharray": DASHES[at % DASHES.length] };
}

export function drawCircuits() {
  const names = new Set(known.circuits.map((each) => each.name));
  for (const [name, line] of circuitLines) if (!names.has(name)) { line.row.remove(); circuitLines.delete(name); }
  const body = document.getElementById("circuit-rows");
  for (const circuit of known.circuits) fillCircuit(lineOf(circuit.name, body), circuit);
  setText(document.getElementById("circuit-count"), String(known.circuits.length));
  if (!known.circuits.length && !body.childElementCount) {
    const line = element("tr"), cell = element("td", "quiet", "no circuits");
    cell.colSpan = COLUMNS; line.append(cell); body.append(line);
  } else if (known.circuits.length) body.querySelector("td.quiet")?.parentElement.remove();
}

function lineOf(name, body) {
  let line = circuitLines.get(name);
  if (line === undefined) {
    const row = element("tr"), cells = Array.from({ length: COLUMNS }, (_, index) => element(index ? "td" : "th", index && index !== 3 ? "number" : ""));
    const mark = drawnElement("svg", { width: 30, height: 8, viewBox: "0 0 30 8", "aria-hidden": "true" });
    const stroke = drawnElement("path", { d: "M0 4H30", "stroke-width": 3.5 });
    mark.append(stroke);
    cells[0].scope = "row";
    cells[0].append(mark, " ", element("span", "name", name));
    row.append(...cells);
    body.append(row);
    line = { row, cells, stroke };
    circuitLines.set(name, line);
  }
  return line;
}

function fillCircuit(line, circuit) {
  const words = circuit.fault ? `BROKEN: ${circuit.fault}` : circuit.unseen ? "unknown" : circuit.marks.length ? `MARKED: ${circuit.marks.join("; ")}` : "light";
  const stands = duration(serverNow() - circuit.since_s) + (circuit.ends_s === null ? "" : `, ${duration(circuit.ends_s - serverNow())} left`);
  const style = styleOf(circuit.name);
  for (const [key, value] of Object.entries(style)) if (value) line.stroke.setAttribute(key, value); else line.stroke.removeAttribute(key);
  const margin = circuit.fault ? "no light" : circuit.margin_db === null ? "–" : `${circuit.margin_db.toFixed(1)} dB`;
  const texts = [null, margin, circuit.lost_db === null ? "–" : `${circuit.lost_db.toFixed(1)} dB`, words, stands];
  texts.forEach((text, index) => { if (text !== null) setText(line.cells[index], text); });
  line.cells[3].className = `severity-${circuit.severity}`;
  setAge(line.cells[5], circuit.seen_s, circuit.unseen);
}

// -- margins over time -------------------------------------------------------------------------------------------------

let curves = null;

export async function loadMargins() {
  if (document.hidden) return;
  try {
    const answer = await fetch("/margins", { cache: "no-store" });
    if (answer.ok) { curves = await answer.json(); drawMargins(); }
  } catch { /* the stream reports a lost server */ }
}

export function drawMargins() {
  if (curves === null) return;
  const place = document.getElementById("margins"), names = Object.keys(curves.margin_db), times = curves.time_s;
  if (times.length < 2) { replaced(place, element("p", "quiet", "no active circuits yet")); return; }
  const values = names.flatMap((name) => curves.margin_db[name]).filter((each) => each !== null);
  const low = Math.floor(Math.min(0, ...values)), high = low + 4 * Math.ceil((Math.max(1, ...values) - low) / 4), [width, height, left, base] = [620, 190, 38, 22];
  const x = (time) => left + (time - times[0]) / (times.at(-1) - times[0]) * (width - left - 8);
  const y = (value) => height - base - (value - low) / (high - low) * (height - base - 8);
  const svg = drawnElement("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "font-size": 11 });
  const worst = names.map((name) => `${name} lowest ${number(Math.min(...curves.margin_db[name].filter((each) => each !== null)))} dB`);
  svg.append(drawnElement("title", {}, `Margin in dB over the last ${duration(times.at(-1) - times[0])}: ${worst.join(", ")}`));
  for (let step = 0; step <= 4; step += 1) {
    const value = low + (high - low) * step / 4;
    svg.append(drawnElement("path", { d: `M${left} ${y(value)}H${width - 8}`, stroke: "#d5dbe1", fill: "none" }));
    svg.append(drawnElement("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end", fill: "#4a5561" }, value.toFixed(0)));
  }
  svg.append(drawnElement("text", { x: left, y: height - 5, fill: "#4a5561" }, `${duration(times.at(-1) - times[0])} ago`));
  svg.append(drawnElement("text", { x: width - 8, y: height - 5, "text-anchor": "end", fill: "#4a5561" }, "now; dB above sensitivity"));
  for (const name of names) {
    let way = "", isDown = false;
    curves.margin_db[name].forEach((value, index) => {
      if (value === null) { isDown = false; return; }
      way += `${isDown ? "L" : "M"}${x(times[index]).toFixed(1)} ${y(value).toFixed(1)}`;
      isDown = true;
    });
    const line = drawnElement("path", { d: way || "M0 0", fill: "none", "stroke-width": 2.2, ...styleOf(name) });
    line.append(drawnElement("title", {}, name));
    svg.append(line);
  }
  replaced(place, svg);
}

// -- devices -----------------------------------------------------------------------------------------------------------

const readings = new Map();
let shape = "";

const ORDER = ["module", "power meter", "laser", "mesh controller", "mesh controlled by states", "polarimeter", "polarization controller", "optimizer", ""];
const HEADS = { "": "Others", module: "Modules", "power meter": "Meters", laser: "Lasers", "mesh controller": "Mesh controller",
  "mesh controlled by states": "Mesh", polarimeter: "Polarimeters", "polarization controller": "Polarization controllers", optimizer: "Polarization optimizers" };

export function deviceOf(point) {
  let found = "";
  for (const device of known.about.devices) if (point.startsWith(`${device.name}.`) && device.name.length > found.length) found = device.name;
  return found;
}

export function drawDevices() {
  if (known.about === null) return;
  const names = [...known.points.keys()], now = names.join("\n") + JSON.stringify(known.about.devices);
  if (now !== shape) { shape = now; buildDevices(names); }
  for (const [name, places] of readings) for (const place of places) fillReading(place, name);
  for (const row of document.querySelectorAll("tr.device")) fillDeviceAge(row);
}

function fillReading(place, name) {
  const value = known.points.get(name), about = known.pointKinds.get(name);
  if (value === undefined || about === undefined || place.was === value) return;
  if (place.holder !== undefined && !place.holder.open) return;
  place.was = value;
  const text = withUnit(value[0], about[0]), severity = value[2];
  setText(place.value, value[0] === null && (severity || value[3]) ? value[3] || SEVERITY[severity] : severity ? `${text} ${SEVERITY[severity]}` : text);
  place.value.className = `number severity-${severity}`;
  place.value.title = severity ? value[3] : Array.isArray(value[0]) ? "" : `${value[0]} ${about[0]}`;
  if (place.age) setAge(place.age, value[1], severity === 3 ? value[3] : "");
  place.row?.classList.toggle("stale", severity === 3 || isStale());
}

function fillDeviceAge(row) {
  const silent = known.health?.silent[row.device];
  const taken = row.points.map((name) => known.points.get(name)?.[1] ?? 0);
  setAge(row.ageCell, Math.min(...taken), silent ? silent[1] : "");
  const worst = Math.max(0, ...row.points.map((name) => known.points.get(name)?.[2] ?? 0));
  setText(row.stateCell, silent ? "SILENT" : SEVERITY[worst]);
  row.stateCell.className = `severity-${silent ? 3 : worst}`;
}

function buildDevices(names) {
  readings.clear();
  const places = [], devices = known.about.devices.map((device) => ({ ...device, points: names.filter((name) => deviceOf(name) === device.name) }));
  for (const role of ORDER) {
    const here = devices.filter((device) => (ORDER.includes(device.role) ? device.role : "") === role);
    if (!here.length) continue;
    places.push(element("h3", "", HEADS[role]));
    places.push(deviceTable(here));
    if (role === "module" && here.some((device) => device.points.some((name) => LANE.test(name)))) places.push(element("h4", "", "Lanes"), laneTable(here));
    places.push(pointList(here, HEADS[role]));
  }
  replaced(document.getElementById("device-body"), ...places);
}

// Readings of one lane of a module, such as lr4-a.tx_power_dbm.2, have a table of their own.
const LANE = /\.(tx_bias_ma|tx_power_dbm|rx_power_dbm)\.(\d+)$/;
const LANE_COLUMNS = { tx_bias_ma: "tx bias", tx_power_dbm: "tx power", rx_power_dbm: "rx power" };

function laneTable(devices) {
  const table = element("table"), head = element("tr"), body = element("tbody"), scroll = element("div", "scroll"), top = element("thead");
  for (const text of ["device", "lane", ...Object.values(LANE_COLUMNS)]) {
    const cell = element("th", "", text); cell.scope = "col"; head.append(cell);
  }
  for (const device of devices) {
    const lanes = [...new Set(device.points.map((name) => LANE.exec(name)?.[2]).filter(Boolean))];
    for (const lane of lanes) {
      const row = element("tr"), name = element("th", "name", device.name);
      name.scope = "row"; row.append(name, element("td", "", lane));
      for (const column of Object.keys(LANE_COLUMNS)) {
        const cell = element("td", "number"), point = `${device.name}.${column}.${lane}`;
        if (known.points.has(point)) remember(point, { value: cell, row: null });
        row.append(cell);
      }
      body.append(row);
    }
  }
  top.append(head); table.append(top, body); scroll.append(table);
  scroll.tabIndex = 0; scroll.setAttribute("role", "region"); scroll.setAttribute("aria-label", "Table: lanes of modules");
  return scroll;
}

function deviceTable(devices) {
  const short = (device, name) => name.slice(device.name.length + 1);
  const shown = (device) => device.points.filter((name) => !known.pointKinds.get(name)?.[2] || known.pointKinds.get(name)?.[4] === "flag" || known.pointKinds.get(name)?.[4] === "choice");
  const inRow = (device) => shown(device).filter((name) => !LANE.test(name)).map((name) => short(device, name).replace(MEASURED, ""));
  const columns = [...new Set(devices.flatMap(inRow))].slice(0, MOST_IN_ROW);
  const table = element("table"), head = element("tr"), body = element("tbody");
  for (const text of ["device", "alarm", ...columns.map((each) => each.replace(/_(dbm|c|v|ma|w|nm|db|thz|s)(?=\.|$)/, "").replaceAll("_", " ")), "age"]) {
    const cell = element("th", "", text); cell.scope = "col"; head.append(cell);
  }
  for (const device of devices) {
    const row = element("tr", "device"), name = element("th", "name", device.name);
    name.scope = "row"; name.title = device.kind;
    row.device = device.name; row.points = shown(device).length ? shown(device) : device.points;
    row.stateCell = element("td"); row.ageCell = element("td", "age");
    row.append(name, row.stateCell);
    for (const column of columns) {
      const cell = element("td", "number"), plain = `${device.name}.${column}`;
      const point = known.points.has(plain + MEASURED) ? plain + MEASURED : plain; // not what was set, but what is measured
      if (known.points.has(point)) remember(point, { value: cell, row: null }); else cell.textContent = "";
      row.append(cell);
    }
    row.append(row.ageCell);
    body.append(row);
  }
  const top = element("thead"), scroll = element("div", "scroll");
  top.append(head); table.append(top, body); scroll.append(table);
  scroll.tabIndex = 0; scroll.setAttribute("role", "region"); scroll.setAttribute("aria-label", `Table: ${devices.map((each) => each.name).join(", ")}`);
  return scroll;
}

function remember(point, place) {
  if (!readings.has(point)) readings.set(point, []);
  readings.get(point).push(place);
}

function pointList(devices, head) {
  const details = element("details"), count = devices.reduce((sum, device) => sum + device.points.length, 0);
  details.append(element("summary", "", `${head}: all ${count} readings and settings`));
  for (const device of devices) {
    const grid = element("div", "readings");
    for (const name of device.points) {
      const line = element("div", "reading"), value = element("span", "number"), age = element("span", "age");
      line.append(element("span", "name", name.slice(device.name.length + 1)), value, age);
      grid.append(line);
      remember(name, { value, age, row: line, holder: details });
    }
    details.append(element("h4", "name", device.name), grid);
  }
  details.addEventListener("toggle", drawDevices);
  return details;
}

// -- alarms ------------------------------------------------------------------------------------------------------------

let announced = new Set();

const NO_LIGHT = new Set(["dark", "no signal"]);

// Readings of a device with the same severity and cause are one alarm.
function pointAlarms(silent) {
  const groups = new Map();
  for (const [name, value] of known.points) {
    const device = deviceOf(name), severity = value[2], why = value[3] || SEVERITY[severity];
    if (!severity || device in silent) continue;
    const cause = NO_LIGHT.has(why) ? "no light" : why, key = JSON.stringify([severity, device || name, cause]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push([severity, name, why]);
  }
  return [...groups].map(([key, members]) => {
    if (members.length === 1) return members[0];
    const [severity, device] = JSON.parse(key), whys = new Set(members.map((each) => each[2]));
    return [severity, device, `${whys.size > 1 ? "no light" : members[0][2]} (${members.length} readings)`];
  });
}

export function alarms() {
  const found = [], silent = known.health?.silent ?? {};
  for (const [name, [since, why]] of Object.entries(silent)) found.push([3, name, `silent for ${duration(serverNow() - since)}: ${why}`]);
  for (const fault of known.health?.faults ?? []) found.push([2, "mesh controller", `switched off: ${fault}`]);
  if (known.health?.trouble) found.push([2, "keeping", known.health.trouble]);
  for (const circuit of known.circuits) if (circuit.severity) found.push([circuit.severity, circuit.name, circuit.fault || circuit.marks.join("; ")]);
  found.push(...pointAlarms(silent));
  return found.sort((one, other) => other[0] - one[0]);
}

let listed = "";

export function drawAlarms() {
  if (known.about === null) return "";
  const found = alarms(), now = JSON.stringify(found);
  if (now === listed) return "";
  listed = now;
  const grave = found.filter((each) => each[0] > 1).map((each) => each[1]);
  const rows = found.slice(0, 12).map(([severity, name, why]) => {
    const line = element("li", `severity-${severity}`);
    line.append(element("strong", "", SEVERITY[severity]), " ", element("span", "name", name), ` ${why}`);
    return line;
  });
  if (found.length > 12) rows.push(element("li", "quiet", `and ${found.length - 12} more`));
  if (!rows.length) rows.push(element("li", "quiet", "none"));
  replaced(document.getElementById("alarm-list"), ...rows);
  setText(document.getElementById("alarm-count"), String(found.length));
  const fresh = grave.filter((name) => !announced.has(name));
  announced = new Set(grave);
  return fresh.length ? `Alarm: ${fresh.slice(0, 3).join(", ")}` : "";
}
