// The mesh: the picture drawn by the server, with heater power, selection of a PUC, and tables with the same content.

import { known, isStale } from "/live.js";
import { byId, element, loadSvg, number, setText, show, svgElement } from "/format.js";

const N_HEAT = 7; // classes heat-0 to heat-6 in page.css
const TITLE = 52, LIST_ROW = 25, LIST_HEAD = 30; // heights in the picture of the server
let drawn = -1, chosen = null, bodies = [], levels = [];

const picture = byId("mesh-picture");

export function drawMesh(changed) {
  const mesh = known.mesh;
  show("mesh", Boolean(mesh));
  if (!mesh) return;
  if (mesh.picture !== drawn) {
    drawn = mesh.picture;
    loadSvg("/mesh.svg", picture, (svg) => {
      const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
      // Without the title, and without the list of circuits at the end, which the page shows elsewhere.
      const list = LIST_ROW * svg.querySelectorAll("[id^='path-']").length + LIST_HEAD;
      svg.setAttribute("viewBox", `0 ${TITLE} ${width} ${height - TITLE - list}`);
      svg.setAttribute("aria-hidden", "true"); // the tables below have the same content
      bodies = known.mesh.heat_mw.map((_, puc) => svg.querySelector(`#puc-${puc} rect`));
      levels = [];
      paint(); choose(chosen);
    });
  }
  if (changed.has("mesh") || changed.has("paths")) { paint(); summarize(); fillTables(); }
}

function paint() {
  const most = Math.max(1e-9, ...known.mesh.heat_mw);
  setText(byId("heat-most"), most > 1e-6 ? `0 to ${number(most)} mW; line width shows optical power` : "all heaters are off");
  known.mesh.heat_mw.forEach((heat, puc) => {
    const level = Math.min(N_HEAT - 1, Math.round((most > 1e-6 ? heat / most : 0) * (N_HEAT - 1)));
    if (bodies[puc] && levels[puc] !== level) {
      bodies[puc].classList.remove(`heat-${levels[puc]}`);
      bodies[puc].classList.add(`heat-${level}`);
      levels[puc] = level;
    }
  });
}

function describe(puc) {
  const mesh = known.mesh, circuits = known.paths.filter((path) => path.pucs.includes(puc)).map((path) => path.circuit);
  const use = mesh.dead.includes(puc) ? "dead" : mesh.parked.includes(puc) ? "parked" : circuits.length ? "in use" : "free";
  return [mesh.states[puc] || "no state", use, mesh.heat_mw[puc], circuits.join(", ")];
}

function summarize() {
  const mesh = known.mesh, used = new Set(known.paths.flatMap((path) => path.pucs)).size;
  const heat = mesh.heat_mw.reduce((sum, each) => sum + each, 0);
  const dead = mesh.dead.length ? `, ${mesh.dead.length} dead` : "";
  const facts = `${mesh.heat_mw.length} PUCs: ${used} on circuits, ${mesh.parked.length} parked (unused)${dead} · heaters use ${heat.toFixed(1)} mW in total · age `;
  setText(byId("mesh-summary"), facts);
  if (chosen !== null) describeChosen();
}

function describeChosen() {
  const [state, use, heat, circuits] = describe(chosen);
  const text = `PUC ${chosen}: ${state}, ${use}, ${number(heat)} mW${circuits ? `, ${circuits}` : ""}${isStale() ? " (STALE)" : ""}`;
  setText(byId("puc"), text);
}

function choose(puc) {
  for (const old of picture.querySelectorAll(".chosen")) old.classList.remove("chosen");
  chosen = puc;
  if (puc === null) return;
  const body = picture.querySelector(`#puc-${puc} rect`);
  if (body !== null) body.classList.add("chosen");
  describeChosen();
}

function fillTables() {
  if (byId("puc-details").open) {
    const rows = known.mesh.heat_mw.map((_, puc) => {
      const [state, use, heat, circuits] = describe(puc);
      return row([puc, state, use, number(heat), circuits]);
    });
    byId("pucs").replaceChildren(...rows);
  }
  byId("path-details").hidden = !known.paths.length;
  if (byId("path-details").open) {
    const rows = known.paths.map((path) => {
      const powers = path.power_dbm.map((power, hop) =>
        `${power === null ? "?" : power.toFixed(1)}${hop < path.pucs.length ? ` (${path.pucs[hop]})` : ""}`);
      return row([path.circuit, `port ${path.source}`, `port ${path.target}`, powers.join(" ")]);
    });
    byId("paths").replaceChildren(...rows);
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
  byId(name).addEventListener("toggle", () => { if (known.mesh) fillTables(); });
}
for (let level = 0; level < N_HEAT; level += 1) {
  byId("heat-steps").append(svgElement("rect", { x: level * 16, width: 16, height: 10, class: `heat-${level}` }));
}
