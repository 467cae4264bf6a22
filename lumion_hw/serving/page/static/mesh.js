// The mesh: the picture drawn by the server, with heater power, selection of a PUC, and tables with the same content.

import { known, isStale } from "/live.js";
import { element, replaced, number, loadSvg, setText } from "/tables.js";

const HEAT = ["#f1f4f7", "#fdf0d5", "#fdd9a0", "#fdb863", "#f08a3c", "#d9541e", "#a3230f"];
let drawn = -1, chosen = null, bodies = [], colours = [];

const picture = document.getElementById("mesh-picture");

export function drawMesh(changed) {
  const mesh = known.mesh;
  if (!mesh) { if (changed.has("mesh")) replaced(picture, element("p", "quiet", "this bench has no mesh with heater currents")); return; }
  if (mesh.picture !== drawn) {
    drawn = mesh.picture;
    loadSvg("/mesh.svg", picture, (svg) => {
      const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
      svg.setAttribute("viewBox", `0 52 ${width} ${height - 52}`);
      svg.setAttribute("aria-hidden", "true"); // the tables below have the same content
      bodies = known.mesh.heat_mw.map((_, puc) => svg.querySelector(`#puc-${puc} rect`));
      colours = [];
      paint(); choose(chosen);
    });
  }
  if (changed.has("mesh") || changed.has("paths")) { paint(); tell(); fillTables(); }
}

function paint() {
  const most = Math.max(1e-9, ...known.mesh.heat_mw);
  setText(document.getElementById("heat-most"), `0 to ${most > 1e-6 ? number(most) : "0"} mW`);
  known.mesh.heat_mw.forEach((heat, puc) => {
    const colour = heatColour(most > 1e-6 ? heat / most : 0);
    if (bodies[puc] && colours[puc] !== colour) { bodies[puc].setAttribute("fill", colour); colours[puc] = colour; }
  });
}

function heatColour(share) { return HEAT[Math.min(HEAT.length - 1, Math.round(share * (HEAT.length - 1)))]; }

function told(puc) {
  const mesh = known.mesh, circuits = known.paths.filter((path) => path.pucs.includes(puc)).map((path) => path.circuit);
  const use = mesh.dead.includes(puc) ? "dead" : mesh.parked.includes(puc) ? "parked" : circuits.length ? "in use" : "free";
  return [mesh.states[puc] || "no state", use, mesh.heat_mw[puc], circuits.join(", ")];
}

function tell() {
  const states = Object.values(known.mesh.states).length, mesh = known.mesh;
  const heat = mesh.heat_mw.reduce((sum, each) => sum + each, 0);
  const dead = mesh.dead.length ? `, ${mesh.dead.length} dead` : "";
  const words = `${mesh.heat_mw.length} PUCs, ${states} set, ${mesh.parked.length} parked${dead}, ${number(heat)} mW`;
  setText(document.getElementById("mesh-words"), words);
  if (chosen !== null) sayChosen();
}

function sayChosen() {
  const [state, use, heat, circuits] = told(chosen);
  const words = `PUC ${chosen}: ${state}, ${use}, ${number(heat)} mW${circuits ? `, ${circuits}` : ""}${isStale() ? " (STALE)" : ""}`;
  const place = document.getElementById("puc");
  if (place.textContent !== words) place.textContent = words;
}

function choose(puc) {
  for (const old of picture.querySelectorAll(".chosen")) old.classList.remove("chosen");
  chosen = puc;
  if (puc === null) return;
  const body = picture.querySelector(`#puc-${puc} rect`);
  if (body !== null) body.classList.add("chosen");
  sayChosen();
}

function fillTables() {
  if (document.getElementById("puc-details").open) {
    const rows = known.mesh.heat_mw.map((_, puc) => {
      const [state, use, heat, circuits] = told(puc);
      return row([puc, state, use, number(heat), circuits]);
    });
    replaced(document.getElementById("pucs"), ...rows);
  }
  if (document.getElementById("path-details").open) {
    const rows = known.paths.map((path) => {
      const words = path.power_dbm.map((power, hop) =>
        `${power === null ? "?" : power.toFixed(1)}${hop < path.pucs.length ? ` (${path.pucs[hop]})` : ""}`);
      return row([path.circuit, `port ${path.source}`, `port ${path.target}`, words.join(" ")]);
    });
    replaced(document.getElementById("paths"), ...rows);
  }
}

function row(cells) {
  const line = element("tr");
  cells.forEach((text, index) => line.append(element(index ? "td" : "th", "", text)));
  return line;
}

picture.addEventListener("click", (event) => {
  const group = event.target.closest("[id^='puc-']");
  if (group !== null) choose(Number(group.id.slice(4)));
});
picture.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || !known.mesh) return;
  event.preventDefault();
  const count = known.mesh.heat_mw.length;
  choose(chosen === null ? 0 : (chosen + step + count) % count);
});
for (const name of ["puc-details", "path-details"]) {
  document.getElementById(name).addEventListener("toggle", () => { if (known.mesh) fillTables(); });
}
const steps = document.getElementById("heat-steps");
HEAT.forEach((colour, index) => {
  const step = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of [["x", index * 17], ["width", 17], ["height", 12], ["fill", colour]]) step.setAttribute(name, value);
  steps.append(step);
});
