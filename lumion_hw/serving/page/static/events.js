// Events as sentences, newest first; the data of an event are loaded when it is opened.

import { known } from "/live.js";
import { SEVERITY, byId, clock, element, parent, show } from "/format.js";

const SHOWN = 80, FEW = 12;
let last = 0;

export function drawEvents() {
  const list = byId("event-list");
  if (known.events.length && known.events.at(-1)[0] < last) { last = 0; list.replaceChildren(); }
  for (const [number, time, name, sentence, severity] of known.events) {
    if (number <= last) continue;
    list.prepend(line(number, time, name, sentence, severity));
    last = number;
  }
  while (list.childElementCount > SHOWN) list.lastElementChild.remove();
  byId("events").classList.toggle("short", list.childElementCount < FEW);
  show("events", list.childElementCount > 0);
}

function line(number, time, name, sentence, severity) {
  const details = element("details"), summary = parent("summary", "", element("time", "", clock(time)), " ");
  if (severity) summary.append(element("span", `state severity-${severity}`, SEVERITY[severity]), " ");
  summary.append(element("span", "name", sentence));
  details.append(summary);
  details.addEventListener("toggle", () => { if (details.open && details.childElementCount === 1) load(details, number); });
  return parent("li", "", details);
}

async function load(details, number) {
  const text = element("pre");
  text.tabIndex = 0;
  details.append(text);
  try {
    const answer = await fetch(`/event?number=${number}`, { cache: "no-store" }), document = await answer.json();
    text.textContent = answer.ok ? JSON.stringify(document, null, 1) : document.message;
  } catch { text.textContent = "the server did not answer"; }
}
