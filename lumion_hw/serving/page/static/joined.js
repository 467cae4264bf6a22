// Circuits over several meshes: which benches are reachable, and the margins of the circuits, worst first.

import { known } from "/live.js";
import { byId, cell, clock, element, parent, setAge, setText, show, table } from "/format.js";

const SHOWN = 12, STATES = ["up", "degraded", "lost"];
let shown = "";

export function drawJoined() {
  const joined = known.joined;
  show("joined", joined !== null);
  if (joined === null) return;
  setAge(byId("joined-age"), joined.time_s);
  const { time_s: _, ...content } = joined, now = JSON.stringify(content);
  if (now === shown) return;
  shown = now;
  const reachable = joined.benches.filter((bench) => !bench[2]), up = joined.circuits.filter((circuit) => circuit[2] < 2);
  setText(byId("joined-summary"), `${joined.name} · ${reachable.length} of ${joined.benches.length} benches reachable · ${joined.circuits.length ? `${up.length} of ${joined.circuits.length} circuits up` : "no circuits"}`);
  byId("joined-benches").replaceChildren(...joined.benches.map(tile));
  const rows = joined.circuits.slice(0, SHOWN).map(([name, margin, severity, problem]) => parent("tr", "",
    cell(name, "name", true), cell(STATES[severity], `state severity-${severity}`), cell(margin === null ? "–" : margin.toFixed(1), "number"), cell(problem)));
  byId("joined-circuits").replaceChildren(...rows.length ? [table("Circuits over several meshes", ["circuit", "state", "margin dB", "problem"], rows)] : []);
  const rest = joined.circuits.slice(SHOWN), margin = rest[0]?.[1];
  const more = rest.length ? `and ${rest.length} more${margin == null ? "" : `, with margins of ${margin.toFixed(1)} dB or more`}` : "";
  const change = joined.change && `last change: ${joined.change}, ${clock(joined.changed_s)}`;
  setText(byId("joined-change"), [more, change].filter(Boolean).join(" · "));
}

function tile([name, circuits, problem]) {
  const head = parent("span", "tile-head", element("strong", "name", name), " ", element("span", `state severity-${problem ? 2 : 0}`, problem ? "not reachable" : "reachable"));
  return parent("li", `tile${problem ? " condition-failed" : ""}`, head, element("span", "note aside", problem || `${circuits} ${circuits === 1 ? "circuit" : "circuits"}`));
}
