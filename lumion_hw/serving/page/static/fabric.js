// Servers, jobs and spares with their condition.

import { known } from "/live.js";
import { byId, element, parent, setText, show } from "/format.js";

const SEVERITY = { "in service": 0, "warm spare": 0, "cold spare": 1, failed: 2, "cut off": 1, drained: -1, "job member": -1, spare: -1, unused: -1 };
let shown = "";

export function drawFabric() {
  const fabric = known.fabric, now = JSON.stringify([fabric, known.health?.silent]);
  show("fabric", fabric !== null);
  if (fabric === null || now === shown) return;
  shown = now;
  const jobs = fabric.jobs.map((job) => `${job.name}: ${job.units.join(" – ")}${job.condition === "connected" ? "" : ` ${job.condition.toUpperCase()}`}`);
  setText(byId("fabric-jobs"), [...jobs, fabric.manager ? "" : "not maintained by this server", fabric.plans_ready || !fabric.manager ? "" : "planning replacements"].filter(Boolean).join(" · "));
  byId("fabric-units").replaceChildren(...fabric.units.map(tile));
}

function tile(unit) {
  const parts = [parent("span", "tile-head", element("strong", "name", unit.name), " ", element("span", `state severity-${SEVERITY[unit.condition]}`, unit.condition))];
  const job = known.fabric.jobs.find((each) => each.name === unit.job);
  const spares = unit.replacements.length && `can be replaced by ${unit.replacements.join(", ")}`;
  const notes = [unit.job && `job ${unit.job}`, unit.replaces && `in place of ${unit.replaces}`, job?.condition === "refused" && "job refused", spares, unit.reason].filter(Boolean);
  parts.push(element("span", "note aside", notes.join(" · ")));
  const modules = element("span", "modules");
  for (const name of unit.modules) {
    const link = element("a", "name", name), silent = known.health?.silent[name];
    link.href = `#device/${encodeURIComponent(name)}`;
    modules.append(link, silent ? " SILENT " : " ");
  }
  parts.push(modules);
  return parent("li", `tile condition-${unit.condition.replace(" ", "-")}`, ...parts);
}
