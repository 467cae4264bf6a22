// All devices in tables by role, polarization with values, and the page of a single device.

import { isStale, known } from "/live.js";
import { MEASURED, SEVERITY, byId, cell, clock, dbm, duration, element, number, parent, quantity, setAge, setText, show, table, withUnit } from "/format.js";
import { Curves, dropDetached, loadCurves, rangeButtons } from "/curves.js";
import { deviceOf } from "/alarms.js";
import { settingForm } from "/actions.js";

const MOST_IN_ROW = 7, MOST_CURVES = 6, MOST_LISTED = 200;
const POLARIZATION = ["polarization controller", "optimizer"];
const ROLES = { module: "Modules", "power meter": "Power meters", laser: "Lasers", "mesh controller": "Mesh controllers", "mesh controlled by states": "Mesh",
  polarimeter: "Polarimeters", "optical amplifier": "Amplifiers", attenuator: "Attenuators", "optical switch": "Switches", "": "Others" };
const WHAT = { W: "power", dBm: "power", "°C": "temperature", V: "voltage", mA: "current", nm: "wavelength", THz: "frequency", dB: "ratio" };
const LANE = /\.(tx_bias_ma|tx_power_dbm|rx_power_dbm)\.(\d+)$/; // readings of one lane have a table of their own
const LANE_COLUMNS = { tx_bias_ma: "tx bias", tx_power_dbm: "tx power", rx_power_dbm: "rx power" };

let places = new Map(), shape = "", page = null;

const pointsOf = (device) => [...known.points.keys()].filter((name) => deviceOf(name) === device);
const isArray = (name) => known.pointKinds.get(name)?.[4] === "array";
const isSetting = (name) => Boolean(known.pointKinds.get(name)?.[2]);
const short = (device, name) => name.slice(device.length + 1);

function link(device) {
  const node = element("a", "name", device);
  node.href = `#device/${encodeURIComponent(device)}`;
  return node;
}

function moreLink(device) {
  const node = link(device.name), text = `all ${device.points.length}`;
  node.textContent = text;
  node.setAttribute("aria-label", `${text} values of ${device.name}`);
  return node;
}

// -- values ------------------------------------------------------------------------------------------------------------

function remember(point, place) {
  if (!places.has(point)) places.set(point, []);
  places.get(point).push(place);
}

function fill(place, name) {
  const value = known.points.get(name), about = known.pointKinds.get(name);
  if (value === undefined || about === undefined || place.was === value) return;
  place.was = value;
  const [read, time, severity, why] = value, text = withUnit(read, about[0]);
  setText(place.node, read === null && (severity || why) ? why || SEVERITY[severity] : severity ? `${text} ${SEVERITY[severity]}` : text);
  place.node.className = `number severity-${severity}`;
  if (place.age) setAge(place.age, time, severity === 3 ? why : "");
}

function fillCondition(row) {
  const silent = known.health?.silent[row.device];
  const times = row.points.map((name) => known.points.get(name)?.[1] ?? 0);
  setAge(row.age, times.length ? Math.min(...times) : 0, silent ? silent[1] : "");
  const worst = Math.max(0, ...row.points.map((name) => known.points.get(name)?.[2] ?? 0));
  setText(row.state, silent ? "SILENT" : SEVERITY[worst]);
  row.state.className = `state severity-${silent ? 3 : worst}`;
}

/** Build the tables if devices or readings are new, and fill in all values that have changed. */
export function drawDevices() {
  if (known.about === null) return;
  const now = `${location.hash}\n${[...known.points.keys()].join("\n")}${JSON.stringify(known.about.devices)}`;
  if (now !== shape) { shape = now; places = new Map(); page === null ? buildOverview() : buildPage(page); }
  for (const [name, listed] of places) for (const place of listed) fill(place, name);
  for (const row of document.querySelectorAll(".condition")) fillCondition(row);
  drawAlignments();
}

// -- overview ----------------------------------------------------------------------------------------------------------

function buildOverview() {
  const devices = known.about.devices.map((device) => ({ ...device, points: pointsOf(device.name) })), parts = [];
  const roleOf = (device) => (POLARIZATION.includes(device.role) || device.role in ROLES ? device.role : "");
  for (const [role, title] of Object.entries(ROLES)) {
    const here = devices.filter((device) => roleOf(device) === role);
    if (!here.length) continue;
    parts.push(parent("div", "devices", element("h3", "", title), deviceTable(here, title)));
    if (role === "module" && here.some((device) => device.points.some((name) => LANE.test(name)))) parts.push(parent("div", "devices", element("h3", "", "Lanes"), laneTable(here)));
  }
  byId("device-body").replaceChildren(...parts);
  show("devices", parts.length > 0);
  buildPolarization(devices.filter((device) => POLARIZATION.includes(device.role)));
}

function deviceRow(device, points, cells) {
  const state = element("td"), age = element("td", "age"), row = parent("tr", "condition", parent("th", "name", link(device.name)), state, ...cells, age);
  row.cells[0].scope = "row";
  Object.assign(row, { device: device.name, points, state, age });
  return row;
}

function valueCell(point) {
  const node = element("td", "number");
  if (known.points.has(point)) remember(point, { node });
  return node;
}

function deviceTable(devices, title) {
  const readings = (device) => device.points.filter((name) => !isSetting(name) || ["flag", "choice"].includes(known.pointKinds.get(name)?.[4]));
  const columns = [...new Set(devices.flatMap((device) => readings(device).filter((name) => !LANE.test(name)).map((name) => short(device.name, name).replace(MEASURED, ""))))];
  const shown = columns.slice(0, MOST_IN_ROW), isCut = columns.length > shown.length;
  const rows = devices.map((device) => {
    const cells = shown.map((column) => {
      const plain = `${device.name}.${column}`;
      return valueCell(known.points.has(plain + MEASURED) ? plain + MEASURED : plain); // the measured value, not the setting
    });
    if (isCut) cells.push(parent("td", "", moreLink(device)));
    return deviceRow(device, readings(device).length ? readings(device) : device.points, cells);
  });
  return table(`Table: ${title}`, ["device", "alarm", ...shown.map(quantity), ...(isCut ? ["more"] : []), "age"], rows);
}

function laneTable(devices) {
  const rows = devices.flatMap((device) => {
    const lanes = [...new Set(device.points.map((name) => LANE.exec(name)?.[2]).filter(Boolean))];
    return lanes.map((lane) => parent("tr", "", cell(device.name, "name", true), cell(lane), ...Object.keys(LANE_COLUMNS).map((column) => valueCell(`${device.name}.${column}.${lane}`))));
  });
  return table("Table: lanes of modules", ["device", "lane", ...Object.values(LANE_COLUMNS)], rows);
}

function buildPolarization(devices) {
  show("polarization", devices.length > 0);
  if (!devices.length) return;
  const rows = devices.map((device) => {
    const values = element("td", "number"), loss = element("td", "number"), when = element("td", "aside");
    const whole = device.points.find((name) => isArray(name)) ?? device.points.find((name) => !isArray(name));
    if (whole) remember(whole, { node: values });
    const row = deviceRow(device, device.points, [device.feeds ? parent("td", "", link(device.feeds)) : element("td"), values, loss, when]);
    Object.assign(row, { loss, when });
    row.classList.add("controller");
    return row;
  });
  byId("polarization-body").replaceChildren(table("Table: polarization controllers", ["controller", "alarm", "module", "settings", "loss left", "aligned", "age"], rows));
}

function drawAlignments() {
  for (const row of document.querySelectorAll("tr.controller")) {
    const [time, isAligned, loss] = known.alignments[row.device] ?? [undefined, true, null];
    setText(row.loss, !isAligned ? "not aligned" : loss === null ? "–" : `${loss.toFixed(3)} dB`);
    row.loss.className = `number severity-${isAligned ? 0 : 1}`;
    setText(row.when, time === undefined ? "not since the start" : clock(time));
  }
}

// -- the page of one device --------------------------------------------------------------------------------------------

/** Show the page of the device in the address (#device/NAME), or everything. */
export function followAddress() {
  const name = location.hash.startsWith("#device/") ? decodeURIComponent(location.hash.slice(8)) : null;
  if (name === page) return;
  page = name;
  byId("overview").hidden = page !== null;
  byId("device").hidden = page === null;
  byId("device-page").replaceChildren();
  dropDetached();
  drawDevices();
  if (page !== null) { byId("device-head").focus(); window.scrollTo(0, 0); }
}

function buildPage(name) {
  const device = known.about.devices.find((each) => each.name === name), body = byId("device-page");
  setText(byId("device-head"), name);
  if (!device) { body.replaceChildren(element("p", "severity-2", `This bench has no device ${name}.`)); return; }
  const points = pointsOf(name), readings = points.filter((point) => !isSetting(point)), settings = points.filter((point) => isSetting(point) && !isArray(point));
  const state = element("span"), age = element("span", "age");
  const status = parent("p", "condition", state, `  ${device.role || "device"}, kind ${device.kind}${device.feeds ? ", feeds " : ""}`, device.feeds ? link(device.feeds) : "", " · age ", age);
  Object.assign(status, { device: name, points, state, age });
  const groups = Map.groupBy(readings, (point) => known.pointKinds.get(point)?.[0] ?? "");
  const panels = [...groups].map(([unit, members]) => panel(name, unit, members));
  const parts = [status];
  const sides = [];
  if (panels.length) { parts.push(rangeButtons()); sides.push(parent("div", "panels", ...panels.map((each) => each.node))); }
  if (settings.length) sides.push(parent("div", "", element("h3", "", "Settings"), settingsTable(name, settings)));
  parts.push(parent("div", sides.length > 1 ? "beside" : "", ...sides));
  if (!points.length) parts.push(element("p", "aside", "This device has no readings and no settings."));
  body.replaceChildren(...parts);
  dropDetached();
  for (const each of panels) each.curves.load();
}

function panel(device, unit, members) {
  const isPower = unit === "W", isFlag = members.every((point) => known.pointKinds.get(point)?.[4] !== "number");
  const chosen = new Set(members.slice(0, MOST_CURVES)), place = element("div");
  const curves = new Curves(place, {
    label: `Readings of ${device}`, unit: isPower ? "dBm" : unit === "1" ? "" : unit,
    convert: isPower ? (value) => (value > 0 ? Math.max(dbm(value), -100) : -100) : (value) => value,
    load: (query) => loadCurves("/history", [...Object.entries(query), ...[...chosen].map((name) => ["name", name])]),
    style: (name) => ({ class: `circuit-${[...chosen].indexOf(name) % 7}` }),
  });
  const marks = new Map();
  const paint = () => { for (const [name, mark] of marks) mark.className = chosen.has(name) ? `swatch circuit-${[...chosen].indexOf(name) % 7}` : "swatch"; };
  const rows = members.slice(0, MOST_LISTED).map((name) => {
    const node = element("td", "number"), age = element("td", "age"), mark = element("span", "swatch"), box = element("input");
    marks.set(name, mark);
    box.type = "checkbox"; box.checked = chosen.has(name); box.setAttribute("aria-label", `curve of ${short(device, name)}`);
    box.addEventListener("change", () => { if (box.checked) chosen.add(name); else chosen.delete(name); paint(); curves.load(); });
    remember(name, { node, age });
    const head = parent("th", "name", parent("label", "tick", box, mark, quantity(short(device, name))));
    head.scope = "row";
    return parent("tr", "", head, node, age);
  });
  paint();
  const title = isFlag ? "state" : `${WHAT[unit] ?? "readings"}${unit === "1" || !unit ? "" : `, ${isPower ? "dBm" : unit}`}`;
  const node = parent("div", "panel", element("h3", "", title), place, table(`Readings of ${device} in ${unit || "numbers"}`, ["reading", "value", "age"], rows));
  if (members.length > MOST_LISTED) node.append(element("p", "aside", `The first ${MOST_LISTED} of ${members.length} readings.`));
  return { node, curves };
}

function settingsTable(device, settings) {
  const box = element("input"), list = element("div", "settings"), writes = known.about.writes;
  const build = () => {
    const matching = settings.filter((name) => short(device, name).includes(box.value.trim()));
    const rows = matching.slice(0, MOST_LISTED).map((name) => {
      const node = element("td", "number"), age = element("td", "age"), about = known.pointKinds.get(name);
      remember(name, { node, age });
      const limits = about[3].length ? about[3].join(", ") : about[4] === "flag" ? "on, off" : about[1] ? `${number(about[1][0])} to ${number(about[1][1])} ${about[0]}` : "";
      const cells = [cell(quantity(short(device, name)), "name", true), node, cell(limits, "aside"), age];
      if (writes) cells.push(parent("td", "", settingForm(name, `new value of ${short(device, name)}`)));
      const row = parent("tr", "", ...cells);
      fill({ node, age }, name);
      return row;
    });
    const parts = [table(`Settings of ${device}`, ["setting", "value", "limits", "age", ...(writes ? ["change"] : [])], rows)];
    if (matching.length > MOST_LISTED) parts.push(element("p", "aside", `The first ${MOST_LISTED} of ${matching.length} settings; type a part of a name.`));
    list.replaceChildren(...parts);
  };
  build();
  if (settings.length <= 20) return list;
  box.addEventListener("input", build);
  box.type = "search";
  return parent("div", "settings", parent("label", "", "settings whose name contains", box), list);
}
