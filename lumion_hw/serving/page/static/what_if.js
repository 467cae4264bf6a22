// What if: plans circuits on the server without changing anything.

import { known } from "/live.js";
import { byId, cell, element, number, parent, putSvg, show, withUnit } from "/format.js";

/** Offer the ends of circuits; a bench without a calibration record or circuits has nothing to plan. */
export function drawWhatIf() {
  const { sources, targets } = known.about;
  show("what-if", sources.length > 0 && targets.length > 0 && Boolean(known.health?.record_sha256));
  for (const [id, names] of [["what-from", sources], ["what-to", targets]]) {
    if (!byId(id).childElementCount) byId(id).replaceChildren(...names.map((name) => element("option", "", name)));
  }
  if (byId("what-to").options.length > 1 && byId("what-to").value === byId("what-from").value) byId("what-to").selectedIndex = 1;
}

function budget(circuit) {
  const rows = circuit.lines.map(([what, value, unit, limit]) => {
    const head = element("th", "", what);
    head.scope = "row";
    return parent("tr", "", head, cell(value === null ? "none" : withUnit(Number(value.toFixed(2)), unit), "number"), cell(limit, "aside"));
  });
  const caption = element("caption", "name", `${circuit.name}: ${circuit.hops} PUCs, margin ${circuit.margin_db.toFixed(1)} dB`);
  return parent("table", "", caption, parent("tbody", "", ...rows));
}

async function plan(event) {
  event.preventDefault();
  const body = byId("what-if-body"), [from, to] = [byId("what-from").value, byId("what-to").value];
  const names = byId("what-both").checked ? `${from}:${to},${to}:${from}` : `${from}:${to}`;
  const query = new URLSearchParams({ circuits: names, min_margin_db: byId("what-margin").value, max_hops: byId("what-hops").value });
  if (byId("what-alone").checked) query.set("exclusive", "1");
  body.replaceChildren(element("p", "aside", "planning …"));
  try {
    const answer = await fetch(`/what-if?${query}`), document = await answer.json();
    if (!answer.ok) { body.replaceChildren(element("p", "severity-2", `${document.error}: ${document.message}`)); return; }
    const picture = element("div", "picture"), text = element("pre", "", document.words);
    text.tabIndex = 0;
    putSvg(document.svg, picture);
    const details = parent("details", "", element("summary", "", "As text"), text);
    body.replaceChildren(element("p", "", `Feasible; ${number(document.heat_mw)} mW of heater power.`), parent("div", "side", ...document.circuits.map(budget)), picture, details);
  } catch { body.replaceChildren(element("p", "severity-2", "the server did not answer")); }
}

export function beginWhatIf() { byId("what-if-form").addEventListener("submit", plan); }
