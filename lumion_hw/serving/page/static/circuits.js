// Circuits as margin bars against their limits, and the curves of their margins.

import { known, serverNow } from "/live.js";
import { byId, circuitMark, circuitStyle, duration, element, parent, setAge, setText, show } from "/format.js";
import { Curves, loadCurves, rangeButtons } from "/curves.js";

const LEGEND_MARK = 48; // px, so that all dashes are seen: grey lines differ by them alone
const lines = new Map();
let curves = null, styles = "", axis = "", ended = [];

export function drawCircuits() {
  const circuits = known.circuits, names = new Set(circuits.map((each) => each.name));
  show("circuits", circuits.length > 0);
  show("margins", circuits.length > 0);
  for (const [name, line] of lines) if (!names.has(name)) { line.row.remove(); lines.delete(name); }
  if (!circuits.length) return;
  const up = circuits.filter((each) => !each.fault && !each.unseen).length;
  setText(byId("circuit-count"), up === circuits.length ? `${up} up` : `${up} of ${circuits.length} up`);
  const top = axisTop(circuits), now = `${top}`;
  if (axis !== now) { axis = now; drawAxis(top); }
  for (const circuit of circuits) fill(lineOf(circuit.name), circuit, top);
  drawMargins();
}

// All bars have one axis: up to the overload of the receivers, so that a bar shows both ends of the permitted range.
function axisTop(circuits) {
  const tops = circuits.map((each) => (each.proof.margin_db ?? 0) + Math.max(each.proof.overload_margin_db ?? 0, 0));
  return Math.min(Math.max(5 * Math.ceil(Math.max(...tops, 5) / 5), 5), 60);
}

function drawAxis(top) {
  const step = top > 30 ? 10 : 5;
  const marks = [];
  for (let value = 0; value <= top; value += step) {
    const mark = element("span", "", value === top ? `${value} dB` : String(value));
    mark.style.left = `${100 * value / top}%`;
    marks.push(mark);
  }
  byId("circuit-axis").replaceChildren(parent("span", "", ...marks));
}

function lineOf(name) {
  let line = lines.get(name);
  if (line !== undefined) return line;
  const part = (kind) => element("span", kind);
  line = {
    mark: part("mark"), bar: part("bar"), limit: part("limit-zone"), filled: part("filled"), best: part("best"), overload: part("overload"),
    margin: part("margin number"), state: part("state"), note: part("note aside"), age: part("age"), ago: element("span", "aside", " ago"),
  };
  line.bar.setAttribute("aria-hidden", "true");
  line.bar.append(line.filled, line.limit, line.best, line.overload);
  const title = parent("span", "title", line.mark, element("span", "name", name));
  const about = parent("span", "about", line.state, " ", line.note, element("span", "aside", " · measured "), line.age, line.ago);
  line.row = parent("li", "circuit", title, line.bar, line.margin, about);
  byId("circuit-rows").append(line.row);
  lines.set(name, line);
  return line;
}

function fill(line, circuit, top) {
  const percent = (db) => `${(100 * Math.min(Math.max(db / top, 0), 1)).toFixed(2)}%`;
  const margin = circuit.margin_db, least = circuit.min_margin_db, overload = circuit.proof.overload_margin_db;
  const style = circuitStyle(circuit.name), look = JSON.stringify(style);
  if (line.look !== look) { line.look = look; line.mark.replaceChildren(circuitMark(circuit.name)); }
  line.filled.style.width = margin === null ? "0" : percent(margin);
  line.limit.style.width = percent(least);
  line.best.hidden = margin === null || !(circuit.lost_db > 0.05);
  if (!line.best.hidden) line.best.style.left = percent(margin + circuit.lost_db);
  line.overload.hidden = margin === null || overload === undefined || overload === null;
  if (!line.overload.hidden) line.overload.style.left = percent(margin + overload);
  setText(line.margin, circuit.fault ? "no light" : margin === null ? "–" : `${margin.toFixed(1)} dB`);
  const word = circuit.fault ? "BROKEN" : circuit.unseen ? "UNKNOWN" : circuit.marks.length ? "MARKED" : "light";
  setText(line.state, word);
  line.state.className = `state severity-${circuit.severity}`;
  line.row.className = `circuit bar-${circuit.severity}${line.row.classList.contains("stale") ? " stale" : ""}`;
  const why = circuit.fault || circuit.marks.join("; ") || circuit.unseen, notes = [];
  if (why) notes.push(why);
  if (circuit.lost_db > 0.05) notes.push(`${circuit.lost_db.toFixed(1)} dB below its best`);
  notes.push(`limit ${least.toFixed(1)} dB`, `up ${duration(serverNow() - circuit.since_s)}`);
  if (circuit.ends_s !== null) notes.push(`lease ${duration(circuit.ends_s - serverNow())}`);
  setText(line.note, notes.join(" · "));
  setAge(line.age, circuit.seen_s, circuit.unseen);
  line.ago.hidden = circuit.seen_s === null;
}

async function loadMargins(query) {
  const document = await loadCurves("/margins", query);
  if (document === null) return null;
  drawLegend(Object.keys(document.margin_db));
  return { time_s: document.time_s, low: document.margin_db, high: document.margin_db };
}

function drawLegend(names) {
  const active = new Set(known.circuits.map((each) => each.name));
  ended = names.filter((name) => !active.has(name));
  const entries = [...names.filter((name) => active.has(name)), ...ended].map((name) =>
    parent("span", "legend", circuitMark(name, marginStyle(name), LEGEND_MARK), active.has(name) ? " " : " ended: ", element("span", "name", name)));
  byId("margin-legend").replaceChildren(...entries);
}

const marginStyle = (name) => circuitStyle(name, ended);

function drawMargins() {
  if (curves === null) {
    const place = element("div");
    byId("margin-curves").replaceChildren(rangeButtons(), place);
    curves = new Curves(place, { label: "Margins of the circuits", unit: "dB", limit: 0, load: loadMargins, style: marginStyle });
    curves.load();
  }
  const now = known.circuits.map((each) => each.name).join();
  if (styles !== now) { styles = now; curves.load(); }
}
